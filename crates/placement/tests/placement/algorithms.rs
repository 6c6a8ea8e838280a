//! Rendezvous, jump, Maglev, modulo and bounded loads: against twins, published figures and each other.

use std::sync::Arc;

use clockwise_placement::{
    Algorithm, Edit, EditError, Jump, LoadBound, MAGLEV_SIZE_MAX, Maglev, Member, Modulo, NodeId,
    NodeIx, Owners, PlacementError, Position, Recipe, Rendezvous, Ring, RingSpec, Scheme, Slots,
    SlotsSpec, Weight, WhenFull, jump_hash, measure_keys,
};
use xxhash_rust::xxh64::xxh64;

use crate::seeded::{Random, rounds};

fn id(name: &str) -> NodeId {
    name.parse().expect("a short name")
}

fn nodes(count: usize) -> impl Iterator<Item = Member> {
    (0..count).map(|n| Member::new(id(&format!("node-{n:02}"))))
}

fn weighted(hundredths: &[u32]) -> Vec<Member> {
    let weigh =
        |(member, &weight): (Member, &u32)| member.with_weight(Weight::from_hundredths(weight));
    nodes(hundredths.len()).zip(hundredths).map(weigh).collect()
}

fn keys() -> impl Iterator<Item = String> {
    (0..50_000).map(|n| format!("user:{n}"))
}

/// One of each, with ten nodes.
fn all(count: usize) -> Vec<Box<dyn Algorithm>> {
    let scheme = Scheme::default;
    vec![
        Box::new(Ring::new(RingSpec::new(nodes(count))).expect("a ring")),
        Box::new(Slots::new(SlotsSpec::new(nodes(count))).expect("slots")),
        Box::new(Rendezvous::new(scheme(), nodes(count)).expect("nodes")),
        Box::new(Jump::new(scheme(), nodes(count)).expect("nodes")),
        Box::new(Maglev::new(scheme(), nodes(count), 65_537).expect("a table")),
        Box::new(Modulo::new(scheme(), nodes(count)).expect("nodes")),
    ]
}

#[test]
fn an_eleventh_node_takes_its_part_and_only_maglev_and_modulo_move_more() {
    for algorithm in all(10) {
        let name = algorithm.name();
        let join = Edit::Join(Member::new(id("node-10")));
        let after = algorithm.edited(&join).expect("all can grow");
        let measure = measure_keys(&*algorithm, Some(&*after), keys());
        let moves = measure.moves.expect("a change");
        let part = moves.moved as f64 / 50_000.0;
        match name {
            "modulo" => assert!(part > 0.9 && moves.needless > 0),
            "maglev" => assert!((0.09..0.11).contains(&part) && moves.needless > 0),
            _ => assert!(
                (0.08..0.1).contains(&part) && moves.needless == 0,
                "{name} {moves:?}"
            ),
        }
        let most = if name == "ring" { 1.25 } else { 1.05 };
        assert!(
            measure.max_over_mean < most,
            "{name} {}",
            measure.max_over_mean
        );
    }
}

#[test]
fn a_node_leaves_from_the_middle_where_the_algorithm_can() {
    for algorithm in all(10) {
        let name = algorithm.name();
        let middle = algorithm.edited(&Edit::Leave(id("node-04")));
        if name == "jump" {
            // zalando/skipper#1803: jump hash was used with shards that leave from the middle.
            let what = "remove a node that is not the last";
            assert_eq!(
                middle.err(),
                Some(EditError::Unsupported {
                    algorithm: "jump",
                    what
                })
            );
            let last = algorithm
                .edited(&Edit::Leave(id("node-09")))
                .expect("the last can go");
            let moves = measure_keys(&*algorithm, Some(&*last), keys())
                .moves
                .expect("a change");
            assert_eq!(moves.needless, 0);
            continue;
        }
        let after = middle.expect("any node can go");
        let moves = measure_keys(&*algorithm, Some(&*after), keys())
            .moves
            .expect("a change");
        assert_eq!(
            moves.needless == 0,
            !["maglev", "modulo"].contains(&name),
            "{name} {moves:?}"
        );
    }
}

