//! Edits, `apply` and the steps of handoffs: what each does to a record, and what it refuses.

use clockwise_cluster::{
    AbortError, ApplyError, ChangeId, Edit, EditError, Epoch, Generation, Generator, HandoffId,
    HandoffState, HashSpec, LayoutError, NodeState, Nonce, Record, SchemeSpec, StageError,
    StagedId, StaleEdit, Step, StepError, TooLarge, Unstage, UnstageError,
};
use clockwise_placement::PlacementError;

use crate::pool::{
    add, address, applied, id, pool, record, remove, run_of, staged, step_to, try_apply,
};

fn set_weight(name: &str, weight: &str) -> Edit {
    Edit::SetWeight {
        id: id(name),
        weight: weight.parse().unwrap(),
    }
}

fn set_domain(name: &str, domain: &str) -> Edit {
    Edit::SetDomain {
        id: id(name),
        domain: domain.parse().unwrap(),
    }
}

fn refused(record: &Record, edit: Edit) -> EditError {
    match record.stage(edit) {
        Err(StageError::Edit(error)) => error,
        other => panic!("expected a refused edit, got {other:?}"),
    }
}

/// The record after one handoff has gone through these states, a second each.
fn through(record: &Record, handoff: &HandoffId, states: &[&str]) -> Record {
    states.iter().fold(record.clone(), |record, state| {
        let step = step_to(&record, handoff, state);
        let entered = record
            .change()
            .unwrap()
            .handoff(handoff)
            .unwrap()
            .entered_at_ms;
        record.step(handoff, &step, entered + 1_000).unwrap()
    })
}

const TO_FLIP: [&str; 4] = ["copying", "verifying", "handover", "flipped"];
const TO_DONE: [&str; 6] = [
    "copying",
    "verifying",
    "handover",
    "flipped",
    "cleaning",
    "done",
];

fn state(record: &Record, handoff: &HandoffId) -> HandoffState {
    record.change().unwrap().handoff(handoff).unwrap().state
}

fn from(name: &str) -> HandoffId {
    HandoffId::forward(id(name))
}

fn back_from(name: &str) -> HandoffId {
    HandoffId::reverse(id(name))
}

// Staging

#[test]
fn an_edit_of_an_unknown_node_is_refused() {
    let record = record("a b", 10);
    for edit in [remove("z"), set_weight("z", "2"), set_domain("z", "eu")] {
        assert_eq!(
            refused(&record, edit),
            EditError::UnknownNode { node: id("z") }
        );
    }
}

#[test]
fn an_id_or_an_address_that_is_taken_is_refused() {
    let record = record("a b", 10);
    assert_eq!(
        refused(&record, add("a")),
        EditError::NodeExists { node: id("a") }
    );
    let at_a = Edit::SetAddress {
        id: id("b"),
        address: address("a"),
    };
    let taken = EditError::AddressTaken {
        address: address("a"),
        node: id("a"),
    };
    assert_eq!(refused(&record, at_a), taken);
    let staged = staged(&record, &[add("c")]);
    assert_eq!(
        refused(&staged, add("c")),
        EditError::NodeExists { node: id("c") },
        "staged counts"
    );
}

#[test]
fn a_node_that_leaves_can_be_neither_edited_nor_added_again() {
    let staged = staged(&record("a b c", 10), &[remove("b")]);
    for edit in [add("b"), remove("b"), set_weight("b", "2")] {
        assert_eq!(refused(&staged, edit), EditError::Leaving { node: id("b") });
    }
    let its_address = Edit::SetAddress {
        id: id("a"),
        address: address("b"),
    };
    assert!(matches!(
        refused(&staged, its_address),
        EditError::AddressTaken { .. }
    ));
}

