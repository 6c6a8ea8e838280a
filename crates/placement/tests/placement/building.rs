//! What is refused when a placement is built, what is reported, and what a slot table means.

use clockwise_placement::{
    Interval, MEMBERS_MAX, Member, NodeId, NodeIx, Placement, PlacementError, Point, Position,
    RingSpec, Scheme, Shortfall, Spread, Weight, diff, modulo_moved_share,
};

fn id(name: &str) -> NodeId {
    name.parse().expect("a short name")
}

/// Members written as `name`, `name=weight` or `name@domain`.
fn members<const N: usize>(texts: [&str; N]) -> Vec<Member> {
    let member = |text: &str| {
        let (rest, domain) = text.split_once('@').unwrap_or((text, ""));
        let (name, weight) = rest.split_once('=').unwrap_or((rest, "1"));
        Member::new(id(name))
            .with_weight(weight.parse().expect("a weight"))
            .with_domain(domain.parse().expect("a path"))
    };
    texts.map(member).into()
}

fn spec<const N: usize>(texts: [&str; N], replicas: u8) -> RingSpec {
    RingSpec {
        replicas,
        ..RingSpec::new(members(texts))
    }
}

fn refusal(spec: RingSpec) -> PlacementError {
    spec.build().expect_err("this must not build")
}

// dgryski/go-rendezvous#1: a lookup on no nodes panicked.
#[test]
fn a_ring_of_no_members_is_refused() {
    assert_eq!(refusal(spec([], 1)), PlacementError::NoMembers);
}

#[test]
fn a_name_given_twice_is_refused_with_the_name() {
    let twice = refusal(spec(["b", "a", "b"], 1));
    assert_eq!(twice, PlacementError::DuplicateNode { node: id("b") });
    assert_eq!(twice.to_string(), "node b is given twice");
}

#[test]
fn a_member_of_weight_zero_is_refused_also_when_all_are() {
    let zero = PlacementError::ZeroWeight { node: id("b") };
    assert_eq!(refusal(spec(["a", "b=0"], 1)), zero);
    assert_eq!(refusal(spec(["b=0"], 1)), zero);
}

#[test]
fn a_key_needs_at_least_one_owner() {
    assert_eq!(refusal(spec(["a"], 0)), PlacementError::ZeroReplicas);
}

#[test]
fn domains_of_unequal_depth_are_refused_with_both_nodes() {
    let expected = PlacementError::UnevenDomains {
        node: id("b"),
        depth: 2,
        other: id("a"),
        other_depth: 1,
    };
    assert_eq!(refusal(spec(["a@eu", "b@eu/1b"], 1)), expected);
}

#[test]
fn a_weight_without_a_whole_number_of_points_is_refused() {
    let uneven = |points_per_weight, weight: &str| PlacementError::UnevenPoints {
        node: id("a"),
        weight: weight.parse().expect("a weight"),
        points_per_weight,
    };
    for (unit, weight, text) in [(1, "1.5", "a=1.5"), (10, "0.01", "a=0.01"), (0, "1", "a=1")] {
        let refused = refusal(RingSpec {
            points_per_weight: unit,
            ..spec([text], 1)
        });
        assert_eq!(refused, uneven(unit, weight));
    }
    let whole = RingSpec {
        points_per_weight: 2,
        ..spec(["a=1.5"], 1)
    };
    assert_eq!(whole.build().expect("three points").point_count(), 3);
}

// nginx/nginx#191: a weight of 1,000,000 beside 1 ate gigabytes.
#[test]
fn too_many_points_are_refused_with_the_unit_that_keeps_the_ratios() {
    let refused = refusal(spec(["a=1000000", "b=1"], 1));
    let expected = PlacementError::TooManyPoints {
        points: 200_000_200,
        points_per_weight: 200,
        points_per_weight_max: Some(3),
    };
    assert_eq!(refused, expected);
    let fitting = RingSpec {
        points_per_weight: 3,
        ..spec(["a=1000000", "b=1"], 1)
    };
    assert_eq!(
        fitting.build().expect("it was said to fit").point_count(),
        3_000_003
    );
    let hopeless = refusal(spec(["a=42949672.95", "b=0.01"], 1));
    assert!(matches!(
        hopeless,
        PlacementError::TooManyPoints {
            points_per_weight_max: None,
            ..
        }
    ));
}