// memcached/memcached#873: weights by percentage shifted servers that had nothing to do with the change.
#[test]
fn a_new_weight_touches_its_node_only() {
    for algorithm in all(10) {
        let name = algorithm.name();
        let heavier =
            algorithm.edited(&Edit::Reweight(id("node-04"), Weight::from_hundredths(200)));
        if ["jump", "modulo"].contains(&name) {
            let what = "weigh nodes";
            assert_eq!(
                heavier.err(),
                Some(EditError::Unsupported {
                    algorithm: name,
                    what
                })
            );
            continue;
        }
        let after = heavier.expect("it can be weighed");
        let moves = measure_keys(&*algorithm, Some(&*after), keys())
            .moves
            .expect("a change");
        let share = |of: &dyn Owners| measure_keys(of, None, keys()).nodes[4].share;
        assert!(
            (0.15..0.21).contains(&share(&*after)),
            "{name} {}",
            share(&*after)
        );
        if name != "maglev" {
            assert_eq!(moves.needless, 0, "{name}");
        }
    }
}

#[test]
fn an_edit_of_an_unknown_or_known_node_is_refused_by_all() {
    for algorithm in all(3) {
        let refusal = |edit: Edit| algorithm.edited(&edit).err().expect("this must be refused");
        let twice = refusal(Edit::Join(Member::new(id("node-00"))));
        let expected = PlacementError::DuplicateNode {
            node: id("node-00"),
        };
        assert_eq!(twice, EditError::Refused(expected), "{}", algorithm.name());
        let unknown = refusal(Edit::Leave(id("other")));
        assert!(!unknown.to_string().is_empty(), "{}", algorithm.name());
    }
}

#[test]
fn one_node_owns_everything_and_none_or_one_twice_is_refused_by_every_algorithm() {
    for algorithm in all(1) {
        let owners = keys()
            .take(1000)
            .map(|key| algorithm.owner_of(key.as_bytes()).get());
        assert!(owners.max() == Some(0), "{}", algorithm.name());
        let gone = algorithm.edited(&Edit::Leave(id("node-00"))).err();
        let nobody = EditError::Refused(PlacementError::NoMembers);
        assert_eq!(gone, Some(nobody), "{}", algorithm.name());
    }
    let refusals = |members: Vec<Member>| {
        let scheme = Scheme::default;
        [
            Ring::new(RingSpec::new(members.clone())).err(),
            Slots::new(SlotsSpec::new(members.clone())).err(),
            Rendezvous::new(scheme(), members.clone()).err(),
            Jump::new(scheme(), members.clone()).err(),
            Maglev::new(scheme(), members.clone(), 65_537).err(),
            Modulo::new(scheme(), members).err(),
        ]
    };
    let node = id("node-00");
    let all_refuse = |members, error: PlacementError| {
        let expected: [Option<PlacementError>; 6] = std::array::from_fn(|_| Some(error.clone()));
        assert_eq!(refusals(members), expected);
    };
    all_refuse(Vec::new(), PlacementError::NoMembers);
    let twice = nodes(2).chain(nodes(1)).collect();
    all_refuse(twice, PlacementError::DuplicateNode { node: node.clone() });
    all_refuse(weighted(&[0, 0, 0]), PlacementError::ZeroWeight { node });
}

#[test]
fn nodes_without_any_weight_are_refused_by_every_algorithm() {
    let nodes = || weighted(&[0, 0]);
    let scheme = Scheme::default;
    let refusals = [
        RingSpec::new(nodes()).build().err(),
        SlotsSpec::new(nodes()).plan(None).err(),
        Rendezvous::new(scheme(), nodes()).err(),
        Jump::new(scheme(), nodes()).err(),
        Maglev::new(scheme(), nodes(), 65_537).err(),
        Modulo::new(scheme(), nodes()).err(),
    ];
    let node = id("node-00");
    for refusal in refusals {
        let zero = PlacementError::ZeroWeight { node: node.clone() };
        assert_eq!(refusal, Some(zero));
    }
}

