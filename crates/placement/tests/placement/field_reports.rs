//! Faults that users of other systems reported, each as a fact about ours.
//!
//! The comment names the report's repository and number. Faults of weights, empty sets, shortfalls, unequal
//! zones, ports of algorithms and load bounds have their tests beside the code they concern.

use std::sync::Arc;

use clockwise_placement::{
    KeyHash, Member, NodeId, NodeIx, Placement, PlacementError, Point, Position, Recipe, Ring,
    RingSpec, Scheme, SlotsSpec, diff,
};

fn id(name: &str) -> NodeId {
    name.parse().expect("a short name")
}

fn members<const N: usize>(names: [&str; N]) -> Vec<Member> {
    names.map(|name| Member::new(id(name))).into()
}

fn numbered(count: usize) -> Vec<Member> {
    (0..count)
        .map(|n| Member::new(id(&format!("node-{n}"))))
        .collect()
}

fn zoned(name: &str, zone: &str) -> Member {
    Member::new(id(name)).with_domain(zone.parse().expect("a path"))
}

/// Positions of so few bits that points collide.
struct Narrow(u32);

impl Recipe for Narrow {
    fn name(&self) -> &str {
        "narrow"
    }

    fn key(&self, key: &[u8]) -> Position {
        self.cut(Scheme::default().position(key))
    }

    fn point(&self, node: &NodeId, copy: u32) -> Position {
        self.cut(Scheme::default().point(node, copy))
    }
}

impl Narrow {
    fn cut(&self, position: Position) -> Position {
        Position(position.0 >> (64 - self.0) << (64 - self.0))
    }
}

fn narrow(bits: u32, points: u32, members: Vec<Member>) -> RingSpec {
    let scheme = Scheme::foreign(Arc::new(Narrow(bits)));
    RingSpec {
        scheme,
        points_per_weight: points,
        ..RingSpec::new(members)
    }
}

fn build(spec: RingSpec) -> Placement {
    spec.build().expect("a sound ring")
}

fn points(ring: &Placement) -> Vec<(Position, String)> {
    ring.points()
        .map(|(at, node)| (at, ring.node(node).id.to_string()))
        .collect()
}

// pragmaticalabs/pragmatica#1324: one node per point; the order of insertion decided, and removing one node
// deleted the other's point.
#[test]
fn points_that_collide_are_the_same_in_every_order_and_a_leaving_node_takes_only_its_own() {
    let (ab, ba) = (
        build(narrow(8, 200, members(["A", "B"]))),
        build(narrow(8, 200, members(["B", "A"]))),
    );
    assert_eq!(points(&ab), points(&ba));
    let positions: Vec<Position> = ab.points().map(|(at, _)| at).collect();
    assert!(
        positions.windows(2).any(|pair| pair[0] == pair[1]),
        "some do collide"
    );
    let mut ring = Ring::new(narrow(8, 200, members(["A", "B"]))).expect("a ring");
    ring.remove_node(&id("A")).expect("a member");
    let of_b: Vec<_> = points(&ab)
        .into_iter()
        .filter(|(_, node)| node == "B")
        .collect();
    assert_eq!(points(ring.placement()), of_b);
}

// apache/pekko#3279: virtual nodes that collided were dropped without a word.
#[test]
fn every_point_of_every_node_is_kept() {
    let ring = build(narrow(
        10,
        200,
        members(["node-4230", "node-14323", "other"]),
    ));
    for node in 0..3 {
        assert_eq!(
            ring.points()
                .filter(|(_, owner)| owner.get() == node)
                .count(),
            200
        );
    }
}