#[test]
fn ten_thousand_members_are_the_most() {
    let named = |count: usize| (0..count).map(|n| Member::new(id(&format!("n{n}"))));
    let spec = |count| RingSpec {
        points_per_weight: 1,
        ..RingSpec::new(named(count))
    };
    assert_eq!(
        spec(MEMBERS_MAX)
            .build()
            .expect("as many as fit")
            .point_count(),
        MEMBERS_MAX
    );
    let refused = refusal(spec(MEMBERS_MAX + 1));
    assert_eq!(
        refused,
        PlacementError::TooManyMembers {
            members: MEMBERS_MAX + 1
        }
    );
}

#[test]
fn a_point_of_nobody_and_a_ring_without_points_are_refused() {
    let from = |points: &[Point]| {
        Placement::from_points(Scheme::default(), members(["a"]), 1, points.iter().copied())
    };
    let point = Point {
        position: Position(1),
        member: 1,
    };
    let unknown = PlacementError::UnknownMember {
        member: 1,
        members: 1,
    };
    assert_eq!(from(&[point]).expect_err("nobody"), unknown);
    assert_eq!(from(&[]).expect_err("nothing"), PlacementError::NoPoints);
}

// thanos-io/thanos#5639: with fewer nodes than replicas the building of a ring never ended.
#[test]
fn fewer_nodes_than_replicas_give_a_shorter_list_and_a_shortfall() {
    let ring = spec(["a", "b"], 3)
        .build()
        .expect("it is reported, not refused");
    assert_eq!(ring.replicas(b"user:42").len(), 2);
    let shortfall = ring.shortfall_at(Position(7));
    assert_eq!(
        shortfall,
        Shortfall {
            nodes: 1,
            domains: [0; 4]
        }
    );
    assert!(!shortfall.is_none());
    // One more leaves.
    let mut live = clockwise_placement::Ring::new(spec(["a", "b"], 3)).expect("a sound ring");
    live.remove_node(&id("a")).expect("a member");
    let alone = live.placement();
    assert_eq!(alone.replicas(b"user:42").len(), 1);
    assert_eq!(alone.preference(Position(7)).count(), 1);
    assert_eq!(alone.shortfall_at(Position(7)).nodes, 2);
    let strict = RingSpec {
        spread: Spread::Distinct { depth: 0 },
        ..spec(["a", "b"], 3)
    };
    assert_eq!(
        refusal(strict),
        PlacementError::TooFewNodes {
            replicas: 3,
            nodes: 2
        }
    );
}

#[test]
fn strict_spread_refuses_replicas_that_share_a_domain_of_the_depth() {
    let strict = |depth, replicas| RingSpec {
        spread: Spread::Distinct { depth },
        ..spec(["a@eu/1a", "b@eu/1a", "c@eu/1b", "d@eu/1c"], replicas)
    };
    assert!(strict(2, 3).build().is_ok());
    let shared = |domains, depth, replicas| PlacementError::TooFewDomains {
        replicas,
        domains,
        depth,
    };
    assert_eq!(refusal(strict(2, 4)), shared(3, 2, 4));
    assert_eq!(refusal(strict(1, 2)), shared(1, 1, 2));
    // Nobody said on which racks the nodes are.
    assert_eq!(refusal(strict(3, 2)), shared(1, 3, 2));
    assert!(strict(0, 4).build().is_ok());
}

// troubling/hummingbird#644: with no more zones than replicas, of unequal size, replicas were spread badly.
#[test]
fn zones_of_five_one_and_one_hold_one_replica_each_at_every_position() {
    let zones = ["a@1", "b@1", "c@1", "d@1", "e@1", "f@2", "g@3"];
    let ring = spec(zones, 3).build().expect("a sound ring");
    for (position, _) in ring.points() {
        assert!(ring.shortfall_at(position).is_none());
    }
    // The price is the load of the small zones: each of their nodes holds every key.
    let copies = ring.balance_of_copies();
    let share = |node: &str| copies.loads[ring.index_of(&id(node)).expect("a member").get()].amount;
    assert_eq!((share("f"), share("g")), (1 << 64, 1 << 64));
}