#[test]
fn zero_and_absurd_weights_are_refused_when_staged() {
    let record = record("a b", 10);
    assert_eq!(
        refused(&record, set_weight("a", "0")),
        EditError::ZeroWeight { node: id("a") }
    );
    let too_many = refused(&record, set_weight("a", "42949672.95"));
    let EditError::Layout(LayoutError::Placement(error)) = too_many else {
        panic!("{too_many:?}")
    };
    assert!(
        matches!(error, PlacementError::UnevenPoints { .. }),
        "{error}"
    );
    let too_many = refused(&record, set_weight("a", "42949670"));
    let EditError::Layout(LayoutError::Placement(error)) = too_many else {
        panic!("{too_many:?}")
    };
    assert!(
        error.to_string().contains("at most 4000000 are allowed"),
        "{error}"
    );
}

#[test]
fn the_last_node_stays() {
    let record = staged(&record("a b", 10), &[remove("a")]);
    assert_eq!(
        refused(&record, remove("b")),
        EditError::LastNode { node: id("b") }
    );
}

#[test]
fn an_edit_that_changes_nothing_is_refused() {
    assert_eq!(
        refused(&record("a", 10), set_weight("a", "1")),
        EditError::NoEffect
    );
}

#[test]
fn domains_may_be_staged_one_by_one_though_the_depths_differ_in_between() {
    let record = staged(&record("a b", 10), &[set_domain("a", "eu/1")]);
    let error = try_apply(&record).unwrap_err();
    let ApplyError::Layout(LayoutError::Placement(PlacementError::UnevenDomains { .. })) = error
    else {
        panic!("{error:?}")
    };
    let record = staged(&record, &[set_domain("b", "eu/2")]);
    assert!(try_apply(&record).is_ok());
}

#[test]
fn an_edit_is_taken_back_by_number_by_node_or_with_all_others() {
    let record = staged(
        &record("a b", 10),
        &[add("c"), set_weight("a", "2"), add("d")],
    );
    let ids = |record: &Record| {
        record
            .staged()
            .iter()
            .map(|staged| staged.id.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&record), [1, 2, 3]);
    assert_eq!(
        ids(&record.unstage(&Unstage::Edit(StagedId(2))).unwrap()),
        [1, 3]
    );
    assert_eq!(
        ids(&record.unstage(&Unstage::Node(id("c"))).unwrap()),
        [2, 3]
    );
    assert_eq!(ids(&record.unstage(&Unstage::All).unwrap()), [] as [u32; 0]);
    assert_eq!(
        record.unstage(&Unstage::Edit(StagedId(9))),
        Err(UnstageError::NotStaged)
    );
    let again = record.unstage(&Unstage::Edit(StagedId(2))).unwrap();
    assert_eq!(
        ids(&staged(&again, &[set_weight("b", "2")])),
        [1, 3, 4],
        "numbers are not used again"
    );
}

#[test]
fn an_edit_that_another_builds_on_is_not_taken_back_alone() {
    let record = staged(&record("a b", 10), &[add("c"), set_weight("c", "2")]);
    let error = record.unstage(&Unstage::Edit(StagedId(1))).unwrap_err();
    let unknown = EditError::UnknownNode { node: id("c") };
    assert_eq!(
        error,
        UnstageError::Needed {
            by: StagedId(2),
            error: unknown
        }
    );
    assert!(record.unstage(&Unstage::Node(id("c"))).is_ok());
}

#[test]
fn a_pool_of_class_store_keeps_one_copy_of_each_key() {
    let error = record("a b", 10)
        .stage(Edit::SetReplicas { replicas: 2 })
        .unwrap_err();
    assert_eq!(error, StageError::ReplicasInStore);
}

// Apply

#[test]
fn a_plan_made_at_an_older_epoch_is_refused() {
    let planned = staged(&record("a b", 10), &[add("c")]);
    let moved = applied(&planned, &[]);
    let moved = through(&moved, &from("a"), &TO_DONE);
    let moved = through(&moved, &from("b"), &TO_DONE)
        .end_change(9_000)
        .unwrap();
    let moved = staged(&moved, &[add("d")]);
    let error = moved
        .apply(clockwise_cluster::Apply {
            expected: planned.epoch(),
            id: "late".parse().unwrap(),
            now_ms: 10_000,
            nonces: &mut || Nonce::new([9; 16]),
        })
        .unwrap_err();
    assert_eq!(
        error,
        ApplyError::EpochMoved {
            expected: Epoch::new(1),
            current: moved.epoch()
        }
    );
}

