//! Members, zones and numbers that planned slots cannot do justice to: refused by name, or with what is missing told.

use clockwise_placement::{Hint, Member, PlacementError, Shortfall, SlotsSpec, Spread};

use crate::slots_plan::{check, members, plan, spec};

#[test]
fn a_name_given_twice_and_domains_of_unequal_depth_are_refused_with_the_nodes() {
    let refusal = |nodes| {
        spec(8, 1, nodes)
            .plan(None)
            .expect_err("this cannot be planned")
    };
    let node = || "a".parse().expect("a name");
    assert_eq!(
        refusal(members(["a", "b", "a"])),
        PlacementError::DuplicateNode { node: node() }
    );
    let uneven = refusal(members(["a@x", "b@x/y"]));
    assert!(
        matches!(uneven, PlacementError::UnevenDomains { .. }),
        "{uneven}"
    );
}

#[test]
fn one_node_owns_every_slot_and_its_loss_leaves_nobody() {
    let spec = spec(8, 3, members(["a"]));
    let plan = plan(&spec, None);
    check(&plan, &spec, None);
    assert_eq!((plan.nodes[0].copies, plan.optimum_over_mean), (8, 1.0));
    let missing = plan
        .placement
        .shortfall_at(clockwise_placement::Position(0));
    assert_eq!(missing.nodes, 2);
}

#[test]
fn more_replicas_than_nodes_give_each_slot_to_all_and_the_rest_is_told() {
    let spec = spec(16, 5, members(["a", "b=3", "c"]));
    let plan = plan(&spec, None);
    check(&plan, &spec, None);
    for (interval, owners) in plan.placement.intervals() {
        assert_eq!(owners.len(), 3);
        assert_eq!(plan.placement.shortfall_at(interval.through).nodes, 2);
    }
}

#[test]
fn zones_of_five_one_and_one_hold_one_copy_of_each_slot_and_the_price_is_told() {
    let zones = members(["a@1", "b@1", "c@1", "d@1", "e@1", "f@2", "g@3"]);
    let spec = spec(60, 3, zones);
    let plan = plan(&spec, None);
    check(&plan, &spec, None);
    for (interval, _) in plan.placement.intervals() {
        assert!(plan.placement.shortfall_at(interval.through).is_none());
    }
    let copies: Vec<usize> = plan.nodes.iter().map(|node| node.copies).collect();
    assert_eq!(copies, [12, 12, 12, 12, 12, 60, 60]);
    assert!((plan.optimum_over_mean - 7.0 / 3.0).abs() < 1e-9);
    let strained = |domain: &str| Hint::DomainStrained {
        domain: domain.to_owned(),
        copies: 1,
    };
    assert!(plan.hints.contains(&strained("2")) && plan.hints.contains(&strained("3")));
}

#[test]
fn three_copies_over_two_zones_are_two_and_one_and_the_missing_zone_is_told() {
    let spec = spec(60, 3, members(["a@1", "b@1", "c@1", "d@2", "e@2"]));
    let plan = plan(&spec, None);
    check(&plan, &spec, None);
    for (interval, _) in plan.placement.intervals() {
        let one_zone = Shortfall {
            nodes: 0,
            domains: [1, 0, 0, 0],
        };
        assert_eq!(plan.placement.shortfall_at(interval.through), one_zone);
    }
    let strict = SlotsSpec {
        spread: Spread::Distinct { depth: 1 },
        ..spec
    };
    let refused = strict.plan(None).expect_err("there are two zones");
    assert!(
        matches!(refused, PlacementError::TooFewDomains { domains: 2, .. }),
        "{refused}"
    );
}

#[test]
fn six_copies_over_three_zones_of_two_racks_use_every_rack_once() {
    let nodes: Vec<Member> = ["x", "y", "z"]
        .iter()
        .flat_map(|zone| ["r1", "r2"].map(|rack| (zone, rack)))
        .flat_map(|(zone, rack)| ["h1", "h2"].map(|host| (zone, rack, host)))
        .map(|(zone, rack, host)| {
            let name = format!("{zone}-{rack}-{host}").parse().expect("a name");
            Member::new(name).with_domain(format!("{zone}/{rack}").parse().expect("a path"))
        })
        .collect();
    let plan = plan(&spec(64, 6, nodes), None);
    for (interval, owners) in plan.placement.intervals() {
        let mut racks: Vec<_> = owners
            .iter()
            .map(|&owner| plan.placement.node(owner).domain.as_str())
            .collect();
        racks.sort_unstable();
        racks.dedup();
        assert_eq!(racks.len(), 6, "{interval:?}");
    }
    assert!(plan.nodes.iter().all(|node| node.copies == 32));
}

#[test]
fn the_heaviest_node_beside_the_lightest_takes_all_and_both_are_planned_at_once() {
    for heaviest in ["1000000", "42949672.95"] {
        let pair = || members([&format!("a={heaviest}"), "b=0.01"]);
        let spec = spec(4096, 1, pair());
        let plan = plan(&spec, None);
        check(&plan, &spec, None);
        let light = plan.nodes[1];
        assert!(light.copies <= 1 && light.target < 1e-3, "{light:?}");
        // With two copies each holds all there is, whatever its weight.
        let both = crate::slots_plan::spec(64, 2, pair());
        let both = crate::slots_plan::plan(&both, None);
        assert_eq!((both.nodes[0].copies, both.nodes[1].copies), (64, 64));
    }
}

#[test]
fn an_overload_beyond_all_bounds_and_a_step_of_nothing_leave_all_where_it_is() {
    let before = plan(&spec(64, 1, members(["a", "b"])), None).placement;
    let three = || members(["a", "b", "c"]);
    let still = SlotsSpec {
        step_percent: 0,
        ..spec(64, 1, three())
    };
    let still = plan(&still, Some(&before));
    assert_eq!((still.copies_moved, still.copies_left), (0, 21));
    let loose = SlotsSpec {
        overload_percent: u8::MAX,
        ..spec(64, 1, three())
    };
    let loose = plan(&loose, Some(&before));
    assert_eq!((loose.copies_moved, loose.copies_left), (0, 0));
    // A node that is gone is not kept for that.
    let gone = SlotsSpec {
        step_percent: 0,
        overload_percent: u8::MAX,
        ..spec(64, 1, members(["a", "c"]))
    };
    let gone = plan(&gone, Some(&before));
    assert_eq!(gone.copies_moved, 32);
}