// troubling/hummingbird#644, where there are fewer zones than replicas.
#[test]
fn three_replicas_over_two_zones_are_two_and_one_at_every_position_and_the_missing_zone_is_told() {
    let ring = spec(["a@1", "b@1", "c@1", "d@2", "e@2"], 3)
        .build()
        .expect("a sound ring");
    for (position, _) in ring.points() {
        let zones = ring.replicas_at(position).iter();
        let in_first = zones.filter(|node| ring.node(**node).domain.as_str() == "1");
        assert!((1..=2).contains(&in_first.count()), "{position}");
        let one_zone = Shortfall {
            nodes: 0,
            domains: [1, 0, 0, 0],
        };
        assert_eq!(ring.shortfall_at(position), one_zone);
    }
}

// rook/rook#12529: six replicas over three zones of two hosts could not be placed.
#[test]
fn six_replicas_over_three_zones_of_two_racks_use_every_rack_once() {
    let mut nodes = Vec::new();
    for zone in ["x", "y", "z"] {
        for rack in ["r1", "r2"] {
            for host in ["h1", "h2"] {
                let domain = format!("{zone}/{rack}").parse().expect("a path");
                nodes.push(Member::new(id(&format!("{zone}-{rack}-{host}"))).with_domain(domain));
            }
        }
    }
    let ring = RingSpec {
        replicas: 6,
        ..RingSpec::new(nodes)
    }
    .build()
    .expect("a sound ring");
    for (position, _) in ring.points() {
        assert_eq!(
            ring.shortfall_at(position),
            Shortfall {
                nodes: 0,
                domains: [3, 0, 0, 0]
            }
        );
    }
}

#[test]
fn a_domain_of_one_small_node_costs_no_long_walks() {
    // 400,000 points in one zone and 2 in the other: walking to it from each point would take minutes.
    let big = (0..20).map(|n| Member::new(id(&format!("big-{n}"))).with_weight(weight("100")));
    let zoned = |member: Member, zone: &str| member.with_domain(zone.parse().expect("a path"));
    let mut nodes: Vec<Member> = big.map(|member| zoned(member, "big")).collect();
    nodes.push(zoned(
        Member::new(id("small")).with_weight(weight("0.01")),
        "small",
    ));
    let ring = RingSpec {
        replicas: 2,
        ..RingSpec::new(nodes)
    }
    .build()
    .expect("a sound ring");
    let small = ring.index_of(&id("small")).expect("a member");
    assert!(ring.intervals().all(|(_, owners)| owners.contains(&small)));
}

fn weight(text: &str) -> Weight {
    text.parse().expect("a weight")
}

#[test]
fn a_slot_table_names_members_as_they_are_given_not_as_they_are_sorted() {
    let table = [0, 1, 1, 2, 2, 0];
    let slots = Placement::from_slots(Scheme::default(), members(["c", "a", "b"]), 2, 3, &table);
    let slots = slots.expect("a sound table");
    let owners = |position| {
        let names = slots
            .replicas_at(Position(position))
            .iter()
            .map(|&node| slots.node(node));
        names
            .map(|member| member.id.to_string())
            .collect::<Vec<_>>()
    };
    let third = u64::MAX / 3;
    assert_eq!(owners(0), ["c", "a"]);
    assert_eq!(owners(third), ["c", "a"]);
    assert_eq!(owners(third + 1), ["a", "b"]);
    assert_eq!(owners(u64::MAX), ["b", "c"]);
    assert_eq!(
        slots
            .intervals()
            .map(|(interval, _)| interval.len())
            .sum::<u128>(),
        1 << 64
    );
}

#[test]
fn a_slot_table_of_another_shape_or_with_a_node_twice_is_refused() {
    let build = |replicas, slots, table: &[u16]| {
        Placement::from_slots(
            Scheme::default(),
            members(["a", "b"]),
            replicas,
            slots,
            table,
        )
        .expect_err("this must not build")
    };
    let shape = |entries, expected| PlacementError::TableShape { entries, expected };
    assert_eq!(build(1, 2, &[0]), shape(1, 2));
    assert_eq!(build(3, 2, &[0, 1, 1, 0, 1, 0]), shape(6, 4));
    assert_eq!(build(1, 0, &[]), PlacementError::SlotCount { slots: 0 });
    assert_eq!(
        build(1, 65_537, &[0; 65_537]),
        PlacementError::SlotCount { slots: 65_537 }
    );
    assert_eq!(
        build(1, 1, &[2]),
        PlacementError::UnknownMember {
            member: 2,
            members: 2
        }
    );
    let twice = PlacementError::RepeatedOwner {
        slot: 1,
        node: id("b"),
    };
    assert_eq!(build(2, 2, &[0, 1, 1, 1]), twice);
}

