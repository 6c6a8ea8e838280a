//! A change of slots in steps: no step is above its limit unless it has to be, and then it says why.

use clockwise_placement::{
    Member, NodeId, Placement, RingSpec, Scheme, SlotsPlan, SlotsSpec, Spread, Unavoidable, Weight,
    diff,
};

use crate::seeded::rounds;
use crate::slots_plan::{check, edit, members, plan, random_member, rows, spec};

/// The part of all copies that a plan moves.
fn share(before: &Placement, plan: &SlotsPlan) -> f64 {
    let after = &plan.placement;
    let movement = diff(before, after).expect("one scheme").movement();
    movement.copies_share() / after.replicas_placed() as f64
}

/// That a plan is within its limit, or moves what it says cannot wait and no more.
fn check_limit(before: &Placement, plan: &SlotsPlan, percent: u8) {
    let (share, unavoidable) = (share(before, plan), plan.unavoidable.total());
    let limit = f64::from(percent) / 100.0;
    if unavoidable > limit {
        assert!(
            (share - unavoidable).abs() < 1e-6,
            "{share} instead of {:?}",
            plan.unavoidable
        );
    } else {
        assert!(share <= limit + 1e-6, "{share} in a step of {percent} %");
    }
}

fn ring(points_per_weight: u32, replicas: u8, members: Vec<Member>) -> Placement {
    let spec = RingSpec {
        points_per_weight,
        replicas,
        ..RingSpec::new(members)
    };
    spec.build().expect("a sound ring")
}

fn in_steps(step_percent: u8, spec: SlotsSpec) -> SlotsSpec {
    SlotsSpec {
        step_percent,
        ..spec
    }
}

#[test]
fn a_ring_becomes_slots_within_the_limit_of_a_step() {
    for replicas in [1, 2] {
        let before = ring(20, replicas, members(["a", "b", "c", "d"]));
        let heavier = members(["a", "b", "c", "d=2"]);
        let step = plan(&in_steps(5, spec(4096, replicas, heavier)), Some(&before));
        check_limit(&before, &step, 5);
        let Unavoidable {
            unaligned, leaving, ..
        } = step.unavoidable;
        assert!(
            (0.0005..0.05).contains(&unaligned),
            "80 points, a quarter of a slot each: {unaligned}"
        );
        assert_eq!(leaving, 0.0);
        assert!(share(&before, &step) > 0.049, "the limit is used");
        assert!(step.copies_left > 0);
    }
}

#[test]
fn a_ring_whose_intervals_do_not_fit_into_a_step_of_slots_says_so_and_moves_nothing_more() {
    let nodes = || members(["a", "b", "c"]);
    let before = ring(100, 1, nodes());
    let step = plan(&in_steps(5, spec(256, 1, nodes())), Some(&before));
    assert!(step.unavoidable.unaligned > 0.1, "{:?}", step.unavoidable);
    check_limit(&before, &step, 5);
}

#[test]
fn what_a_missing_node_had_moves_in_one_step_and_alone() {
    let four = || members(["a", "b", "c", "d"]);
    let three = || members(["a", "c=3", "d"]);
    let before = plan(&spec(400, 1, four()), None).placement;
    let step = plan(&in_steps(1, spec(400, 1, three())), Some(&before));
    assert_eq!(step.unavoidable.leaving, 0.25);
    assert_eq!(step.unavoidable.total(), 0.25);
    assert_eq!((step.copies_moved, step.copies_left), (100, 40));
    check_limit(&before, &step, 1);

    let before = plan(&spec(400, 2, four()), None).placement;
    let step = plan(&in_steps(1, spec(400, 2, three())), Some(&before));
    assert!(step.unavoidable.leaving >= 0.25, "{:?}", step.unavoidable);
    assert_eq!(step.unavoidable.further, 0.0);
    check_limit(&before, &step, 1);
}

#[test]
fn a_second_copy_of_everything_moves_in_one_step_and_every_owner_stays() {
    let nodes = || members(["a", "b", "c"]);
    let before = plan(&spec(300, 1, nodes()), None).placement;
    let mut drained = nodes();
    drained[0].weight = Weight::from_hundredths(0);
    let step = plan(&in_steps(5, spec(300, 2, drained)), Some(&before));
    assert_eq!(step.unavoidable.further, 0.5);
    check_limit(&before, &step, 5);
    let kept = rows(&before).into_iter().zip(rows(&step.placement));
    assert!(kept.into_iter().all(|(old, new)| new.contains(&old[0])));
    assert_eq!(step.copies_left, 100, "the drained node can wait");
}

#[test]
fn fewer_copies_move_nothing_and_what_they_are_to_become_comes_in_steps() {
    let nodes = || members(["a", "b", "c", "d"]);
    let before = plan(&spec(256, 3, nodes()), None).placement;
    let mut heavier = nodes();
    heavier[0].weight = Weight::from_hundredths(200);
    let step = plan(&in_steps(2, spec(256, 2, heavier)), Some(&before));
    assert_eq!(step.unavoidable, Unavoidable::default());
    check_limit(&before, &step, 2);
}

