//! Larger random rings against the naive twin, and what holds for every ring.

use crate::seeded::{Random, rounds};
use crate::twin::{self, Domains, Points};
use clockwise_placement::{Interval, Member, NodeIx, Placement, Position, RingSpec, Weight, diff};

/// Up to 12 nodes with up to 20 points, on positions that sometimes collide, in domains of any depth.
fn random_ring(random: &mut Random) -> (Points, Domains) {
    let nodes = 1 + random.below(12);
    // All 64 bits, or few values near the seam of the circle.
    let mask = [u64::MAX, 31, 31 << 59][random.below(3)];
    let mut points = Vec::new();
    for node in 0..nodes {
        for _ in 0..=random.below(20) {
            points.push((random.next() & mask, node));
        }
    }
    random.shuffle(&mut points);
    let depth = random.below(5);
    let labels = 1 + random.below(4);
    let path = |random: &mut Random| (0..depth).map(|_| random.below(labels) as u8).collect();
    (points, (0..nodes).map(|_| path(random)).collect())
}

/// Every point, its two neighbours, the ends of the circle, and some others.
fn probes(points: &Points, random: &mut Random) -> Vec<u64> {
    let around = |&(point, _): &(u64, usize)| [point.wrapping_sub(1), point, point.wrapping_add(1)];
    let ends = [0, 1, u64::MAX - 1, u64::MAX];
    points
        .iter()
        .flat_map(around)
        .chain(ends)
        .chain((0..20).map(|_| random.next()))
        .collect()
}

#[test]
fn random_rings_equal_the_twin_at_every_point_and_beside_it() {
    rounds("random_rings_equal_the_twin", 400, |random| {
        let (points, domains) = random_ring(random);
        let replicas = 1 + random.below(8) as u8;
        let ring = twin::placement(&points, &twin::members(&domains), replicas);
        for position in probes(&points, random) {
            let expected = twin::preference(&twin::met_from(&points, position), &domains);
            let at = Position(position);
            let found: Vec<usize> = ring.preference(at).map(NodeIx::get).collect();
            assert_eq!(found, expected, "preference at {position}");
            let found: Vec<usize> = ring.replicas_at(at).iter().map(|node| node.get()).collect();
            assert_eq!(found, expected[..expected.len().min(replicas.into())]);
        }
    });
}

#[test]
fn the_diff_of_two_random_rings_says_what_their_lookups_say() {
    rounds("the_diff_of_two_random_rings", 400, |random| {
        let (old_points, mut domains) = random_ring(random);
        let (new_points, _) = random_ring(random);
        let nodes = domains.len();
        let new_points: Points = new_points
            .iter()
            .map(|&(at, node)| (at, node % nodes))
            .collect();
        let replicas = 1 + random.below(4) as u8;
        let old = twin::placement(&old_points, &twin::members(&domains), replicas);
        random.shuffle(&mut domains);
        let new = twin::placement(&new_points, &twin::members(&domains), replicas);
        let diff = diff(&old, &new).expect("one scheme");
        let lists: Vec<_> = diff.lists().collect();
        let primaries: Vec<_> = diff.primaries().collect();
        for position in probes(&[old_points, new_points].concat(), random) {
            let at = Position(position);
            let (before, after) = (old.replicas_at(at), new.replicas_at(at));
            let there: Vec<_> = lists.iter().filter(|c| c.interval.contains(at)).collect();
            assert_eq!(
                there.len(),
                usize::from(before != after),
                "changes at {position}"
            );
            assert!(
                there
                    .iter()
                    .all(|change| (change.old, change.new) == (before, after))
            );
            let moves = primaries.iter().filter(|c| c.interval.contains(at)).count();
            assert_eq!(
                moves,
                usize::from(before[0] != after[0]),
                "primary at {position}"
            );
        }
        let moved: u128 = primaries.iter().map(|change| change.interval.len()).sum();
        let movement = diff.movement();
        assert_eq!(movement.primaries, moved);
        assert!(movement.copies >= movement.copies_least);
    });
}

