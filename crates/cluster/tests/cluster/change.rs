//! The steps of handoffs, abort and end: what each does to a record, and what it refuses.

use clockwise_cluster::{
    AbortError, ChangeId, Edit, Generation, Generator, HandoffId, HandoffState, NodeState, Nonce,
    Record, Step, StepError,
};

use crate::pool::{
    TO_DONE, TO_FLIP, add, applied, from, id, record, remove, run_of, set_weight, step_to, through,
};

fn state(record: &Record, handoff: &HandoffId) -> HandoffState {
    record.change().unwrap().handoff(handoff).unwrap().state
}

fn back_from(name: &str) -> HandoffId {
    HandoffId::reverse(id(name))
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
        keys_counted: Some(1_234),
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
        keys_counted: Some(0),
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
fn runs_are_recognised_outside_a_change_and_routers_see_no_difference() {
    let record = record("a b", 10);
    let unknown = StepError::UnknownNode { node: id("z") };
    let recognised = record.recognise(&id("a"), run_of(&id("a"))).unwrap();
    assert_eq!(recognised.epoch(), record.epoch());
    assert_eq!(record.recognise(&id("z"), run_of(&id("a"))), Err(unknown));
}