#[test]
fn a_node_too_light_for_a_maglev_entry_is_named_and_a_light_one_owns_little_elsewhere() {
    let members = || weighted(&[100_000_000, 100]);
    let light = PlacementError::NoTableEntry {
        node: id("node-01"),
        weight: Weight::ONE,
        size: 65_537,
    };
    let maglev = Maglev::new(Scheme::default(), members(), 65_537);
    assert_eq!(maglev.err(), Some(light));
    let nodes = Rendezvous::new(Scheme::default(), members()).expect("it draws by weight");
    let owners = keys().map(|key| nodes.owner_of(key.as_bytes()).get());
    assert!(owners.sum::<usize>() < 5, "a millionth of the keys");
}

#[test]
fn numbered_nodes_of_unequal_weight_or_none_are_refused() {
    let refused = |algorithm, nodes| match algorithm {
        "jump" => Jump::new(Scheme::default(), nodes).err(),
        _ => Modulo::new(Scheme::default(), nodes).err(),
    };
    for algorithm in ["jump", "modulo"] {
        let refusal = |nodes: Vec<Member>| refused(algorithm, nodes);
        let unequal = PlacementError::UnequalWeights {
            algorithm,
            node: id("node-02"),
            weight: Weight::from_hundredths(150),
            other: id("node-00"),
            other_weight: Weight::ONE,
        };
        assert_eq!(refusal(weighted(&[100, 100, 150])), Some(unequal.clone()));
        assert_eq!(
            unequal.to_string(),
            format!("{algorithm} cannot weigh nodes: node-02 has weight 1.5, node-00 has 1")
        );
        assert_eq!(refusal(weighted(&[200, 200])), None, "equal is equal");
        let node = id("node-00");
        let zero = PlacementError::ZeroWeight { node };
        assert_eq!(refusal(weighted(&[0, 0])), Some(zero));
        assert_eq!(refusal(Vec::new()), Some(PlacementError::NoMembers));
    }
    let jump = Jump::new(Scheme::default(), nodes(3)).expect("equal nodes");
    let heavy = Member::new(id("node-03")).with_weight(Weight::from_hundredths(200));
    let refusal = jump
        .edited(&Edit::Join(heavy))
        .err()
        .expect("it is heavier");
    assert!(
        refusal
            .to_string()
            .starts_with("jump cannot weigh nodes: node-03"),
        "{refusal}"
    );
}

#[test]
fn replicas_are_distinct_and_the_owner_comes_first_or_there_are_none() {
    for algorithm in all(5) {
        let mut replicas = [NodeIx::clone(&algorithm.owner_of(b"user:1")); 8];
        let found = algorithm.replicas_of(b"user:42", &mut replicas);
        let has_none = ["jump", "maglev", "modulo"].contains(&algorithm.name());
        assert_eq!(found, (!has_none).then_some(5), "{}", algorithm.name());
        if let Some(found) = found {
            assert_eq!(replicas[0], algorithm.owner_of(b"user:42"));
            let replicas = &replicas[..found];
            assert!((1..found).all(|at| !replicas[..at].contains(&replicas[at])));
        }
    }
}

