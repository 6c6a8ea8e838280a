//! Random commands: everything that the embedded node offers, on few keys, with odd arguments and
//! wrong numbers of them.

use clockwise_testkit::Random;

/// What a word of a form stands for:
/// `K` a key, `V` a value, `I` a number to add, `F` a float, `R` a place in a string, `P` a pattern,
/// `T` seconds and `t` milliseconds from now, `A` a second and `a` a millisecond since 1970.
///
/// Times from now are long, so that nothing ends while it is compared, and drawn from many, so that
/// two of them are not told apart by when exactly they were given.
const FORMS: &[&str] = &[
    "GET K",
    "SET K V",
    "SET K V NX",
    "SET K V XX",
    "SET K V XX GET",
    "SET K V NX GET",
    "SET K V NX XX",
    "SET K V EX T",
    "SET K V PX t GET",
    "SET K V EXAT A",
    "SET K V PXAT a",
    "SET K V KEEPTTL",
    "SET K V KEEPTTL PX t",
    "SET K V EX I",
    "SETNX K V",
    "SETEX K T V",
    "PSETEX K t V",
    "GETSET K V",
    "GETDEL K",
    "GETEX K",
    "GETEX K EX T",
    "GETEX K PX t",
    "GETEX K EXAT A",
    "GETEX K PXAT a",
    "GETEX K PERSIST",
    "APPEND K V",
    "STRLEN K",
    "GETRANGE K R R",
    "SUBSTR K R R",
    "SETRANGE K R V",
    "MGET K K K",
    "MSET K V K V",
    "MSETNX K V K V",
    "INCR K",
    "DECR K",
    "INCRBY K I",
    "DECRBY K I",
    "INCRBYFLOAT K F",
    "INCRBYFLOAT K F",
    "EXPIRE K T",
    "EXPIRE K T NX",
    "EXPIRE K T XX",
    "EXPIRE K T XX GT",
    "EXPIRE K T LT",
    "EXPIRE K T GT LT",
    "PEXPIRE K t",
    "PEXPIRE K t GT",
    "EXPIREAT K A",
    "EXPIREAT K A GT",
    "PEXPIREAT K a",
    "PEXPIREAT K a LT",
    "TTL K",
    "PTTL K",
    "EXPIRETIME K",
    "PEXPIRETIME K",
    "PERSIST K",
    "DEL K K",
    "UNLINK K",
    "EXISTS K K K",
    "TOUCH K K",
    "TYPE K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K",
    "COPY K K REPLACE",
    "COPY K K DB 0 REPLACE",
    "COPY K K DB 1",
    "KEYS P",
    "SCAN 0 COUNT 1000",
    "SCAN I COUNT 1000",
    "SCAN 0 COUNT 1000 MATCH P",
    "SCAN 0 TYPE string COUNT 1000",
    "SCAN 0 TYPE hash COUNT 1000",
    "RANDOMKEY",
    "DBSIZE",
    "PING",
    "PING V",
    "ECHO V",
    "SELECT I",
    "CLIENT GETNAME",
    "CLIENT SETNAME I",
    "AUTH V V",
    "HELLO",
    "HELLO 2",
    "HELLO 3",
    "HELLO I",
    "HELLO 3 SETNAME K",
    "NOSUCH K I",
];
/// What takes everything away, and so is rare.
const FLUSHES: &[&str] = &["FLUSHALL", "FLUSHDB ASYNC", "FLUSHALL SYNC", "FLUSHDB V"];

const KEYS: &[&str] = &["a", "b", "c", "key:1", "key:2", "{tag}x", ""];
const VALUES: &[&[u8]] = &[
    b"",
    b"v",
    b"another value",
    b"0",
    b"10",
    b"-3",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9223372036854775808",
    b"007",
    b" 1",
    b"1 ",
    b"3.0e3",
    b"0x1p3",
    b"inf",
    b"nan",
    b"\r\n$5\r\n",
    b"\0\xff\x80",
];
const INTEGERS: &[&str] = &[
    "1",
    "-1",
    "0",
    "100",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775809",
    "99999999999999999999",
    "",
    "-",
    "+1",
    "01",
    "1.5",
    "x",
    "2147483648",
];
const PLACES: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "-3",
    "5",
    "1000",
    "-1000",
    "536870912",
    "9223372036854775807",
    "-9223372036854775808",
    "x",
];
const PATTERNS: &[&str] = &[
    "*", "key:*", "?", "[a-b]", "[^a]", "k*1", "\\a", "[", "", "*:*",
];
const JUNK: &[&str] = &[
    "",
    "x",
    "-1",
    "9223372036854775808",
    " 1",
    "NX",
    "GET",
    "EX",
    "nan",
];
const FAR_SECOND: u64 = 4_102_444_800;

/// A command, and how replies to it are compared.
pub(crate) struct Command {
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) look: Look,
}

