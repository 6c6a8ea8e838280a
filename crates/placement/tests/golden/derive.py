#!/usr/bin/env python3
"""A second derivation of clockwise/v1, from its description alone.

derive.py < cases.txt                 prints what v1.txt must hold.
derive.py check slots.txt < cases.txt checks a planned owner table: it cannot be derived, since of several
                                      best tables any may be stored; but what it must satisfy can.
It shares no code with the crate and uses the standard library only.
"""

import sys
from fractions import Fraction
from itertools import combinations

MASK = (1 << 64) - 1

# --- XXH3-64, from its specification -------------------------------------------------------------------

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def le(data, at, size):
    return int.from_bytes(data[at : at + size], "little")


def fold(a, b):
    product = a * b
    return (product & MASK) ^ (product >> 64)


def avalanche(x):
    x ^= x >> 37
    x = x * 0x165667919E3779F9 & MASK
    return x ^ (x >> 32)


def avalanche_xxh64(x):
    x ^= x >> 33
    x = x * P64_2 & MASK
    x ^= x >> 29
    x = x * P64_3 & MASK
    return x ^ (x >> 32)


def rotated(x, by):
    return (x << by | x >> (64 - by)) & MASK


def mix16(data, at, secret_at, seed):
    low = le(data, at, 8) ^ ((le(SECRET, secret_at, 8) + seed) & MASK)
    high = le(data, at + 8, 8) ^ ((le(SECRET, secret_at + 8, 8) - seed) & MASK)
    return fold(low, high)


