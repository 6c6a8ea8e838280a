//! Measures beside what formulas and hand counts say.

use clockwise_placement::{
    DomainLoad, Member, Placement, Point, Position, RingSpec, Scheme, expected_cv, points_for,
    sample_rings,
};

fn zoned(name: &str, zone: &str) -> Member {
    Member::new(name.parse().expect("a name")).with_domain(zone.parse().expect("a path"))
}

fn quarters(members: Vec<Member>, replicas: u8) -> Placement {
    let points = (0..4).map(|member| Point {
        position: Position(((member as u64 + 1) << 62).wrapping_sub(1)),
        member: member % members.len(),
    });
    Placement::from_points(Scheme::default(), members.clone(), replicas, points)
        .expect("a sound ring")
}

#[test]
fn domains_carry_the_sum_of_their_nodes() {
    let ring = quarters(
        vec![
            zoned("a", "x"),
            zoned("b", "x"),
            zoned("c", "y"),
            zoned("d", "y"),
        ],
        2,
    );
    let load = |domain: &str| DomainLoad {
        domain: domain.to_owned(),
        nodes: 2,
        weight_share: 0.5,
        primaries_share: 0.5,
        copies_share: 0.5,
    };
    assert_eq!(ring.domain_loads(0), [load("x"), load("y")]);
    assert!(ring.domain_loads(1).is_empty());
    let dispersion = ring.dispersion();
    assert_eq!((dispersion[0].domains, dispersion[0].worst), (2, 1));
    assert_eq!(dispersion[0].distinct_share, 1.0);
}

#[test]
fn dispersion_counts_the_positions_whose_replicas_share_a_domain() {
    let ring = quarters(
        vec![
            zoned("a", "x/1"),
            zoned("b", "x/2"),
            zoned("c", "x/2"),
            zoned("d", "y/1"),
        ],
        3,
    );
    let [outer, inner] = ring.dispersion()[..] else {
        panic!("two levels")
    };
    assert_eq!(
        (outer.worst, outer.distinct_share, outer.domains),
        (2, 0.0, 2)
    );
    // Three replicas, of which two are in x: never b and c together, which share a rack.
    assert_eq!(
        (inner.worst, inner.distinct_share, inner.domains),
        (1, 1.0, 3)
    );
}

#[test]
fn the_spread_of_drawn_rings_is_that_of_the_formula_and_the_peak_grows_with_the_nodes() {
    let mut spreads = 0.0;
    for ring in 0..40 {
        let nodes = (0..10).map(|n| Member::new(format!("r{ring}-{n}").parse().expect("a name")));
        let spec = RingSpec {
            points_per_weight: 50,
            ..RingSpec::new(nodes)
        };
        spreads += spec.build().expect("a ring").balance().cv / 40.0;
    }
    assert!(
        (spreads / expected_cv(10, 50) - 1.0).abs() < 0.1,
        "{spreads}"
    );
    let peak = |nodes| sample_rings(nodes, 200).max_over_mean;
    assert!((1.10..1.125).contains(&peak(10)) && (1.17..1.20).contains(&peak(100)));
    assert!((1.22..1.28).contains(&peak(1000)));
}

#[test]
fn the_planner_finds_the_points_that_meet_the_aim() {
    for (nodes, aim) in [(3, 1.1), (10, 1.05), (100, 1.2)] {
        let plan = points_for(nodes, aim).expect("it can be met");
        assert!(plan.max_over_mean <= aim && plan.max_over_mean_p95 > plan.max_over_mean);
        let fewer = sample_rings(nodes, plan.points * 9 / 10);
        assert!(fewer.max_over_mean > aim, "{fewer:?} beside {plan:?}");
    }
    assert_eq!(points_for(1, 1.0).map(|plan| plan.points), Some(1));
    assert_eq!(points_for(10, 0.99), None);
}