#[test]
fn of_more_owners_than_a_slot_is_to_have_those_wait_that_it_keeps() {
    let nodes = members(["a", "b", "c", "d"]);
    let rows_of_abc = [0, 1, 2].repeat(8);
    let before = Placement::from_slots(Scheme::default(), nodes, 3, 8, &rows_of_abc);
    let before = before.expect("a sound table");
    let drained = members(["a=0", "b=0", "c", "d"]);
    let step = plan(&in_steps(1, spec(8, 2, drained)), Some(&before));
    assert_eq!((step.copies_moved, step.copies_left), (1, 7));
    assert!(rows(&step.placement).iter().all(|row| row.contains(&2)));
    check_limit(&before, &step, 1);
}

#[test]
fn copies_that_a_strict_spread_keeps_apart_do_not_wait_for_a_later_step() {
    let strict = |nodes| SlotsSpec {
        spread: Spread::Distinct { depth: 1 },
        ..in_steps(1, spec(120, 2, nodes))
    };
    let apart = members(["a@x", "b@x", "c@y", "d@y", "e@z"]);
    let before = plan(&strict(apart), None).placement;
    let together = rows(&before).into_iter().filter(|row| {
        // Node e moves into the zone of c and d.
        row.contains(&4) && (row.contains(&2) || row.contains(&3))
    });
    let crowded = together.count();
    let moved = members(["a@x", "b@x", "c@y", "d@y", "e@y"]);
    let step = plan(&strict(moved), Some(&before));
    assert!(crowded > 10, "{crowded} slots");
    assert!(step.unavoidable.crowded >= crowded as f64 / 240.0);
    check_limit(&before, &step, 1);
}

#[test]
fn a_step_of_less_than_a_slot_moves_one_slot_and_the_steps_end() {
    let mut now = plan(&spec(12, 1, members(["a", "b"])), None).placement;
    let spec = in_steps(1, spec(12, 1, members(["a", "b", "c"])));
    for left in [3, 2, 1, 0] {
        let step = plan(&spec, Some(&now));
        assert_eq!((step.copies_moved, step.copies_left), (1, left));
        assert_eq!(step.unavoidable.slot, 1.0 / 12.0);
        check_limit(&now, &step, 1);
        now = step.placement;
    }
    let end = plan(&spec, Some(&now));
    assert_eq!((end.copies_moved, end.unavoidable.total()), (0, 0.0));
}

#[test]
fn random_steps_are_within_their_limits_and_end_where_the_whole_change_would() {
    rounds("random_steps", 60, |random| {
        let depth = random.below(3);
        let mut next = 3 + random.below(4);
        let nodes: Vec<Member> = (0..next)
            .map(|node| random_member(node, depth, random))
            .collect();
        let [replicas_before, replicas_after] = std::array::from_fn(|_| 1 + random.below(3) as u8);
        let slots = 16 + random.below(80);
        let mut now = match random.below(3) {
            0 => ring(8, replicas_before, nodes.clone()),
            1 => plan(&spec(slots + 7, replicas_before, nodes.clone()), None).placement,
            _ => plan(&spec(slots, replicas_before, nodes.clone()), None).placement,
        };
        let percent = [1, 5, 20, 60][random.below(4)];
        let mut spec = in_steps(percent, spec(slots, replicas_after, nodes));
        edit(&mut spec, depth, &mut next, random);
        let whole = plan(&in_steps(100, spec.clone()), Some(&now)).copies_moved;
        let (mut steps, mut moved) = (0, 0);
        loop {
            let step = plan(&spec, Some(&now));
            check_limit(&now, &step, percent);
            now = step.placement;
            moved += step.copies_moved;
            assert_eq!(
                moved + step.copies_left,
                whole,
                "none is dropped that is wanted again"
            );
            steps += 1;
            if step.copies_left == 0 {
                break;
            }
            // At worst a slot at a time.
            assert!(
                steps <= 2 + slots,
                "{steps} steps and {} left",
                step.copies_left
            );
        }
        let end = plan(&spec, Some(&now));
        assert_eq!(end.copies_moved, 0);
        check(&end, &spec, Some(&now));
    });
}

#[test]
fn a_step_moves_no_more_than_its_share_and_the_steps_end() {
    let nodes = |count: usize| -> Vec<Member> {
        let id = |n: usize| -> NodeId { format!("n{n}").parse().expect("a name") };
        (0..count).map(|n| Member::new(id(n))).collect()
    };
    let mut now = plan(&spec(256, 2, nodes(6)), None).placement;
    let mut drained = nodes(7);
    drained[0].weight = Weight::from_hundredths(0);
    let spec = SlotsSpec {
        step_percent: 5,
        ..spec(256, 2, drained)
    };
    let mut steps = 0;
    loop {
        let step = plan(&spec, Some(&now));
        let movement = diff(&now, &step.placement).expect("one scheme").movement();
        assert!(movement.copies_share() <= 2.0 * 0.05 + 1e-9);
        let rows = rows(&step.placement);
        assert!(rows.iter().all(|row| row[0] != row[1]));
        now = step.placement;
        steps += 1;
        if step.copies_left == 0 {
            break;
        }
        assert!(
            step.copies_moved > 0 && steps < 30,
            "{steps} steps and {} left",
            step.copies_left
        );
    }
    check(&plan(&spec, Some(&now)), &spec, Some(&now));
    assert_eq!(
        now.balance_of_copies().loads[0].amount,
        0,
        "the drained node is empty"
    );
}