// whitfin/jumper#1: a port of jump hash starved the last two buckets.
#[test]
fn jump_agrees_with_the_c_and_java_libraries_and_the_published_values() {
    let mut lines = include_str!("../golden/jump.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let numbers = |line: &str| {
        line.split(' ')
            .skip(1)
            .map(|n| n.parse().expect("a number"))
            .collect()
    };
    let buckets: Vec<u32> = numbers(lines.next().expect("a header"));
    let mut checked = 0;
    for line in lines {
        let key = line
            .split(' ')
            .next()
            .and_then(|key| key.parse().ok())
            .expect("a key");
        let expected: Vec<u32> = numbers(line);
        let found: Vec<u32> = buckets
            .iter()
            .map(|&buckets| jump_hash(key, buckets))
            .collect();
        assert_eq!(found, expected, "key {key}");
        checked += found.len();
    }
    assert_eq!(checked, 2200);
    // Published in the tests of Guava and go-jump.
    let golden = [
        0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83,
    ];
    assert!(
        (0..)
            .zip(golden)
            .all(|(key, bucket)| jump_hash(key, 100) == bucket)
    );
    let far = [
        (10_863_919_174_838_991, 11, 6),
        (2_016_238_256_797_177_309, 11, 3),
        (2201, 100_001, 22_152),
    ];
    assert!(
        far.iter()
            .all(|&(key, buckets, bucket)| jump_hash(key, buckets) == bucket)
    );
}

/// A recipe whose node positions are given, to follow published examples.
struct Given(fn(&NodeId, u32) -> u64);

impl Recipe for Given {
    fn name(&self) -> &str {
        "given"
    }

    fn key(&self, key: &[u8]) -> Position {
        Scheme::default().position(key)
    }

    fn point(&self, node: &NodeId, copy: u32) -> Position {
        Position(self.0(node, copy))
    }
}

fn table(scheme: Given, names: &[&str], size: u32) -> Vec<String> {
    let members = names.iter().map(|name| Member::new(id(name)));
    let maglev = Maglev::new(Scheme::foreign(Arc::new(scheme)), members, size).expect("a table");
    let placement = maglev.placement();
    placement
        .points()
        .map(|(_, node)| placement.node(node).id.to_string())
        .collect()
}

#[test]
fn maglev_fills_the_tables_of_its_paper_and_of_a_proxy() {
    // The paper's example: offsets 3, 0, 3 and skips 4, 2, 1.
    let paper = || {
        Given(|node, copy| match (node.as_str(), copy) {
            ("B0", 0) | ("B2", 0) | ("B0", 1) => 3,
            ("B1", 1) => 1,
            _ => 0,
        })
    };
    let three = table(paper(), &["B0", "B1", "B2"], 7);
    assert_eq!(three, ["B1", "B0", "B1", "B0", "B2", "B2", "B0"]);
    assert_eq!(
        table(paper(), &["B0", "B2"], 7),
        ["B0", "B0", "B0", "B0", "B2", "B2", "B2"]
    );
    // Published in the tests of Envoy.
    let envoy = Given(|node, copy| xxh64(node.as_str().as_bytes(), copy.into()));
    let names = ["90", "91", "92", "93", "94", "95"];
    let expected = [2, 5, 0, 3, 4, 1, 0].map(|host| names[host]);
    assert_eq!(table(envoy, &names, 7), expected);
}

#[test]
fn maglev_gives_entries_by_weight_to_within_a_turn() {
    let maglev =
        Maglev::new(Scheme::default(), weighted(&[100, 200, 50, 150]), 4999).expect("a table");
    let counts = maglev
        .placement()
        .balance()
        .loads
        .iter()
        .map(|load| load.share * 4999.0)
        .collect::<Vec<_>>();
    for (count, weight) in counts.iter().zip([100.0, 200.0, 50.0, 150.0]) {
        assert!((count - 4999.0 * weight / 500.0).abs() < 2.0, "{counts:?}");
    }
}

#[test]
fn maglev_moves_little_more_than_it_must_with_a_thousand_entries_a_node() {
    let moved = |size| {
        let before = Maglev::new(Scheme::default(), nodes(100), size).expect("a table");
        let after = Maglev::new(Scheme::default(), nodes(99), size).expect("a table");
        let diff =
            clockwise_placement::diff(before.placement(), after.placement()).expect("one scheme");
        diff.movement().primaries_share()
    };
    assert_eq!(Maglev::size_for(100), 100_003);
    let (small, large) = (moved(9973), moved(100_003));
    assert!(
        small > 0.02 && (0.0101..0.016).contains(&large),
        "{small} {large}"
    );
}