// ultrabug/uhashring#6: removing a node failed when a clashing point was gone already.
#[test]
fn nodes_whose_points_clash_can_leave_in_any_order() {
    let names = ["172.31.1.0", "172.31.1.125", "172.31.1.202"];
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
        let mut ring = Ring::new(narrow(6, 40, members(names))).expect("a ring");
        ring.remove_node(&id(names[order[0]])).expect("a member");
        ring.remove_node(&id(names[order[1]])).expect("a member");
        assert_eq!(ring.placement().point_count(), 40);
        // Nobody owns nothing: the last one stays, with an error that says so.
        let last = ring
            .remove_node(&id(names[order[2]]))
            .expect_err("it is the last");
        assert_eq!(last, PlacementError::NoMembers);
    }
}

// uber-node/ringpop-node#317: the order of equal hashes was not defined, so members looked up differently.
#[test]
fn views_that_were_built_in_different_orders_have_one_fingerprint_though_points_collide() {
    let mut nodes = numbered(9);
    let ring = build(narrow(7, 30, nodes.clone()));
    for turn in 1..9 {
        nodes.rotate_left(1);
        nodes.swap(0, turn / 2);
        let other = build(narrow(7, 30, nodes.clone()));
        assert_eq!(other.fingerprint(), ring.fingerprint());
        assert!((0..10_000).all(|key| {
            let key = format!("key:{key}");
            other.owner(key.as_bytes()) == ring.owner(key.as_bytes())
        }));
    }
}

// graphite-project/carbon#196: collisions in a large cluster left some metrics without an owner.
#[test]
fn in_a_large_ring_of_32_bits_every_key_has_an_owner_and_only_a_leaver_s_keys_move() {
    let mut ring = Ring::new(narrow(32, 256, numbered(500))).expect("a ring");
    let original = ring.placement().fingerprint();
    let change = ring.remove_node(&id("node-250")).expect("a member");
    let moved = change.primaries();
    for key in 0..20_000 {
        let at = ring.placement().position(format!("key:{key}").as_bytes());
        let before = &change.before.node(change.before.owner_at(at)).id;
        let after = &change.after.node(change.after.owner_at(at)).id;
        let within = moved.iter().any(|change| change.interval.contains(at));
        assert_eq!(before != after, within);
        assert_eq!(within, *before == id("node-250"));
    }
    ring.add_node(Member::new(id("node-250")))
        .expect("it is back");
    assert_eq!(ring.placement().fingerprint(), original);
}