/// How alike two replies must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Byte for byte.
    Exact,
    /// The same elements, in an order of each server's own.
    AnyOrder,
    /// Numbers that depend on when exactly they were asked for.
    About,
    /// Chosen by each server; alike in kind.
    Kind,
    /// Names the server, its version and the connection.
    Greeting,
}

impl Command {
    pub(crate) fn of(words: &[&str]) -> Self {
        let args: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let look = Look::of(&args);
        Self { args, look }
    }

    pub(crate) fn random(random: &mut Random) -> Self {
        let form = match random.chance(1) {
            true => random.one(FLUSHES),
            false => random.one(FORMS),
        };
        let mut args: Vec<Vec<u8>> = form.split(' ').map(|word| fill(word, random)).collect();
        if random.chance(12) {
            spoil(&mut args, random);
        }
        let look = Look::of(&args);
        Self { args, look }
    }
}

impl Look {
    fn of(args: &[Vec<u8>]) -> Self {
        match args[0].as_slice() {
            b"KEYS" => Self::AnyOrder,
            b"SCAN" if args.get(1).is_some_and(|cursor| cursor == b"0") => Self::AnyOrder,
            b"SCAN" | b"RANDOMKEY" => Self::Kind,
            b"TTL" | b"PTTL" | b"EXPIRETIME" | b"PEXPIRETIME" => Self::About,
            b"HELLO" => Self::Greeting,
            _ => Self::Exact,
        }
    }
}

fn fill(word: &str, random: &mut Random) -> Vec<u8> {
    let odd = random.chance(6);
    match word {
        "K" => random.one(KEYS).as_bytes().to_vec(),
        "V" => match random.below(10) {
            0 => random.bytes(20),
            1 => vec![b'x'; 3_000],
            _ => random.one(VALUES).to_vec(),
        },
        "I" => random.one(INTEGERS).as_bytes().to_vec(),
        "R" => random.one(PLACES).as_bytes().to_vec(),
        "P" => random.one(PATTERNS).as_bytes().to_vec(),
        "F" => float(random).into_bytes(),
        // Neither short nor small: 0, something below it, or beyond all time.
        "T" | "t" | "A" | "a" if odd => {
            let out_of_reach = [
                "0",
                "-1",
                "-9223372036854775808",
                "9223372036854775807",
                "x",
            ];
            random.one(&out_of_reach).as_bytes().to_vec()
        }
        "T" => (1_000 + random.below(1_000_000)).to_string().into_bytes(),
        "t" => (1_000_000 + random.below(1_000_000_000))
            .to_string()
            .into_bytes(),
        "A" => moment(random).to_string().into_bytes(),
        "a" => (moment(random) * 1_000).to_string().into_bytes(),
        literal => literal.as_bytes().to_vec(),
    }
}

/// A second long ago or far away, one of few.
fn moment(random: &mut Random) -> u64 {
    let base = if random.chance(25) { 1 } else { FAR_SECOND };
    base + u64::try_from(random.below(4)).unwrap()
}

/// A number as `strtold` takes one, or almost.
fn float(random: &mut Random) -> String {
    let sign = *random.one(&["", "", "-", "+"]);
    let digits = |random: &mut Random, count_max: usize| -> String {
        let count = random.below(count_max + 1);
        (0..count)
            .map(|_| random.one(&["0", "1", "4", "5", "9"]).to_owned())
            .collect()
    };
    match random.below(8) {
        0 => (*random.one(&[
            "inf",
            "-Infinity",
            "nan",
            "1e",
            ".",
            "1.2.3",
            "0x",
            "1_0",
            "",
            "1e5000",
            "1e-5000",
        ]))
        .to_owned(),
        1 => format!(
            "{sign}0x{}.{}p{}",
            digits(random, 8),
            digits(random, 20),
            random.below(80)
        ),
        2 => format!("{sign}{}e{}", digits(random, 20), 4_900 + random.below(60)),
        3 => format!("{sign}{}e-{}", digits(random, 20), random.below(30)),
        // Where 64 bits no longer hold every whole number, halves are met often.
        4 => format!("{sign}{}", u128::from(random.bits() | 1 << 63) * 2 + 1),
        5 => format!("{sign}{}.{}", digits(random, 3), digits(random, 25)),
        _ => format!("{sign}{}.{}", random.below(1_000), random.below(1_000)),
    }
}

/// Drops, repeats or replaces an argument.
fn spoil(args: &mut Vec<Vec<u8>>, random: &mut Random) {
    if args.len() == 1 {
        args.push(random.one(JUNK).as_bytes().to_vec());
        return;
    }
    let at = 1 + random.below(args.len() - 1);
    match random.below(3) {
        0 => drop(args.remove(at)),
        1 => args.insert(at, args[at].clone()),
        _ => args[at] = random.one(JUNK).as_bytes().to_vec(),
    }
}
