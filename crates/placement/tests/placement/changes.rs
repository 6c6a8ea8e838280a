//! Long random histories: what a ring or a table becomes by changes is what a new one would be.

use std::sync::Arc;

use crate::seeded::{Random, rounds};
use clockwise_placement::{
    KeyHash, Member, NodeId, NodeIx, PlacementError, Position, Recipe, Ring, RingSpec, Scheme,
    SlotsSpec, Weight, diff,
};

/// `clockwise/v1` with all but a few bits of each position cut off, so that points collide.
struct Truncated {
    bits: u32,
}

impl Recipe for Truncated {
    fn name(&self) -> &str {
        "truncated"
    }

    fn key(&self, key: &[u8]) -> Position {
        self.cut(Scheme::default().position(key))
    }

    fn point(&self, node: &NodeId, copy: u32) -> Position {
        self.cut(Scheme::default().point(node, copy))
    }
}

impl Truncated {
    fn cut(&self, position: Position) -> Position {
        Position(position.0 >> (64 - self.bits) << (64 - self.bits))
    }
}

fn random_weight(random: &mut Random) -> Weight {
    Weight::from_hundredths(50 * (1 + random.below(6) as u32))
}

fn random_domain(random: &mut Random) -> clockwise_placement::Domain {
    format!("z{}", random.below(3)).parse().expect("a path")
}

fn random_member(random: &mut Random) -> Member {
    let id = format!("n{}", random.below(40))
        .parse()
        .expect("a short name");
    Member::new(id)
        .with_weight(random_weight(random))
        .with_domain(random_domain(random))
}

#[test]
fn a_ring_that_was_changed_equals_one_that_is_built_and_says_what_moved() {
    rounds("a_ring_that_was_changed", 1000, |random| {
        let scheme = match random.below(3) {
            0 => Scheme::foreign(Arc::new(Truncated { bits: 6 })),
            1 => Scheme::v1(KeyHash::SipHash13 { key: [7; 16] }),
            _ => Scheme::default(),
        };
        let members = vec![random_member(random)];
        let replicas = 1 + random.below(3) as u8;
        let spec = RingSpec {
            scheme,
            replicas,
            points_per_weight: 8,
            ..RingSpec::new(members)
        };
        let mut ring = Ring::new(spec).expect("a sound ring");
        for version in 1..=60 {
            let members = ring.placement().nodes();
            let id = members[random.below(members.len())].id.clone();
            let change = match random.below(8) {
                0 => ring.set_weight(&id, random_weight(random)),
                1 => ring.set_domain(&id, random_domain(random)),
                2 | 3 if members.len() > 1 => ring.remove_node(&id),
                _ => loop {
                    match ring.add_node(random_member(random)) {
                        Err(PlacementError::DuplicateNode { .. }) => {}
                        change => break change,
                    }
                },
            };
            let change = change.expect("a sound change");
            assert_eq!(ring.ring_version(), version);
            let built = ring.spec().build().expect("a sound ring");
            assert_eq!(built.fingerprint(), ring.placement().fingerprint());
            assert!(
                built.points().eq(ring.placement().points()),
                "points that collide are kept too"
            );
            let whole = diff(&change.before, &change.after).expect("one scheme");
            let mut slow: Vec<_> = whole.primaries().collect();
            let mut fast = change.primaries();
            slow.sort_by_key(|change| change.interval.through);
            fast.sort_by_key(|change| change.interval.through);
            assert_eq!(fast, slow, "the changed points alone tell what moved");
            for _ in 0..20 {
                let at = Position(random.next());
                assert_eq!(built.replicas_at(at), ring.placement().replicas_at(at));
            }
        }
    });
}

#[test]
fn a_refused_change_leaves_the_ring_as_it_was() {
    let id = |name: &str| name.parse::<NodeId>().expect("a short name");
    let mut ring = Ring::new(RingSpec::new([Member::new(id("a"))])).expect("a sound ring");
    let before = ring.placement().fingerprint();
    let twice = ring
        .add_node(Member::new(id("a")))
        .expect_err("it is there");
    assert_eq!(twice, PlacementError::DuplicateNode { node: id("a") });
    let gone = ring.remove_node(&id("b")).expect_err("it is not there");
    assert_eq!(gone, PlacementError::NotAMember { node: id("b") });
    assert_eq!(
        ring.remove_node(&id("a")).expect_err("the last"),
        PlacementError::NoMembers
    );
    let zero = ring
        .set_weight(&id("a"), Weight::from_hundredths(0))
        .expect_err("no weight");
    assert_eq!(zero, PlacementError::ZeroWeight { node: id("a") });
    assert_eq!(
        (ring.ring_version(), ring.placement().fingerprint()),
        (0, before)
    );
}