// k8ssandra/k8ssandra#732: random tokens collided and some nodes did not start.
#[test]
fn two_nodes_may_give_one_point_and_the_order_of_their_names_decides() {
    let point = |position, member| Point {
        position: Position(position),
        member,
    };
    let clash = [point(20, 1), point(20, 0), point(50, 2)];
    let ring = Placement::from_points(Scheme::default(), members(["b", "a", "c"]), 2, clash);
    let ring = ring.expect("it is resolved, not refused");
    let names = |at: u64| {
        let owners = ring.replicas_at(Position(at)).iter();
        owners
            .map(|&node| ring.node(node).id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(20), ["a", "b"]);
    assert_eq!(names(21), ["c", "a"]);
}

// vimeo/galaxycache#58: bounds were lower in one function and upper in another, so replicas went backwards.
#[test]
fn the_next_replica_is_the_next_node_clockwise_at_every_position() {
    let at = [20, 35, 50, 80];
    let four = (0..4).map(|member| Point {
        position: Position(at[member]),
        member,
    });
    let ring = Placement::from_points(Scheme::default(), members(["a", "b", "c", "d"]), 2, four);
    let ring = ring.expect("a sound ring");
    for position in 0..100 {
        let first = at.iter().position(|&point| position <= point).unwrap_or(0);
        let found: Vec<usize> = ring
            .replicas_at(Position(position))
            .iter()
            .map(|node| node.get())
            .collect();
        assert_eq!(found, [first, (first + 1) % 4], "at {position}");
    }
}

// dakatsuka/node-consistent-hashing#1: a position could equal the length of the ring and had no owner.
// orcaman/concurrent-map#7: a hash with the top bit set gave a negative index.
#[test]
fn the_first_and_last_positions_and_those_with_the_top_bit_have_owners() {
    for count in 1..=2 {
        let nodes = || numbered(count);
        let ring = build(RingSpec::new(nodes()));
        let slots = SlotsSpec {
            slots: 7,
            ..SlotsSpec::new(nodes())
        }
        .plan(None)
        .expect("slots")
        .placement;
        for placement in [ring, slots] {
            for position in [
                0,
                1,
                1 << 63,
                (1 << 63) - 1,
                (1 << 63) + 1,
                u64::MAX - 1,
                u64::MAX,
            ] {
                assert!(placement.owner_at(Position(position)).get() < count);
                assert!(
                    placement
                        .interval_at(Position(position))
                        .interval
                        .contains(Position(position))
                );
            }
        }
    }
}

// eltmon/overdeck#2055: the top bits of FNV-1a hardly changed for work:PAN-1901 and so on; one got 68 %.
#[test]
fn keys_that_count_up_spread_as_the_ring_s_intervals_ask() {
    type Name = fn(u64) -> String;
    let kinds: [(&str, Name); 5] = [
        ("decimal", |n| format!("work:PAN-{}", 1901 + n)),
        ("hexadecimal", |n| format!("session/{n:08x}")),
        ("time-ordered", |n| {
            format!(
                "0190a1b2-{:04x}-7{:03x}-8000-00000000{:04x}",
                n >> 12,
                n & 0xfff,
                n & 0xffff
            )
        }),
        ("dates", |n| {
            format!(
                "2024-{:02}-{:02}T{:02}:{:02}",
                n % 12 + 1,
                n / 12 % 28 + 1,
                n / 336 % 24,
                n / 8064
            )
        }),
        ("padded", |n| format!("{n:0100}")),
    ];
    for hash in [
        KeyHash::Xxh3 { seed: 0 },
        KeyHash::Xxh3 { seed: 99 },
        KeyHash::SipHash13 { key: [9; 16] },
    ] {
        let ring = build(RingSpec {
            scheme: Scheme::v1(hash),
            ..RingSpec::new(numbered(10))
        });
        let balance = ring.balance();
        for (kind, name) in kinds {
            let keys: std::collections::BTreeSet<String> = (0..100_000).map(name).collect();
            let mut counts = [0u32; 10];
            for key in &keys {
                counts[ring.owner_at(ring.position(key.as_bytes())).get()] += 1;
            }
            for (count, load) in counts.iter().zip(&balance.loads) {
                let expected = load.share * keys.len() as f64;
                let sigma = (expected * (1.0 - load.share)).sqrt();
                let off = (f64::from(*count) - expected).abs();
                assert!(
                    off < 4.5 * sigma,
                    "{kind} under {hash:?}: {count} instead of {expected}"
                );
            }
        }
    }
}

// istio/istio#13261: with the default ring size two endpoints shared 90 to 10.
#[test]
fn two_nodes_with_the_defaults_share_almost_evenly() {
    for names in [
        ["a", "b"],
        ["node-0", "node-1"],
        ["cache-a", "cache-b"],
        ["10.0.0.1", "10.0.0.2"],
    ] {
        let balance = build(RingSpec::new(members(names))).balance();
        assert!(
            balance.max_over_mean <= 1.15,
            "{names:?}: {}",
            balance.max_over_mean
        );
    }
}

// jcmoraisjr/haproxy-ingress#798: servers were numbered by their place in a list.
// twitter/twemproxy#471: the address was the label, so data on servers with new addresses was not found.
#[test]
fn a_node_that_leaves_from_the_middle_moves_only_its_share_and_addresses_do_not_count() {
    let nine = numbered(9);
    let eight: Vec<Member> = nine
        .iter()
        .filter(|node| node.id != id("node-4"))
        .cloned()
        .collect();
    let (before, after) = (build(RingSpec::new(nine)), build(RingSpec::new(eight)));
    let movement = diff(&before, &after).expect("one scheme").movement();
    assert!(
        movement
            .flows
            .iter()
            .all(|flow| flow.source == id("node-4"))
    );
    assert_eq!(movement.primaries, before.balance().loads[4].amount);
}

// basho/riak_core#913: preference lists at the end of the ring held one node twice, with 16 points of 5 nodes.
#[test]
fn sixteen_points_of_five_nodes_give_distinct_replicas_everywhere() {
    let sixteen = (0..16).map(|at| Point {
        position: Position(10 * at as u64),
        member: at % 5,
    });
    for replicas in 1..=5 {
        let ring =
            Placement::from_points(Scheme::default(), numbered(5), replicas, sixteen.clone());
        let ring = ring.expect("a sound ring");
        for position in 0..170 {
            let owners = ring.replicas_at(Position(position));
            assert_eq!(owners.len(), usize::from(replicas));
            assert!(
                (1..owners.len()).all(|at| !owners[..at].contains(&owners[at])),
                "{owners:?}"
            );
        }
    }
}

// thanos-io/thanos#5604: a node with two neighbouring sections was its own replica.
#[test]
fn a_node_with_two_neighbouring_points_is_not_its_own_replica() {
    let aabc = [0, 0, 1, 2].into_iter().zip(1..);
    let points = aabc.map(|(member, at)| Point {
        position: Position(10 * at),
        member,
    });
    let ring = Placement::from_points(Scheme::default(), members(["a", "b", "c"]), 2, points);
    let ring = ring.expect("a sound ring");
    let owners: Vec<usize> = ring
        .replicas_at(Position(10))
        .iter()
        .map(|node| node.get())
        .collect();
    assert_eq!(owners, [0, 1]);
}

// cortexproject/cortex#3299: the choices in other zones changed when a zone or a node was added.
#[test]
fn choices_in_other_zones_stay_when_a_zone_or_a_node_comes() {
    let names = ["a1", "a2", "b1", "b2", "c1", "c2"];
    let six = || names.map(|name| zoned(name, &name[..1])).to_vec();
    let ring = |nodes| {
        build(RingSpec {
            replicas: 3,
            ..RingSpec::new(nodes)
        })
    };
    let before = ring(six());
    for newcomer in [zoned("a3", "a"), zoned("d1", "d")] {
        let mut seven = six();
        seven.push(newcomer.clone());
        let after = ring(seven);
        for change in diff(&before, &after).expect("one scheme").replica_sets() {
            let gone: Vec<&Member> = change.old.iter().map(|&node| before.node(node)).collect();
            let now: Vec<&Member> = change.new.iter().map(|&node| after.node(node)).collect();
            let lost: Vec<_> = gone
                .iter()
                .filter(|old| now.iter().all(|new| new.id != old.id))
                .collect();
            let won: Vec<_> = now
                .iter()
                .filter(|new| gone.iter().all(|old| new.id != old.id))
                .collect();
            assert_eq!((lost.len(), won.len()), (1, 1), "one replica makes place");
            assert_eq!(won[0].id, newcomer.id);
            if newcomer.domain == zoned("a3", "a").domain {
                assert_eq!(lost[0].domain, newcomer.domain, "its own zone makes place");
            }
        }
    }
}

// TheJJ/ceph-balancer#5: a balancer's move put two replicas on one host.
#[test]
fn every_step_of_a_planned_change_keeps_replicas_in_distinct_zones() {
    let pool = |names: &[&str]| {
        names
            .iter()
            .map(|name| zoned(name, &name[..1]))
            .collect::<Vec<_>>()
    };
    let spec = |names: &[&str]| SlotsSpec {
        slots: 128,
        replicas: 3,
        ..SlotsSpec::new(pool(names))
    };
    let mut now = spec(&["a1", "a2", "b1", "b2", "c1"])
        .plan(None)
        .expect("slots")
        .placement;
    loop {
        let next = SlotsSpec {
            step_percent: 4,
            ..spec(&["a1", "b1", "b2", "c1", "c2", "d1"])
        };
        let step = next.plan(Some(&now)).expect("slots");
        let all: Vec<Position> = step.placement.points().map(|(at, _)| at).collect();
        assert!(
            all.iter()
                .all(|&at| step.placement.shortfall_at(at).is_none())
        );
        now = step.placement;
        if step.copies_left == 0 {
            return;
        }
    }
}

// datastax/cass-operator#205: nodes that started together shared unevenly.
#[test]
fn three_nodes_that_join_at_once_share_as_if_they_came_one_by_one() {
    let mut one_by_one = Ring::new(RingSpec::new(numbered(5))).expect("a ring");
    for node in &numbered(8)[5..] {
        one_by_one.add_node(node.clone()).expect("a new node");
    }
    let at_once = build(RingSpec::new(numbered(8)));
    assert_eq!(one_by_one.placement().fingerprint(), at_once.fingerprint());
    assert!(at_once.balance().max_over_mean < 1.25);
}

// scylladb/scylladb#6193: a change made the spread of data uneven, and only a long test saw it.
#[test]
fn the_spread_of_twenty_fixed_rings_is_what_chance_gives() {
    let worst = (0..20).map(|ring| {
        let nodes = (0..10).map(|n| Member::new(id(&format!("ring{ring}-{n}"))));
        build(RingSpec::new(nodes)).balance()
    });
    let (mut max, mut cv) = (Vec::new(), Vec::new());
    for balance in worst {
        max.push(balance.max_over_mean);
        cv.push(balance.cv);
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    assert!((1.08..1.14).contains(&mean(&max)), "{max:?}");
    let expected = clockwise_placement::expected_cv(10, 200);
    assert!(
        (mean(&cv) / expected - 1.0).abs() < 0.15,
        "{cv:?} beside {expected}"
    );
    assert!(max.iter().all(|&max| max < 1.25), "{max:?}");
}

// vedhavyas/hashring#3 and apache/incubator-seata-go#1080: lookups shared state that changed under them.
#[test]
fn threads_that_look_up_while_the_ring_changes_see_one_version_each() {
    let mut ring = Ring::new(RingSpec::new(numbered(4))).expect("a ring");
    let published = std::sync::RwLock::new(ring.placement().clone());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = || {
            let mut lookups = 0;
            while lookups < 2000 || !done.load(std::sync::atomic::Ordering::Relaxed) {
                let view = published.read().expect("no panic elsewhere").clone();
                let key = format!("key:{lookups}");
                let owner = view.owner(key.as_bytes());
                let again = view.node(view.owner_at(view.position(key.as_bytes())));
                assert_eq!(*owner, again.id, "both from one version");
                lookups += 1;
            }
        };
        let readers: Vec<_> = (0..8).map(|_| scope.spawn(reader)).collect();
        for version in 0..100 {
            let newcomer = id(&format!("extra-{}", version / 2));
            match version % 2 {
                0 => ring
                    .add_node(Member::new(newcomer))
                    .map(drop)
                    .expect("a new node"),
                _ => ring.remove_node(&newcomer).map(drop).expect("a member"),
            }
            *published.write().expect("no panic elsewhere") = ring.placement().clone();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        readers
            .into_iter()
            .for_each(|reader| reader.join().expect("no assertion failed"));
    });
}

// lestrrat-p5/Algorithm-ConsistentHash-Ketama#5: mending a lookup would have moved keys under the old name.
#[test]
fn schemes_that_differ_in_anything_have_different_fingerprints() {
    let ring = |scheme| {
        build(RingSpec {
            scheme,
            ..RingSpec::new(numbered(3))
        })
        .fingerprint()
    };
    let schemes = [
        Scheme::default(),
        Scheme::v1(KeyHash::Xxh3 { seed: 1 }),
        Scheme::v1(KeyHash::SipHash13 { key: [0; 16] }),
        Scheme::v1(KeyHash::SipHash13 { key: [1; 16] }),
        Scheme::foreign(Arc::new(Narrow(64))),
    ];
    let prints: Vec<_> = schemes.into_iter().map(ring).collect();
    assert!(
        (1..prints.len()).all(|at| !prints[..at].contains(&prints[at])),
        "{prints:?}"
    );
}

// jaysonsantos/python-binary-memcached#236: rings of object representations differed between processes.
#[test]
fn equal_members_make_equal_rings_wherever_their_names_come_from() {
    let literal = build(RingSpec::new(members(["a", "b", "c"])));
    let read: Vec<Member> = "c,b,a"
        .split(',')
        .map(|name| Member::new(id(name)))
        .collect();
    assert_eq!(
        build(RingSpec::new(read)).fingerprint(),
        literal.fingerprint()
    );
    let owners: Vec<NodeIx> = (0..100)
        .map(|n| literal.owner_at(Position(n << 57)))
        .collect();
    let again = build(RingSpec::new(members(["a", "b", "c"])));
    assert!(
        (0..100)
            .zip(owners)
            .all(|(n, owner)| again.owner_at(Position(n << 57)) == owner)
    );
}

// 3rd-Eden/node-hashring#23: one library drops the default port from a server's label, another one does not.
#[test]
fn a_port_in_a_name_is_part_of_the_name_and_none_is_the_default() {
    assert!("cache:11211".parse::<NodeId>().is_err(), "an address");
    let names = [
        "cache",
        "cache-11211",
        "cache.11211",
        "cache-11212",
        "11211",
    ];
    let ring = build(RingSpec::new(members(names)));
    let mut positions: Vec<Position> = ring.points().map(|(at, _)| at).collect();
    positions.dedup();
    assert_eq!(positions.len(), 5 * 200, "no two names share a point");
    // Whoever drops the port has renamed the node, and the diff says who gets what it had.
    let before = build(RingSpec::new(members(["b", "c", "cache-11211"])));
    let after = build(RingSpec::new(members(["b", "c", "cache"])));
    let movement = diff(&before, &after).expect("one scheme").movement();
    let mut heirs = Vec::new();
    for flow in &movement.flows {
        let (source, target) = (flow.source.as_str(), flow.target.as_str());
        assert!(source == "cache-11211" || target == "cache", "{flow:?}");
        if source == "cache-11211" {
            heirs.push(target);
        }
    }
    assert_eq!(heirs, ["b", "c", "cache"]);
}

// haproxy/haproxy#870: one key was hashed differently by the protocol that it came with.
#[test]
fn a_key_is_its_bytes_and_nothing_else() {
    for scheme in [
        Scheme::default(),
        Scheme::v1(KeyHash::SipHash13 { key: [7; 16] }),
    ] {
        let ring = build(RingSpec {
            scheme,
            ..RingSpec::new(numbered(50))
        });
        let text = String::from("/User/42?q=%C3%A9\u{e9}\0\r\n");
        let mut buffer = vec![0xFF; 3];
        buffer.extend_from_slice(text.as_bytes());
        // Another alignment, another buffer, another capacity: the same bytes.
        assert_eq!(ring.position(&buffer[3..]), ring.position(text.as_bytes()));
        assert_eq!(ring.owner(&buffer[3..]), ring.owner(text.as_bytes()));
        // Nothing is trimmed, folded or decoded on the way.
        let shapes: [&[u8]; 9] = [
            b"user",
            b"User",
            b"user ",
            b" user",
            b"user\0",
            b"user\r\n",
            b"us%65r",
            b"/user",
            b"",
        ];
        let mut positions = shapes.map(|shape| ring.position(shape));
        positions.sort_unstable();
        assert!(positions.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