#[test]
fn the_intervals_of_a_ring_are_the_circle() {
    rounds("the_intervals_of_a_ring", 200, |random| {
        let (points, domains) = random_ring(random);
        let ring = twin::placement(&points, &twin::members(&domains), 1);
        let intervals: Vec<Interval> = ring.intervals().map(|(interval, _)| interval).collect();
        assert_eq!(intervals.iter().map(Interval::len).sum::<u128>(), 1 << 64);
        let last = intervals.last().expect("a ring has an interval").through;
        let afters = std::iter::once(last).chain(intervals.iter().map(|interval| interval.through));
        assert!(
            afters
                .zip(&intervals)
                .all(|(after, interval)| interval.after == after)
        );
        assert_eq!(
            ring.points().len(),
            points.len(),
            "points that collide are kept"
        );
    });
}

fn random_spec(random: &mut Random) -> RingSpec {
    let depth = random.below(3);
    let member = |node: usize, random: &mut Random| {
        let domain: Vec<String> = (0..depth)
            .map(|_| format!("d{}", random.below(4)))
            .collect();
        Member::new(format!("node-{node}").parse().expect("a short name"))
            .with_weight(Weight::from_hundredths(50 * (1 + random.below(6) as u32)))
            .with_domain(domain.join("/").parse().expect("a path"))
    };
    let members: Vec<Member> = (0..2 + random.below(10))
        .map(|node| member(node, random))
        .collect();
    let replicas = 1 + random.below(4) as u8;
    RingSpec {
        points_per_weight: 20,
        replicas,
        ..RingSpec::new(members)
    }
}

fn build(spec: &RingSpec) -> Placement {
    spec.clone().build().expect("a sound specification")
}

// ZigzagAK/ngx_dynamic_upstream#10: instances that read the servers in another order routed elsewhere.
#[test]
fn a_shuffled_order_of_members_gives_the_same_ring() {
    rounds("a_shuffled_order_of_members", 100, |random| {
        let mut spec = random_spec(random);
        let ring = build(&spec);
        random.shuffle(&mut spec.members);
        let shuffled = build(&spec);
        assert_eq!(ring.fingerprint(), shuffled.fingerprint());
        assert!(diff(&ring, &shuffled).expect("one scheme").is_empty());
    });
}

#[test]
fn equal_fingerprints_and_an_empty_diff_are_the_same_thing() {
    rounds("equal_fingerprints", 200, |random| {
        let old = random_spec(random);
        let mut new = old.clone();
        match random.below(4) {
            0 => drop(new.members.pop()),
            1 => new.members[0].weight = Weight::from_hundredths(50 * (1 + random.below(6) as u32)),
            2 => {
                let domain = new.members[1].domain.clone();
                new.members[0].domain = domain;
            }
            _ => new.replicas = 1 + random.below(4) as u8,
        }
        let (old, new) = (build(&old), build(&new));
        let empty = diff(&old, &new).expect("one scheme").is_empty();
        assert_eq!(empty, old.fingerprint() == new.fingerprint());
    });
}

#[test]
fn between_nodes_that_stay_as_they_are_nothing_moves() {
    rounds("between_nodes_that_stay", 200, |random| {
        let old = random_spec(random);
        let mut new = old.clone();
        match random.below(3) {
            0 => drop(new.members.remove(random.below(new.members.len()))),
            1 => {
                let at = random.below(new.members.len());
                new.members[at].weight = Weight::from_hundredths(50 * (1 + random.below(6) as u32));
            }
            _ => {
                let domain = new.members[0].domain.clone();
                let id = "newcomer".parse().expect("a short name");
                new.members.push(Member::new(id).with_domain(domain));
            }
        }
        let (old, new) = (build(&old), build(&new));
        let movement = diff(&old, &new).expect("one scheme").movement();
        assert_eq!(movement.copies_needless, 0, "{:?}", movement.flows);
        if old.replicas_placed() == new.replicas_placed() {
            assert_eq!(movement.copies, movement.copies_least);
        }
    });
}