#[test]
fn a_second_apply_is_refused_with_what_runs() {
    let running = applied(&record("a b", 10), &[add("c")]);
    let again = staged(&running, &[add("d")]);
    let id: ChangeId = "change".parse().unwrap();
    assert_eq!(
        try_apply(&again),
        Err(ApplyError::ChangeInFlight { id, unfinished: 2 })
    );
}

#[test]
fn applying_nothing_and_applying_what_cancels_out_are_refused() {
    assert_eq!(
        try_apply(&record("a b", 10)),
        Err(ApplyError::NothingStaged)
    );
    let record = staged(
        &record("a b", 10),
        &[set_weight("a", "2"), set_weight("a", "1")],
    );
    assert_eq!(try_apply(&record), Err(ApplyError::NoEffect));
}

#[test]
fn an_address_changes_at_once_and_moves_no_key() {
    let before = record("a b", 10);
    let edit = Edit::SetAddress {
        id: id("a"),
        address: address("x"),
    };
    let after = applied(&before, &[edit]);
    assert!(after.change().is_none() && after.staged().is_empty());
    assert_eq!(after.epoch(), before.epoch().next());
    assert_eq!(after.node(&id("a")).unwrap().address, address("x"));
    assert_eq!(after.node(&id("a")).unwrap().generation, Generation::new(1));
}

#[test]
fn an_address_changes_while_a_change_runs_and_nothing_else_does() {
    let running = applied(&record("a b c", 10), &[remove("b")]);
    let fail_over = Edit::SetAddress {
        id: id("b"),
        address: address("x"),
    };
    let with_more = staged(&running, &[fail_over.clone(), set_weight("a", "2")]);
    assert!(matches!(
        try_apply(&with_more),
        Err(ApplyError::ChangeInFlight { .. })
    ));
    let moved = applied(&running, &[fail_over]);
    assert_eq!(moved.node(&id("b")).unwrap().address, address("x"));
    assert_eq!(moved.epoch(), running.epoch().next());
    assert_eq!(moved.change(), running.change());
}

#[test]
fn a_change_that_would_outgrow_the_store_half_way_is_refused_with_the_figure() {
    // 80 nodes, every one of which gives to every other: the record itself would still fit.
    let names: Vec<String> = (0..80).map(|n| format!("n{n}")).collect();
    let mut spec = pool(&names.join(" "), 4);
    for (at, node) in spec.nodes.iter_mut().enumerate() {
        node.address = format!("10.0.0.{at}:6379").parse().unwrap();
    }
    let record = Record::create(spec, &mut crate::pool::nonces()).unwrap();
    let scheme = SchemeSpec::v1(HashSpec::Xxh3 { seed: 1 });
    let record = staged(&record, &[Edit::SetScheme { scheme }]);
    let Err(ApplyError::TooLarge(TooLarge { bytes, limit })) = try_apply(&record) else {
        panic!("it was applied")
    };
    assert!(bytes > limit && bytes < 5 * limit, "{bytes}");
    let plan = record.plan(&std::collections::BTreeMap::new()).unwrap();
    assert!(
        matches!(plan.refusals[..], [ApplyError::TooLarge(_)]),
        "{:?}",
        plan.refusals
    );
}

#[test]
fn a_domain_of_a_pool_with_one_copy_changes_at_once() {
    let after = applied(
        &record("a b", 10),
        &[set_domain("a", "eu"), set_domain("b", "us")],
    );
    assert!(after.change().is_none());
    assert_eq!(after.node(&id("b")).unwrap().domain.as_str(), "us");
}