#[test]
fn a_maglev_table_that_is_no_prime_too_small_or_too_large_is_refused_with_one_that_does() {
    let refusal =
        |size| Maglev::new(Scheme::default(), nodes(20), size).expect_err("no such table");
    for (size, next) in [
        (65_536, 65_537),
        (1, 23),
        (19, 23),
        (0, 23),
        (u32::MAX, MAGLEV_SIZE_MAX),
    ] {
        assert_eq!(refusal(size), PlacementError::TableSize { size, next });
        assert!(
            Maglev::new(Scheme::default(), nodes(20), next).is_ok(),
            "{next}"
        );
    }
    let zero =
        Maglev::new(Scheme::default(), weighted(&[100, 0]), 7).expect_err("a node without weight");
    assert_eq!(
        zero,
        PlacementError::ZeroWeight {
            node: id("node-01")
        }
    );
}

/// Rendezvous as one would tell it, with the platform's logarithm.
fn drawn(members: &[Member], position: u64) -> Vec<usize> {
    let mix = |mut x: u64| {
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    };
    let draw = |member: &Member| {
        let hash = mix(position ^ Scheme::default().point(&member.id, 0).0);
        -(hash as f64 / 2_f64.powi(64)).ln() / f64::from(member.weight.hundredths())
    };
    let mut ranked: Vec<usize> = (0..members.len()).collect();
    ranked.sort_by(|&a, &b| draw(&members[a]).total_cmp(&draw(&members[b])));
    ranked
}

#[test]
fn rendezvous_ranks_nodes_as_the_logarithm_of_their_draws_does() {
    rounds("rendezvous_ranks_nodes", 200, |random: &mut Random| {
        let weights: Vec<u32> = (0..1 + random.below(20))
            .map(|_| 1 + random.below(500) as u32)
            .collect();
        let members = weighted(&weights);
        let rendezvous = Rendezvous::new(Scheme::default(), members.clone()).expect("nodes");
        for _ in 0..50 {
            let position = random.next();
            let expected = drawn(&members, position);
            let found: Vec<usize> = rendezvous
                .preference(Position(position))
                .map(NodeIx::get)
                .collect();
            assert_eq!(found, expected, "at {position}");
            assert_eq!(rendezvous.owner_at(Position(position)).get(), expected[0]);
        }
    });
}

#[test]
fn rendezvous_meets_weights_and_equal_ones_change_nothing() {
    let members = weighted(&[100, 200, 50, 150]);
    let rendezvous = Rendezvous::new(Scheme::default(), members).expect("nodes");
    let measure = measure_keys(&rendezvous, None, (0..200_000).map(|n| format!("key:{n}")));
    for (node, share) in measure.nodes.iter().zip([0.2, 0.4, 0.1, 0.3]) {
        assert!((node.share - share).abs() < 0.005, "{node:?}");
    }
    let plain = Rendezvous::new(Scheme::default(), nodes(7)).expect("nodes");
    let doubled = Rendezvous::new(Scheme::default(), weighted(&[200; 7])).expect("nodes");
    assert!(keys().all(|key| plain.owner_of(key.as_bytes()) == doubled.owner_of(key.as_bytes())));
}

#[test]
fn rendezvous_spreads_replicas_over_zones() {
    let zoned = nodes(6)
        .enumerate()
        .map(|(n, member)| member.with_domain(format!("z{}", n % 3).parse().expect("a path")));
    let rendezvous = Rendezvous::new(Scheme::default(), zoned).expect("nodes");
    for position in (0..1000).map(|n| Position(n << 54)) {
        let zones: Vec<_> = rendezvous
            .preference(position)
            .map(|node| node.get() % 3)
            .collect();
        for three in zones.chunks(3) {
            let mut three = three.to_vec();
            three.sort_unstable();
            assert_eq!(three, [0, 1, 2], "{zones:?}");
        }
    }
}