#[test]
fn many_positions_are_looked_up_at_once_as_one_by_one() {
    rounds("many_positions_are_looked_up", 20, |random| {
        let members = (0..1 + random.below(20))
            .map(|n| Member::new(format!("n{n}").parse().expect("a short name")));
        let spec = RingSpec {
            replicas: 2,
            points_per_weight: 10,
            ..RingSpec::new(members)
        };
        let ring = spec.build().expect("a sound ring");
        let positions: Vec<Position> = (0..random.below(200))
            .map(|_| Position(random.next()))
            .collect();
        let mut owners = vec![ring.owner_at(Position(0)); positions.len()];
        ring.owners_at(&positions, &mut owners);
        assert!(
            positions
                .iter()
                .zip(owners)
                .all(|(&at, owner)| ring.owner_at(at) == owner)
        );
    });
}

/// Every slot on distinct nodes and zones as far as there are any, every node within a copy of its share,
/// and no more moved than the counts ask for unless the zones force it.
#[test]
fn a_hundred_thousand_changes_of_slots_keep_balance_domains_and_the_bound() {
    let beyond = std::cell::Cell::new(0u64);
    let changes = std::cell::Cell::new(0u64);
    rounds("a_hundred_thousand_changes", 100, |random| {
        let zoned = random.below(2) == 0;
        let place = |member: Member| {
            if zoned {
                member
            } else {
                member.with_domain(Default::default())
            }
        };
        let mut members = Vec::new();
        for n in 0..3 {
            let id = format!("first-{n}").parse().expect("a short name");
            members.push(Member {
                id,
                ..place(random_member(random))
            });
        }
        let slots = 32 + random.below(225);
        let replicas = 1 + random.below(3) as u8;
        let mut spec = SlotsSpec {
            slots,
            replicas,
            ..SlotsSpec::new(members)
        };
        let mut now = spec.clone().plan(None).expect("sound slots").placement;
        for _ in 0..1000 {
            let at = random.below(spec.members.len());
            match random.below(5) {
                0 => spec.members[at].weight = random_weight(random),
                1 | 2 if spec.members.len() > 1 => drop(spec.members.swap_remove(at)),
                _ => {
                    let member = place(random_member(random));
                    let known = spec.members.iter().any(|other| other.id == member.id);
                    if spec.members.len() < 8 && !known {
                        spec.members.push(member);
                    }
                }
            }
            let plan = spec.clone().plan(Some(&now)).expect("sound slots");
            changes.set(changes.get() + 1);
            beyond.set(beyond.get() + u64::from(plan.copies_moved > plan.copies_least));
            for node in &plan.nodes {
                assert!((node.least..=node.most).contains(&node.copies), "{node:?}");
                assert!(
                    node.most - node.least <= 1 && (node.copies as f64 - node.target).abs() < 1.0
                );
            }
            check_rows(&plan.placement, random);
            now = plan.placement;
        }
    });
    let repeated = changes.get() == 1000;
    assert!(repeated || changes.get() == 100_000);
    assert!(
        beyond.get() * 20 <= changes.get(),
        "{} of {} beyond",
        beyond.get(),
        changes.get()
    );
}

fn check_rows(placement: &clockwise_placement::Placement, random: &mut Random) {
    let zone = |node: NodeIx| placement.node(node).domain.level(0);
    let mut zones: Vec<_> = placement
        .nodes()
        .iter()
        .map(|member| member.domain.level(0))
        .collect();
    zones.sort_unstable();
    zones.dedup();
    for (interval, owners) in placement.intervals() {
        let mut used: Vec<_> = owners.iter().map(|&owner| zone(owner)).collect();
        used.sort_unstable();
        used.dedup();
        assert_eq!(
            used.len(),
            owners.len().min(zones.len()),
            "a zone is used twice while one is free"
        );
        assert!((1..owners.len()).all(|at| !owners[..at].contains(&owners[at])));
        let last = u64::try_from(interval.len() - 1).expect("a position within the interval");
        let within = Position(interval.through.0.wrapping_sub(random.next() & last));
        assert_eq!(
            placement.replicas_at(within),
            owners,
            "a lookup within the interval"
        );
    }
}