#[test]
fn a_join_makes_a_handoff_of_each_node_that_gives() {
    let before = record("a b c", 20);
    let after = applied(&before, &[add("d")]);
    let change = after.change().unwrap();
    let ends: Vec<_> = change
        .handoffs
        .iter()
        .map(|handoff| {
            (
                handoff.source.as_str(),
                handoff.targets.clone(),
                handoff.state,
            )
        })
        .collect();
    let planned = HandoffState::Planned;
    assert_eq!(
        ends,
        ["a", "b", "c"].map(|source| (source, vec![id("d")], planned))
    );
    assert_eq!(after.epoch(), before.epoch().next());
    assert_eq!(
        after.revision(),
        before.revision(),
        "the store gives the next one"
    );
    assert_eq!(after.node(&id("d")).unwrap().state, NodeState::Joining);
    assert_eq!(after.node(&id("a")).unwrap().state, NodeState::Active);
}

#[test]
fn a_leaving_node_gives_and_is_never_a_target() {
    let edits = [remove("b"), set_weight("a", "3"), set_weight("c", "2")];
    let after = applied(&record("a b c=3", 20), &edits);
    assert_eq!(after.node(&id("b")).unwrap().state, NodeState::Leaving);
    let change = after.change().unwrap();
    assert!(
        change
            .handoffs
            .iter()
            .any(|handoff| handoff.source == id("b"))
    );
    assert!(
        change
            .handoffs
            .iter()
            .all(|handoff| !handoff.targets.contains(&id("b")))
    );
}

#[test]
fn a_replaced_node_gives_its_weight_and_place_to_the_newcomer() {
    let edit = Edit::Replace {
        id: id("b"),
        by: id("n"),
        address: address("n"),
    };
    let after = applied(&record("a b=2.5 c", 20), &[edit]);
    let change = after.change().unwrap();
    assert_eq!(
        change.after.seat(&id("n")).unwrap().weight.to_string(),
        "2.5"
    );
    assert!(!change.after.has(&id("b")));
}

#[test]
fn points_and_scheme_and_generator_change_by_handoffs_too() {
    let generator = Generator::Ring {
        points_per_weight: 40,
    };
    let after = applied(&record("a b", 20), &[Edit::SetGenerator { generator }]);
    assert_eq!(after.change().unwrap().handoffs.len(), 2);
    let owners = vec![id("a"), id("b")];
    let generator = Generator::Slots {
        slots: 4,
        owners,
        table: vec![0, 1, 0, 1],
    };
    let after = applied(&record("a b", 20), &[Edit::SetGenerator { generator }]);
    assert_eq!(after.change().unwrap().handoffs.len(), 2);
}

#[test]
fn slots_of_a_node_that_leaves_without_a_new_table_are_refused() {
    let owners = vec![id("a"), id("b")];
    let generator = Generator::Slots {
        slots: 4,
        owners,
        table: vec![0, 1, 0, 1],
    };
    let slots = Record::create(
        clockwise_cluster::NewPool {
            generator,
            ..pool("a b", 1)
        },
        &mut crate::pool::nonces(),
    )
    .unwrap();
    let error = try_apply(&staged(&slots, &[remove("b")])).unwrap_err();
    assert_eq!(
        error,
        ApplyError::Layout(LayoutError::SlotsOfStranger { node: id("b") })
    );
    // A newcomer in its place takes over the slots as they are.
    let edit = Edit::Replace {
        id: id("b"),
        by: id("n"),
        address: address("n"),
    };
    let after = applied(&slots, &[edit]);
    let change = after.change().unwrap();
    assert_eq!(change.handoffs.len(), 1);
    assert_eq!(change.handoffs[0].targets, [id("n")]);
}

#[test]
fn an_edit_that_the_change_in_flight_made_stale_is_named() {
    // Staged while the change runs, on top of what it leads to; then the change is undone.
    let running = applied(&record("a b", 10), &[add("c")]);
    let running = staged(&running, &[set_weight("c", "2")]);
    let aborted = running.abort(5_000).unwrap().end_change(6_000).unwrap();
    let error = EditError::UnknownNode { node: id("c") };
    let stale = StaleEdit {
        id: StagedId(1),
        error,
    };
    assert_eq!(try_apply(&aborted), Err(ApplyError::Stale(stale.clone())));
    assert_eq!(aborted.stage(add("d")), Err(StageError::Stale(stale)));
    assert!(aborted.unstage(&Unstage::All).is_ok());
}