fn ring(count: usize) -> clockwise_placement::Placement {
    RingSpec::new(nodes(count)).build().expect("a sound ring")
}

// buraksezer/consistent#8: a 'bounded load' that never looked at real load.
#[test]
fn a_slow_node_spills_its_requests_to_the_next_ones_preferred() {
    let ring = ring(5);
    let bound = LoadBound::percent(125, WhenFull::Owner).expect("at least the mean");
    let slow = ring.owner_at(Position(7));
    // Its requests pile up, the others are served at once.
    let loads = |node: NodeIx| if node == slow { 50 } else { 1 };
    let chosen = bound.choose(ring.nodes(), ring.preference(Position(7)), 55, loads);
    let second = ring.preference(Position(7)).nth(1).expect("another node");
    let chosen = chosen.expect("somebody has room");
    assert_eq!(
        (chosen.node, chosen.passed, chosen.is_within),
        (second, 1, true)
    );
}

#[test]
fn no_node_exceeds_its_bound_whatever_the_keys() {
    for percent in [100, 110, 125, 200] {
        let ring = ring(10);
        let bound = LoadBound::percent(percent, WhenFull::Nobody).expect("at least the mean");
        let mut loads = [0u64; 10];
        for request in 1..=5000u64 {
            // Every second request is for one key.
            let key = if request % 2 == 0 {
                "hot".to_owned()
            } else {
                format!("key:{request}")
            };
            let preference = ring.preference(ring.position(key.as_bytes()));
            let load = |node: NodeIx| loads[node.get()];
            let chosen = bound
                .choose(ring.nodes(), preference, request, load)
                .expect("room for all");
            loads[chosen.node.get()] += 1;
            let most = (u64::from(percent) * request).div_ceil(1000);
            assert!(
                loads.iter().all(|&load| load <= most),
                "{loads:?} above {most}"
            );
        }
    }
}

#[test]
fn when_all_nodes_are_full_the_policy_answers_after_one_lap() {
    let members = weighted(&[100, 300, 100]);
    let ring = RingSpec::new(members).build().expect("a sound ring");
    let choose = |when_full| {
        let bound = LoadBound::percent(100, when_full).expect("the mean");
        let asked = std::cell::Cell::new(0);
        let load = |node: NodeIx| {
            asked.set(asked.get() + 1);
            [900, 2000, 800][node.get()]
        };
        let chosen = bound.choose(ring.nodes(), ring.preference(Position(7)), 10, load);
        assert_eq!(asked.get(), 3, "each node is asked once");
        assert!(chosen.is_none_or(|chosen| !chosen.is_within));
        chosen.map(|chosen| chosen.node)
    };
    assert_eq!(choose(WhenFull::Owner), Some(ring.owner_at(Position(7))));
    assert_eq!(
        choose(WhenFull::LeastLoaded).map(NodeIx::get),
        Some(1),
        "it weighs three times as much"
    );
    assert_eq!(choose(WhenFull::Nobody), None);
    assert_eq!(LoadBound::percent(99, WhenFull::Owner), None);
}

// lafikl/consistent#13: counting for a host that was removed meanwhile panicked.
#[test]
fn a_node_removed_with_requests_in_flight_is_no_longer_asked() {
    let mut ring = Ring::new(RingSpec::new(nodes(3))).expect("a ring");
    let in_flight = |node: &NodeId| if *node == id("node-01") { 100 } else { 2 };
    ring.remove_node(&id("node-01")).expect("a member");
    let now = ring.placement();
    let bound = LoadBound::percent(125, WhenFull::Owner).expect("at least the mean");
    let total: u64 = now
        .nodes()
        .iter()
        .map(|member| in_flight(&member.id))
        .sum::<u64>()
        + 1;
    let load = |node: NodeIx| in_flight(&now.node(node).id);
    for position in (0..100).map(|n| Position(n << 57)) {
        let chosen = bound.choose(now.nodes(), now.preference(position), total, load);
        assert!(chosen.expect("room").is_within);
    }
}