def xxh3(data, seed=0):
    length = len(data)
    if length == 0:
        return avalanche_xxh64(seed ^ le(SECRET, 56, 8) ^ le(SECRET, 64, 8))
    if length <= 3:
        combined = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
        return avalanche_xxh64(combined ^ (((le(SECRET, 0, 4) ^ le(SECRET, 4, 4)) + seed) & MASK))
    if length <= 8:
        seed ^= int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big") << 32
        flip = ((le(SECRET, 8, 8) ^ le(SECRET, 16, 8)) - seed) & MASK
        x = (le(data, length - 4, 4) + (le(data, 0, 4) << 32)) ^ flip
        x ^= rotated(x, 49) ^ rotated(x, 24)
        x = x * 0x9FB21C651E98DF25 & MASK
        x ^= (x >> 35) + length
        x = x * 0x9FB21C651E98DF25 & MASK
        return x ^ (x >> 28)
    if length <= 16:
        low = le(data, 0, 8) ^ (((le(SECRET, 24, 8) ^ le(SECRET, 32, 8)) + seed) & MASK)
        high = le(data, length - 8, 8) ^ (((le(SECRET, 40, 8) ^ le(SECRET, 48, 8)) - seed) & MASK)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return avalanche((length + swapped + high + fold(low, high)) & MASK)
    if length <= 128:
        total = length * P64_1
        for pair in range((length - 1) // 32, -1, -1):
            total += mix16(data, 16 * pair, 32 * pair, seed)
            total += mix16(data, length - 16 * (pair + 1), 32 * pair + 16, seed)
        return avalanche(total & MASK)
    if length <= 240:
        total = length * P64_1
        for block in range(8):
            total += mix16(data, 16 * block, 16 * block, seed)
        total = avalanche(total & MASK)
        for block in range(8, length // 16):
            total += mix16(data, 16 * block, 16 * (block - 8) + 3, seed)
        total += mix16(data, length - 16, 136 - 17, seed)
        return avalanche(total & MASK)
    return xxh3_long(data, seed)


def xxh3_long(data, seed):
    secret = b"".join(
        ((le(SECRET, at, 8) + seed) & MASK).to_bytes(8, "little")
        + ((le(SECRET, at + 8, 8) - seed) & MASK).to_bytes(8, "little")
        for at in range(0, 192, 16)
    )
    lanes = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]

    def accumulate(at, secret_at):
        for lane in range(8):
            value = le(data, at + 8 * lane, 8)
            keyed = value ^ le(secret, secret_at + 8 * lane, 8)
            lanes[lane ^ 1] = (lanes[lane ^ 1] + value) & MASK
            lanes[lane] = (lanes[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & MASK

    stripes_per_block = (192 - 64) // 8
    block = 64 * stripes_per_block
    blocks = (len(data) - 1) // block
    for number in range(blocks):
        for stripe in range(stripes_per_block):
            accumulate(number * block + 64 * stripe, 8 * stripe)
        for lane in range(8):
            x = lanes[lane]
            x ^= x >> 47
            x ^= le(secret, 128 + 8 * lane, 8)
            lanes[lane] = x * P32_1 & MASK
    for stripe in range((len(data) - 1 - blocks * block) // 64):
        accumulate(blocks * block + 64 * stripe, 8 * stripe)
    accumulate(len(data) - 64, 192 - 64 - 7)
    total = len(data) * P64_1
    for pair in range(4):
        low = lanes[2 * pair] ^ le(secret, 11 + 16 * pair, 8)
        high = lanes[2 * pair + 1] ^ le(secret, 11 + 16 * pair + 8, 8)
        total += fold(low, high)
    return avalanche(total & MASK)


# --- SipHash-1-3 ---------------------------------------------------------------------------------------


def siphash13(data, key):
    k0, k1 = le(key, 0, 8), le(key, 8, 8)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def sip_round():
        v[0] = (v[0] + v[1]) & MASK
        v[1] = rotated(v[1], 13) ^ v[0]
        v[0] = rotated(v[0], 32)
        v[2] = (v[2] + v[3]) & MASK
        v[3] = rotated(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & MASK
        v[3] = rotated(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & MASK
        v[1] = rotated(v[1], 17) ^ v[2]
        v[2] = rotated(v[2], 32)

    whole = len(data) // 8 * 8
    words = [le(data, at, 8) for at in range(0, whole, 8)]
    words.append(int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56)
    for word in words:
        v[3] ^= word
        sip_round()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        sip_round()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


# --- The scheme ----------------------------------------------------------------------------------------


class Case:
    """One line of cases.txt."""

    def __init__(self, line):
        kind, name, *fields = line.split()
        self.kind, self.name = kind, name
        self.fields = dict(field.split("=", 1) for field in fields)
        self.members = self.parse_members("members")

    def parse_members(self, field):
        members = []
        for text in filter(None, self.fields.get(field, "").split(",")):
            name, weight, domain = text.split(":")
            members.append((name, Fraction(weight), tuple(filter(None, domain.split("/")))))
        return sorted(members)

    def number(self, field, default=0):
        return int(self.fields.get(field, default))

    def hash(self, data):
        function, argument = self.fields["hash"].split(":")
        return xxh3(data, int(argument)) if function == "xxh3" else siphash13(data, bytes.fromhex(argument))

    def keys(self):
        return [f"user:{number}" for number in range(self.number("keys"))]

    def point(self, name, copy):
        return self.hash(name.encode() + copy.to_bytes(4, "little"))


def crowd(candidate, chosen):
    """For each level, how many of the chosen share the candidate's domain there."""
    path = candidate[2]
    return [sum(other[2][: level + 1] == path[: level + 1] for other in chosen) for level in range(len(path))]


def spread(met, replicas):
    """Members in the order in which they are met, thinned to the widest spread."""
    left, chosen = list(met), []
    while left and len(chosen) < replicas:
        best = min(crowd(member, chosen) for member in left)
        chosen.append(next(member for member in left if crowd(member, chosen) == best))
        left.remove(chosen[-1])
    return chosen


def is_refused(case):
    """Whether strict spread asks for more than there is: every position would get as many."""
    if "spread" not in case.fields:
        return False
    depth, replicas = case.number("spread"), case.number("replicas")
    members = [member for member in case.members if member[1] > 0]
    row = spread(members, replicas)
    if depth == 0 or len(row) < replicas:
        return len(row) < replicas
    deep_enough = all(len(member[2]) >= depth for member in row)
    return not deep_enough or len({member[2][:depth] for member in row}) < replicas


class Ring:
    def __init__(self, case, members="members", points="points"):
        self.replicas = case.number("replicas")
        self.points = []
        for member in case.parse_members(members):
            copies = member[1] * case.number(points)
            assert copies.denominator == 1 and copies > 0
            self.points += [(case.point(member[0], copy), member) for copy in range(int(copies))]
        self.points.sort()

    def owners(self, position):
        start = next((at for at, point in enumerate(self.points) if point[0] >= position), 0)
        met = []
        for _, member in self.points[start:] + self.points[:start]:
            if member not in met:
                met.append(member)
        return spread(met, self.replicas)

    def intervals(self):
        return [(end, self.owners(end)) for end in sorted({point[0] for point in self.points})]


def fingerprint(case, intervals):
    """A digest of the scheme, the owners' ids, and the ends of all runs of equal owners."""

    def field(data):
        return len(data).to_bytes(8, "little") + data

    probes = b"".join(case.hash(probe).to_bytes(8, "little") for probe in (b"clockwise", b"fingerprint"))
    placed = sorted({owner for _, owners in intervals for owner in owners})
    data = field(b"clockwise/v1") + probes + b"".join(field(member[0].encode()) for member in placed) + field(b"")
    runs = [
        interval
        for interval, following in zip(intervals, intervals[1:] + intervals[:1])
        if interval[1] != following[1]
    ] or [(MASK, intervals[0][1])]
    for end, owners in runs:
        data += end.to_bytes(8, "little") + b"".join(placed.index(owner).to_bytes(2, "little") for owner in owners)
    return xxh3(data)


# --- Draws ---------------------------------------------------------------------------------------------


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def log2_step(step):
    """floor(2^26 × log2(1 + step/256)), by comparing powers instead of squaring."""
    low, high = 0, 1 << 26
    while low < high:
        middle = (low + high + 1) // 2
        # 2^(middle / 2^26) ≤ (256 + step) / 256, decided in 160-bit fixed point by repeated square roots.
        power, root = 1 << 160, 2 << 160
        for bit in range(25, -1, -1):
            root = isqrt(root << 160)
            if middle >> bit & 1:
                power = power * root >> 160
        if middle == 1 << 26:
            power = 2 << 160
        low, high = (middle, high) if power <= (256 + step << 152) else (low, middle - 1)
    return low


def isqrt(n):
    x = 1 << (n.bit_length() + 1) // 2
    while True:
        y = (x + n // x) // 2
        if y >= x:
            return x
        x = y


TABLE = []


def minus_log2(value):
    if not TABLE:
        TABLE.extend(log2_step(step) for step in range(257))
    if value == 0:
        return (1 << 32) - 1
    zeros = 64 - value.bit_length()
    fraction = (value << zeros + 1) & MASK
    step, within = fraction >> 56, fraction >> 24 & 0xFFFFFFFF
    log = TABLE[step] + ((TABLE[step + 1] - TABLE[step]) * within >> 32)
    return min((zeros + 1 << 26) - log, (1 << 32) - 1)


def rendezvous(case, position):
    def draw(member):
        value = mix(position ^ case.point(member[0], 0))
        return (Fraction(minus_log2(value)) / member[1], -value)

    left, chosen = list(case.members), []
    while left:
        chosen.append(min(left, key=lambda member: (crowd(member, chosen), draw(member), member)))
        left.remove(chosen[-1])
    return chosen


def maglev(case):
    size = case.number("size")
    heaviest = max(weight for _, weight, _ in case.members)
    orders = []
    for name, _, _ in case.members:
        offset, skip = case.point(name, 0) % size, case.point(name, 1) % (size - 1) + 1
        orders.append(iter([(offset + turn * skip) % size for turn in range(size)]))
    table, credit = [None] * size, [Fraction(0)] * len(orders)
    while None in table:
        for number, member in enumerate(case.members):
            credit[number] += member[1]
            if credit[number] >= heaviest and None in table:
                credit[number] -= heaviest
                table[next(entry for entry in orders[number] if table[entry] is None)] = member[0]
    return table


# --- Output --------------------------------------------------------------------------------------------

LENGTHS = [*range(34), 63, 64, 65, 95, 96, 97, 127, 128, 129, 160, 192, 239, 240, 241, 256, 500, 1024, 1025, 2049, 5000]


def derive(case):
    title = f"{case.kind} {case.name}"
    if case.kind == "hash":
        for length in LENGTHS:
            data = bytes((7 * at + length) & 0xFF for at in range(length))
            yield f"{title} {case.fields['hash']} {length} {case.hash(data):016x}"
    elif case.kind == "points":
        for name, _, _ in case.members:
            for copy in map(int, case.fields["copies"].split(",")):
                yield f"{title} {name} {copy} {case.point(name, copy):016x}"
    elif case.kind == "ring":
        if is_refused(case):
            yield f"{title} refused"
            return
        ring = Ring(case)
        yield f"{title} fingerprint {fingerprint(case, ring.intervals()):016x}"
        for key in case.keys():
            yield f"{title} {key} {','.join(name for name, _, _ in ring.owners(case.hash(key.encode())))}"
    elif case.kind == "rendezvous":
        for key in case.keys():
            yield f"{title} {key} {','.join(name for name, _, _ in rendezvous(case, case.hash(key.encode())))}"
    elif case.kind == "maglev":
        yield f"{title} {','.join(maglev(case))}"


# --- Planned slots -------------------------------------------------------------------------------------


def widest(members, width):
    """All rows that put the fewest pairs into one domain, outermost level first."""

    def pairs(row):
        return [
            sum(a[2][: level + 1] == b[2][: level + 1] for a, b in combinations(row, 2))
            for level in range(len(row[0][2]))
        ]

    rows = list(combinations([member for member in members if member[1] > 0], width))
    best = min(map(pairs, rows))
    return [row for row in rows if pairs(row) == best]


def shares(members, rows, slots, width):
    """Copies by weight, poured within what the rows allow every domain: exact, domain by domain."""

    def bounds(group):
        counts = [sum(member in group for member in row) for row in rows]
        return min(counts) * slots, max(counts) * slots

    def parts(group, level):
        labels = sorted({member[2][: level + 1] for member in group})
        return [[member for member in group if member[2][: level + 1] == label] for label in labels]

    def held(group, level, pace):
        if level == len(group[0][2]):
            return sum(min(pace * member[1], slots) for member in group)
        total = 0
        for part in parts(group, level):
            least, most = bounds(part)
            total += min(max(held(part, level + 1, pace), least), most)
        return total

    def pour(group, level, copies, result):
        low, high = Fraction(0), Fraction(slots * 1000)
        for _ in range(120):
            middle = (low + high) / 2
            low, high = (middle, high) if held(group, level, middle) < copies else (low, middle)
        if level == len(group[0][2]):
            result.update({member: min(high * member[1], slots) for member in group})
            return
        for part in parts(group, level):
            least, most = bounds(part)
            pour(part, level + 1, min(max(held(part, level + 1, high), least), most), result)

    result = {member: Fraction(0) for member in members}
    pour([member for member in members if member[1] > 0], 0, slots * width, result)
    return result


def equal_ends(count):
    return [-(-(slot + 1 << 64) // count) - 1 for slot in range(count)]


def held_longest(intervals, slots, replicas):
    """For each of so many slots the owners that hold the longest parts of it, given ends with their owners."""
    rows, at, after = [], 0, -1
    for end in equal_ends(slots):
        lengths = {}
        while after < end:
            # Above the last end lies the interval of the first.
            through, owners = intervals[at] if at < len(intervals) else (MASK, intervals[0][1])
            last = min(through, end)
            for owner in owners:
                lengths[owner] = lengths.get(owner, 0) + last - after
            after = last
            at += after == through
        # Sorting keeps those of equal length in the order in which they were met.
        rows.append(sorted(lengths, key=lambda owner: -lengths[owner])[:replicas])
    return rows


def check_slots(case, table, before, answers):
    width = len(table[0])
    by_name = {member[0]: member for member in case.members}
    rows = [tuple(by_name[name] for name in row) for row in table]
    rows = [list(row) for row in rows]
    valid = {frozenset(row) for row in widest(case.members, width)}
    if "spread" in case.fields:
        depth = case.number("spread")
        assert all(len({member[2][:depth] for member in row}) == len(row) for row in rows), "a strict spread"
    if "step" not in case.fields:
        assert all(frozenset(row) in valid and len(set(row)) == width for row in rows), "a slot without its spread"
        percent = case.number("overload")
        poured = shares(case.members, widest(case.members, width), len(table), width)
        for member, share in poured.items():
            copies = sum(member in row for row in rows)
            tiny = Fraction(1, 10**9)
            least = (share * (100 - percent) / 100 + tiny).__floor__()
            most = (share * (100 + percent) / 100 - tiny).__ceil__()
            assert least <= copies <= most, f"{case.name}: {member[0]} has {copies} of {float(share)}"
    if before:
        moved = sum(name not in old for row, old in zip(table, before) for name in row)
        assert f"slots {case.name} moved {moved}" in answers, f"{case.name}: {moved} copies move"
    digest = fingerprint(case, list(zip(equal_ends(len(table)), rows)))
    assert f"slots {case.name} row-fingerprint {digest:016x}" in answers, f"{case.name}: {digest:016x}"
    for key in case.keys():
        slot = case.hash(key.encode()) * len(table) >> 64
        line = f"slots {case.name} {key} {','.join(table[slot])}"
        assert line in answers, f"missing: {line}"


def table_before(case, rows, answers):
    """Who held each slot before, whatever the placement was then."""
    if "before" not in case.fields:
        return []
    slots, replicas = case.number("slots"), case.number("replicas")
    if "before-points" in case.fields:
        ring = Ring(case, "before", "before-points")
        digest = fingerprint(case, ring.intervals())
        assert f"slots {case.name} before-fingerprint {digest:016x}" in answers, f"{case.name}: {digest:016x}"
        intervals = [(end, [member[0] for member in owners]) for end, owners in ring.intervals()]
        return held_longest(intervals, slots, replicas)
    count = case.number("before-slots", slots)
    assert len(rows) == count, f"{case.name}: {len(rows)} rows before"
    return held_longest(list(zip(equal_ends(count), rows)), slots, replicas)


def check(path, cases):
    with open(path, encoding="utf-8") as file:
        answers = set(file.read().splitlines())
    for case in cases:
        if case.kind != "slots":
            continue

        def table(of):
            lines = [line.split() for line in answers if line.startswith(f"slots {case.name} {of} ")]
            return [line[4].split(",") for line in sorted(lines, key=lambda line: int(line[3]))]

        if is_refused(case):
            assert f"slots {case.name} refused" in answers, f"{case.name} must be refused"
            continue
        found = table("row")
        assert len(found) == case.number("slots"), f"{case.name}: {len(found)} rows"
        check_slots(case, found, table_before(case, table("before"), answers), answers)
    print("the planned slots hold")


def main():
    lines = [line for line in sys.stdin.read().splitlines() if line and not line.startswith("#")]
    cases = [Case(line) for line in lines]
    if sys.argv[1:2] == ["check"]:
        check(sys.argv[2], cases)
        return
    for case in cases:
        for line in derive(case):
            print(line)


if __name__ == "__main__":
    main()