// Steps

#[test]
fn only_handover_rollback_and_flip_begin_an_epoch() {
    let mut record = applied(&record("a", 10), &[add("b")]);
    let steps = [
        "copying",
        "verifying",
        "copying",
        "verifying",
        "handover",
        "copying",
        "verifying",
    ];
    for state in steps
        .iter()
        .chain(&["handover", "flipped", "cleaning", "done"])
    {
        let step = step_to(&record, &from("a"), state);
        let next = record.step(&from("a"), &step, 1_000).unwrap();
        let begins = matches!(
            step,
            Step::Handover { .. } | Step::Rollback | Step::Flip { .. }
        );
        let expected = if begins {
            record.epoch().next()
        } else {
            record.epoch()
        };
        assert_eq!(next.epoch(), expected, "{state}");
        assert_eq!(next.revision(), record.revision());
        record = next;
    }
}

#[test]
fn every_step_that_does_not_follow_is_refused() {
    let steps = [
        "copying",
        "verifying",
        "handover",
        "flipped",
        "cleaning",
        "done",
        "undone",
    ];
    let mut record = applied(&record("a", 10), &[add("b")]);
    let follows = |from: HandoffState, to: HandoffState| {
        use HandoffState::{Cleaning, Copying, Done, Flipped, Handover, Planned, Verifying};
        matches!(
            (from, to),
            (Planned | Verifying | Handover, Copying)
                | (Copying, Verifying)
                | (Verifying, Handover)
                | (Handover, Flipped)
                | (Flipped, Cleaning)
                | (Cleaning, Done)
        )
    };
    for onward in [
        "copying",
        "verifying",
        "handover",
        "flipped",
        "cleaning",
        "done",
    ] {
        let now = state(&record, &from("a"));
        for to in steps {
            let step = step_to(&record, &from("a"), to);
            let taken = record.step(&from("a"), &step, 2_000);
            assert_eq!(
                taken.is_ok(),
                follows(now, step.state()),
                "{now} -> {to}: {taken:?}"
            );
        }
        record = through(&record, &from("a"), &[onward]);
    }
}

#[test]
fn a_handover_gives_the_source_a_new_credential_and_a_rollback_keeps_it() {
    let record = applied(&record("a", 10), &[add("b")]);
    let fenced = through(&record, &from("a"), &["copying", "verifying", "handover"]);
    let a = |record: &Record| record.node(&id("a")).unwrap().clone();
    assert_eq!(a(&fenced).generation, Generation::new(2));
    assert_ne!(a(&fenced).nonce, a(&record).nonce);
    let back = through(&fenced, &from("a"), &["copying"]);
    assert_eq!(
        (a(&back).generation, a(&back).nonce),
        (a(&fenced).generation, a(&fenced).nonce)
    );
    let again = through(&back, &from("a"), &["verifying", "handover"]);
    assert_eq!(a(&again).generation, Generation::new(3));
}

#[test]
fn a_generation_or_nonce_in_use_is_refused() {
    let record = applied(&record("a", 10), &[add("b")]);
    let record = through(&record, &from("a"), &["copying", "verifying"]);
    let nonce = Nonce::new([5; 16]);
    let step = |generation, nonce| Step::Handover {
        generation: Generation::new(generation),
        nonce,
    };
    let (current, given) = (Generation::new(1), Generation::new(1));
    assert_eq!(
        record.step(&from("a"), &step(1, nonce), 3_000),
        Err(StepError::GenerationReused { current, given })
    );
    let used = record.node(&id("a")).unwrap().nonce;
    assert_eq!(
        record.step(&from("a"), &step(2, used), 3_000),
        Err(StepError::NonceReused)
    );
    let found_on_the_server = record.step(&from("a"), &step(8, nonce), 3_000).unwrap();
    assert_eq!(
        found_on_the_server.node(&id("a")).unwrap().generation,
        Generation::new(8)
    );
}

