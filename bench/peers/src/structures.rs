//! Building, changing, comparing and planning.

use std::hint::black_box;

use clockwise_placement::{
    Member, NodeId, Placement, Position, Ring, RingSpec, Scheme, SlotsSpec, diff,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::figure;
use crate::lookups::{POINTS, Xxh3Builder, by, keys, members, ring, virtual_nodes};
use crate::rounds::{Contestant, Lookup, medians, time_lookups, timed};

fn report(rounds: usize, mut contestants: Vec<Contestant<'_>>) {
    let times = medians(rounds, &mut contestants);
    for (contestant, time) in contestants.iter().zip(times) {
        figure(&contestant.name, time);
    }
}

fn contestant<'a>(name: impl Into<String>, run: impl FnMut() -> f64 + 'a) -> Contestant<'a> {
    Contestant {
        name: name.into(),
        run: Box::new(run),
    }
}

fn spec(nodes: usize) -> RingSpec {
    RingSpec {
        points_per_weight: POINTS,
        ..RingSpec::new(members(nodes))
    }
}

pub fn builds() {
    for (nodes, rounds) in [(100, 101), (1000, 31)] {
        let (spec, points) = (spec(nodes), virtual_nodes(nodes));
        let ours = || {
            let spec = spec.clone();
            timed(|| spec.build().expect("a ring")).0
        };
        let hashring = || {
            let points = points.clone();
            let fresh = || {
                let mut ring = hashring::HashRing::with_hasher(Xxh3Builder::default());
                ring.batch_add(points);
                ring
            };
            timed(fresh).0
        };
        let name = |who: &str| format!("build {} {who}", nodes * POINTS as usize);
        report(
            rounds,
            vec![
                contestant(name("ring"), ours),
                contestant(name("hashring with xxh3"), hashring),
            ],
        );
    }
}

/// How many joins are timed in one round.
const JOINS: u32 = 4;

/// The points of all nodes, sorted: what a ring takes that knows no other way to change.
fn by_sorting(nodes: &[NodeId]) -> Vec<(Position, u16)> {
    let scheme = Scheme::default();
    let mut points = Vec::with_capacity(nodes.len() * POINTS as usize);
    for (rank, node) in (0..).zip(nodes) {
        points.extend((0..POINTS).map(|copy| (scheme.point(node, copy), rank)));
    }
    points.sort_unstable();
    points
}

pub fn joins() {
    let mut live = Ring::new(spec(1000)).expect("a ring");
    let newcomer: Member = Member::new("newcomer".parse().expect("a name"));
    let newcomer = newcomer.with_domain("zone-0".parse().expect("a path"));
    let mut ids: Vec<NodeId> = members(1000).into_iter().map(|member| member.id).collect();
    ids.push(newcomer.id.clone());
    let mut join_and_leave = || {
        let (time, _) = timed(|| drop(live.add_node(newcomer.clone()).expect("a new node")));
        live.remove_node(&newcomer.id).expect("a member");
        time
    };
    // As with lookups, something untimed comes first, which warms the caches up.
    let join = || {
        join_and_leave();
        (0..JOINS).map(|_| join_and_leave()).sum::<f64>() / f64::from(JOINS)
    };
    let sorting = || timed(|| by_sorting(&ids)).0;
    report(
        61,
        vec![
            contestant("join 200000 ring", join),
            contestant("join 200000 by sorting", sorting),
        ],
    );
}

pub fn large_rings() {
    let (before, after) = (ring(9_999, 1), ring(10_000, 1));
    let points = after.point_count() as f64;
    let walk = || {
        timed(|| {
            diff(&before, &after)
                .expect("one scheme")
                .primaries()
                .count()
        })
        .0 / points
    };
    let lists = || timed(|| diff(&before, &after).expect("one scheme").lists().count()).0 / points;
    let changed: Vec<Position> = {
        let newcomer = after
            .index_of(&"node-9999".parse().expect("a name"))
            .expect("a member");
        after
            .points()
            .filter(|&(_, node)| node == newcomer)
            .map(|(at, _)| at)
            .collect()
    };
    let known = || {
        timed(|| {
            diff(&before, &after)
                .expect("one scheme")
                .primaries_at(&changed)
                .len()
        })
        .0
    };
    report(
        21,
        vec![
            contestant("diff 2000000 primaries, a point", walk),
            contestant("diff 2000000 lists, a point", lists),
            contestant("diff 2000000 from the changed points", known),
        ],
    );

    let keys = keys();
    let searched = binary_search(&after);
    let batched: Lookup = {
        let ring = after.clone();
        Box::new(move |keys| {
            let mut positions = [Position::MIN; 32];
            let mut owners = [ring.owner_at(Position::MIN); 32];
            let mut sum = 0usize;
            for chunk in keys.chunks_exact(32) {
                positions
                    .iter_mut()
                    .zip(chunk)
                    .for_each(|(at, key)| *at = ring.position(key));
                ring.owners_at(&positions, &mut owners);
                sum = sum.wrapping_add(owners.iter().map(|owner| owner.get()).sum());
            }
            sum
        })
    };
    let ours = by(move |key| std::ptr::from_ref(after.owner(key)) as usize);
    let lookups = [
        ("ring", ours),
        ("binary search", searched),
        ("ring, 32 at a time", batched),
    ];
    let lookups = lookups.map(|(name, lookup)| (format!("lookup 2000000 {name}"), lookup));
    for ((name, _), ns) in lookups.iter().zip(time_lookups(keys, &lookups)) {
        figure(name, ns);
    }
}

/// The same points as sorted arrays, searched by halving.
fn binary_search(ring: &Placement) -> Lookup {
    let (positions, owners): (Vec<u64>, Vec<u16>) = ring
        .points()
        .map(|(at, node)| (at.0, u16::try_from(node.get()).expect("few nodes")))
        .unzip();
    by(move |key| {
        let position = xxh3_64(key);
        let at = positions.partition_point(|&point| point < position);
        usize::from(owners[if at == positions.len() { 0 } else { at }])
    })
}

pub fn plans() {
    for (nodes, zones, slots, rounds) in [(40, 4, 4096, 5), (1000, 8, 8192, 1)] {
        let pool = |count: usize| {
            let zoned = |(n, member): (usize, Member)| {
                member.with_domain(format!("zone-{}", n % zones).parse().expect("a path"))
            };
            let members = members(count).into_iter().enumerate().map(zoned);
            SlotsSpec {
                slots,
                replicas: 3,
                ..SlotsSpec::new(members)
            }
        };
        let before = pool(nodes).plan(None).expect("slots").placement;
        let fresh = || timed(|| pool(nodes).plan(None).expect("slots")).0 / 1e9;
        let change =
            || timed(|| black_box(pool(nodes + 1).plan(Some(&before)).expect("slots"))).0 / 1e9;
        report(
            rounds,
            vec![
                contestant(format!("plan {nodes} nodes"), fresh),
                contestant(format!("plan {nodes} nodes and one more"), change),
            ],
        );
    }
}