#[test]
fn slots_and_the_ring_of_their_ends_are_the_same_placement() {
    let table = [0, 1, 2, 1];
    let nodes = || members(["a", "b", "c"]);
    let slots = Placement::from_slots(Scheme::default(), nodes(), 1, 4, &table).expect("a table");
    let ends = slots.points().zip(&table);
    let points = ends.map(|((position, _), &member)| Point {
        position,
        member: member.into(),
    });
    let ring = Placement::from_points(Scheme::default(), nodes(), 1, points).expect("a ring");
    assert!(diff(&slots, &ring).expect("one scheme").is_empty());
    assert_eq!(slots.fingerprint(), ring.fingerprint());
    let quarter = Interval {
        after: Position(u64::MAX),
        through: Position((1 << 62) - 1),
    };
    assert_eq!(ring.interval_at(Position(0)).interval, quarter);
}

#[test]
fn a_change_of_slots_moves_what_the_tables_say() {
    let nodes = || members(["a", "b", "c", "d"]);
    let build = |table: &[u16]| Placement::from_slots(Scheme::default(), nodes(), 2, 2, table);
    let old = build(&[0, 1, 2, 3]).expect("a table");
    let new = build(&[1, 0, 2, 0]).expect("a table");
    let movement = diff(&old, &new).expect("one scheme").movement();
    // Slot 0 only changes its order; in slot 1 node d hands its copy to node a.
    assert_eq!(
        (movement.primaries, movement.copies, movement.copies_least),
        (1 << 63, 1 << 63, 1 << 63)
    );
    let flow = |source: &str, target: &str| {
        let of = |flow: &&clockwise_placement::Flow| {
            (flow.source.as_str(), flow.target.as_str()) == (source, target)
        };
        movement
            .flows
            .iter()
            .find(of)
            .map(|flow| (flow.primaries, flow.copies, flow.needless))
    };
    assert_eq!(flow("a", "b"), Some((1 << 63, 0, true)));
    assert_eq!(flow("d", "a"), Some((0, 1 << 63, true)));
    assert_eq!(movement.flows.len(), 2);
}

#[test]
fn placements_of_different_schemes_are_not_compared_by_position() {
    let seeded = |seed| {
        let scheme = Scheme::v1(clockwise_placement::KeyHash::Xxh3 { seed });
        RingSpec {
            scheme,
            ..spec(["a", "b"], 1)
        }
        .build()
        .expect("a sound ring")
    };
    assert!(diff(&seeded(0), &seeded(1)).is_err());
    assert_ne!(seeded(0).fingerprint(), seeded(1).fingerprint());
}

#[test]
fn two_nodes_whose_loss_is_weighed_inherit_from_each_other() {
    let ring = spec(["a", "b"], 1).build().expect("a sound ring");
    for loss in ring.losses() {
        let other = NodeIx::get(loss.worst.expect("the other one"));
        assert_eq!((loss.heirs, other), (1, 1 - loss.node.get()));
        assert!((loss.worst_over_mean - 2.0).abs() < 1e-9);
    }
    let alone = spec(["a"], 1).build().expect("a sound ring");
    assert_eq!(alone.losses()[0].worst, None);
}

#[test]
fn losing_one_of_ten_nodes_of_two_hundred_points_leaves_nine_heirs() {
    let nodes = (0..10).map(|n| Member::new(id(&format!("cache-{n}"))));
    let ring = RingSpec::new(nodes).build().expect("a sound ring");
    for loss in ring.losses() {
        assert_eq!(loss.heirs, 9);
        assert!((1.1..1.5).contains(&loss.worst_over_mean), "{loss:?}");
    }
}

#[test]
fn modulo_moves_all_but_the_residues_that_agree() {
    for (before, after) in [(4, 5), (10, 11), (6, 4), (1, 2), (7, 7), (12, 18)] {
        let circle: usize = 12 * 11 * 10 * 7 * 18;
        let stay = (0..circle)
            .filter(|key| key % before == key % after)
            .count();
        let moved = 1.0 - stay as f64 / circle as f64;
        assert!((modulo_moved_share(before, after) - moved).abs() < 1e-12);
    }
}