#[test]
fn one_source_is_fenced_at_a_time() {
    let record = applied(&record("a b", 10), &[add("c")]);
    let record = through(&record, &from("a"), &["copying", "verifying", "handover"]);
    let record = through(&record, &from("b"), &["copying", "verifying"]);
    let step = step_to(&record, &from("b"), "handover");
    let error = record.step(&from("b"), &step, 9_000).unwrap_err();
    assert_eq!(error, StepError::AnotherHandover { source: id("a") });
}

#[test]
fn anybody_rolls_back_a_handover_older_than_a_second_and_nobody_a_younger_one() {
    let record = applied(&record("a", 10), &[add("b")]);
    let fenced = through(&record, &from("a"), &["copying", "verifying", "handover"]);
    let entered = fenced.change().unwrap().handoffs[0].entered_at_ms;
    let error = fenced
        .roll_back_stale_handover(entered + 1_000)
        .unwrap_err();
    assert_eq!(error, StepError::TooYoung { age_ms: 1_000 });
    let error = fenced.roll_back_stale_handover(entered - 500).unwrap_err();
    assert_eq!(
        error,
        StepError::TooYoung { age_ms: 0 },
        "a clock that is behind waits longer"
    );
    let back = fenced.roll_back_stale_handover(entered + 1_001).unwrap();
    assert_eq!(state(&back, &from("a")), HandoffState::Copying);
    assert_eq!(back.epoch(), fenced.epoch().next());
    assert_eq!(back.change().unwrap().handoffs[0].report.hold_ms_max, 1_001);
    assert_eq!(
        record.roll_back_stale_handover(9_999),
        Err(StepError::NoHandover)
    );
}

#[test]
fn a_flip_stores_which_run_each_target_was() {
    let record = applied(&record("a", 10), &[add("b"), add("c")]);
    let record = through(&record, &from("a"), &["copying", "verifying", "handover"]);
    let one = Step::Flip {
        targets: vec![run_of(&id("b"))],
    };
    let error = record.step(&from("a"), &one, 9_000).unwrap_err();
    assert_eq!(
        error,
        StepError::FlipTargets {
            given: 1,
            targets: 2
        }
    );
    let flipped = through(&record, &from("a"), &["flipped"]);
    let flip = &flipped.change().unwrap().handoffs[0].flip;
    assert_eq!(
        (&flip[1].target, &flip[1].incarnation),
        (&id("c"), &run_of(&id("c")))
    );
}

#[test]
fn a_source_is_not_cleaned_while_another_still_gives_to_it() {
    // New points: every node gives to every other.
    let generator = Generator::Ring {
        points_per_weight: 40,
    };
    let record = applied(&record("a b", 20), &[Edit::SetGenerator { generator }]);
    let record = through(&record, &from("a"), &TO_FLIP);
    let error = record.step(&from("a"), &Step::Cleaning, 9_000).unwrap_err();
    assert_eq!(error, StepError::StillTarget { of: id("b") });
    let record = through(&record, &from("b"), &TO_FLIP);
    let record = through(&record, &from("a"), &["cleaning", "done"]);
    assert_eq!(state(&record, &from("a")), HandoffState::Done);
}

#[test]
fn a_change_ends_when_all_its_handoffs_are_done() {
    let record = applied(&record("a b", 10), &[add("c"), remove("a")]);
    let record = through(&record, &from("a"), &TO_DONE);
    let error = record.end_change(20_000).unwrap_err();
    assert_eq!(
        error,
        StepError::NotOver {
            id: from("b"),
            state: HandoffState::Planned
        }
    );
    let record = through(&record, &from("b"), &TO_DONE);
    let ended = record.end_change(20_000).unwrap();
    assert_eq!(ended.epoch(), record.epoch().next());
    assert!(ended.change().is_none() && ended.node(&id("a")).is_none());
    let states: Vec<_> = ended
        .membership()
        .nodes
        .iter()
        .map(|node| (node.id.as_str(), node.state))
        .collect();
    assert_eq!(states, [("b", NodeState::Active), ("c", NodeState::Active)]);
    let tombstone = &ended.retired()[0];
    assert_eq!(
        (tombstone.id.as_str(), tombstone.generation),
        ("a", Generation::new(2))
    );
    let finished = ended.finished().unwrap();
    assert_eq!(
        (finished.id.as_str(), finished.handoffs.len()),
        ("change", 2)
    );
    assert_eq!(
        finished.handoffs[0].report.duration_ms, 5_000,
        "from copying to done, a second a state"
    );
}

#[test]
fn a_node_that_comes_back_under_its_old_id_continues_its_generations() {
    let record = applied(&record("a b", 10), &[remove("a")]);
    let record = through(&record, &from("a"), &TO_DONE)
        .end_change(9_000)
        .unwrap();
    let record = applied(&record, &[add("a")]);
    assert_eq!(
        record.node(&id("a")).unwrap().generation,
        Generation::new(3),
        "2 was the last one"
    );
    let record = through(&record, &from("b"), &TO_DONE)
        .end_change(9_000)
        .unwrap();
    let record = applied(&record, &[remove("a")]);
    let record = through(&record, &from("a"), &TO_DONE)
        .end_change(9_000)
        .unwrap();
    assert_eq!(record.retired().len(), 1);
    assert_eq!(record.retired()[0].generation, Generation::new(4));
}

#[test]
fn a_lost_node_flips_without_a_copy_and_says_what_went() {
    let edit = Edit::RemoveLost {
        id: id("b"),
        keys_counted: 1_234,
    };
    let record = applied(&record("a b c", 10), &[edit]);
    assert_eq!(record.node(&id("b")).unwrap().state, NodeState::Down);
    let error = record.step(&from("b"), &Step::Copying, 9_000).unwrap_err();
    let order = StepError::OutOfOrder {
        from: HandoffState::Planned,
        to: HandoffState::Copying,
    };
    assert_eq!(error, order, "there is nobody to copy from");
    let record = through(&record, &from("b"), &["flipped", "done"]);
    let ended = record.end_change(9_000).unwrap();
    assert_eq!(
        ended.finished().unwrap().handoffs[0].report.keys_lost,
        1_234
    );
    assert!(ended.node(&id("b")).is_none());
}

// Abort

#[test]
fn an_abort_before_the_flip_purges_the_copies_and_ends_where_it_began() {
    let before = record("a b", 10);
    let record = applied(&before, &[add("c")]);
    let record = through(&record, &from("a"), &["copying", "verifying", "handover"]);
    let aborted = record.abort(9_000).unwrap();
    assert_eq!(aborted.epoch(), record.epoch().next());
    assert_eq!(state(&aborted, &from("a")), HandoffState::Purging);
    assert_eq!(
        state(&aborted, &from("b")),
        HandoffState::Undone,
        "nothing was copied from it"
    );
    let error = aborted.end_change(9_000).unwrap_err();
    assert_eq!(
        error,
        StepError::NotOver {
            id: from("a"),
            state: HandoffState::Purging
        }
    );
    let ended = through(&aborted, &from("a"), &["undone"])
        .end_change(9_000)
        .unwrap();
    assert_eq!(ended.membership().layout(), before.membership().layout());
    assert_eq!(ended.retired()[0].id, id("c"));
    assert_eq!(
        ended.node(&id("a")).unwrap().generation,
        Generation::new(2),
        "fenced ones stay out"
    );
}

#[test]
fn an_abort_after_a_flip_brings_the_keys_back_by_a_reverse_handoff() {
    let before = record("a b c", 10);
    let record = applied(&before, &[add("d")]);
    let record = through(&record, &from("a"), &TO_DONE);
    let record = through(
        &record,
        &from("b"),
        &["copying", "verifying", "handover", "flipped", "cleaning"],
    );
    let record = through(&record, &from("c"), &["copying"]);
    let aborted = record.abort(9_000).unwrap();
    let change = aborted.change().unwrap();
    assert_eq!(
        state(&aborted, &from("b")),
        HandoffState::Flipped,
        "cleaning has stopped"
    );
    let back = change.handoff(&back_from("d")).unwrap();
    assert_eq!(
        (back.targets.as_slice(), back.state),
        (&[id("a"), id("b")][..], HandoffState::Planned)
    );
    assert_eq!(aborted.node(&id("d")).unwrap().state, NodeState::Leaving);
    let error = aborted.step(&from("c"), &Step::Undone, 9_000).unwrap_err();
    assert_eq!(error, StepError::StillReturning { from: id("d") });
    let error = aborted
        .step(&from("b"), &Step::Cleaning, 9_000)
        .unwrap_err();
    assert_eq!(error, StepError::Aborted);
    let returned = through(&aborted, &back_from("d"), &TO_DONE);
    let ended = through(&returned, &from("c"), &["undone"])
        .end_change(9_000)
        .unwrap();
    assert_eq!(ended.membership().layout(), before.membership().layout());
    assert!(
        ended
            .membership()
            .nodes
            .iter()
            .all(|node| node.state == NodeState::Active)
    );
}

#[test]
fn an_abort_restores_weights_and_leavers() {
    let before = record("a=2 b c", 10);
    let record = applied(&before, &[set_weight("a", "1"), remove("c")]);
    assert_eq!(record.node(&id("a")).unwrap().weight.to_string(), "1");
    let aborted = record.abort(9_000).unwrap();
    assert_eq!(aborted.node(&id("a")).unwrap().weight.to_string(), "2");
    assert_eq!(aborted.node(&id("c")).unwrap().state, NodeState::Active);
    let ended = aborted.end_change(9_000).unwrap();
    assert_eq!(ended.membership().layout(), before.membership().layout());
    assert!(ended.retired().is_empty());
}

#[test]
fn what_cannot_be_aborted_is_refused() {
    assert_eq!(record("a", 10).abort(1), Err(AbortError::NoChange));
    let running = applied(&record("a b", 10), &[add("c")]);
    let aborted = running.abort(9_000).unwrap();
    let id_of_change: ChangeId = "change".parse().unwrap();
    assert_eq!(
        aborted.abort(9_001),
        Err(AbortError::GoingBack { id: id_of_change })
    );
    let lost = Edit::RemoveLost {
        id: id("b"),
        keys_counted: 0,
    };
    let lost = through(
        &applied(&record("a b", 10), &[lost]),
        &from("b"),
        &["flipped"],
    );
    assert_eq!(
        lost.abort(9_000),
        Err(AbortError::NodeLost { node: id("b") })
    );
}

#[test]
fn a_target_that_came_back_as_another_is_taken_as_it_is_when_an_operator_says_so() {
    let record = applied(&record("a b", 10), &[add("c")]);
    let other = run_of(&id("another"));
    let never = StepError::NeverFlipped { target: id("c") };
    assert_eq!(record.accept_target(&id("c"), &other), Err(never));
    let flipped = through(&record, &from("a"), &TO_FLIP);
    let accepted = flipped.accept_target(&id("c"), &other).unwrap();
    assert_eq!(
        accepted.change().unwrap().handoffs[0].flip[0].incarnation,
        other
    );
    assert_eq!(
        accepted.epoch(),
        flipped.epoch(),
        "routers see no difference"
    );
}

#[test]
fn credentials_can_be_renewed_and_runs_recognised_outside_a_change() {
    let record = record("a b", 10);
    let renewed = record
        .renew_credential(&id("a"), Generation::new(7), Nonce::new([3; 16]))
        .unwrap();
    assert_eq!(
        renewed.node(&id("a")).unwrap().generation,
        Generation::new(7)
    );
    assert_eq!(renewed.epoch(), record.epoch().next());
    let unknown = StepError::UnknownNode { node: id("z") };
    let error = record
        .renew_credential(&id("z"), Generation::new(7), Nonce::new([3; 16]))
        .unwrap_err();
    assert_eq!(error, unknown);
    let recognised = record.recognise(&id("a"), run_of(&id("a"))).unwrap();
    assert_eq!(recognised.epoch(), record.epoch());
    assert_eq!(record.recognise(&id("z"), run_of(&id("a"))), Err(unknown));
}
