//! Edits and `apply`: what each makes of a record, and what is refused.

use std::collections::BTreeMap;

use clockwise_cluster::{
    AbortError, Apply, ApplyError, ChangeId, Edit, EditError, Epoch, Generation, Generator,
    HandoffState, HashSpec, Incarnation, LayoutError, NewPool, NodeState, Nonce, Protocol, Record,
    SchemeSpec, ServiceClass, SpreadRule, StageError, StagedId, StaleEdit, Step, StepError,
    TooLarge, Unstage, UnstageError, Warning,
};
use clockwise_placement::PlacementError;

use crate::pool::{
    TO_DONE, add, address, applied, from, id, nonces, pool, record, remove, set_domain, set_weight,
    staged, through, try_apply,
};

fn refused(record: &Record, edit: Edit) -> EditError {
    match record.stage(edit) {
        Err(StageError::Edit(error)) => error,
        other => panic!("expected a refused edit, got {other:?}"),
    }
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
        .apply(Apply {
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
fn too_few_domains_are_refused_where_the_pool_asks_for_distinct_ones() {
    let mut spec = pool("a b c", 10);
    for (node, zone) in spec.nodes.iter_mut().zip(["z1", "z2", "z2"]) {
        node.domain = zone.parse().unwrap();
    }
    spec.class = ServiceClass::Cache;
    spec.replicas = 2;
    let record = Record::create(spec, &mut nonces()).unwrap();
    let spread = SpreadRule::Distinct { depth: 1 };
    let strict = applied(&record, &[Edit::SetSpread { spread }]);
    assert_eq!(strict.membership().spread, spread);
    let error = try_apply(&staged(&strict, &[remove("a")])).unwrap_err();
    let (replicas, domains, depth) = (2, 1, 1);
    let too_few = PlacementError::TooFewDomains {
        replicas,
        domains,
        depth,
    };
    assert_eq!(error, ApplyError::Layout(LayoutError::Placement(too_few)));
    assert!(
        try_apply(&staged(&record, &[remove("a")])).is_ok(),
        "otherwise it is only said"
    );
}

#[test]
fn a_pool_that_cannot_be_fenced_flips_at_once_and_cleans_afterwards() {
    let spec = NewPool {
        protocol: Protocol::Memcached,
        class: ServiceClass::Cache,
        ..pool("a b", 10)
    };
    let record = Record::create(spec, &mut nonces()).unwrap();
    let planned = staged(&record, &[add("c")]);
    let plan = planned.plan(&BTreeMap::new()).unwrap();
    let misses =
        |warning: &Warning| matches!(warning, Warning::Misses { share, .. } if *share > 0.1);
    assert!(plan.warnings.iter().any(misses), "{:?}", plan.warnings);
    let applied = try_apply(&planned).unwrap();
    let handoff = applied.change().unwrap().handoffs[0].id();
    let targets = vec![Incarnation {
        run_id: "7-1000".parse().unwrap(),
        replication_id: "7-1000".parse().unwrap(),
    }];
    for step in [Step::Copying, Step::Cleaning, Step::Done] {
        let error = applied.step(&handoff, &step, 2_000).unwrap_err();
        assert!(matches!(error, StepError::OutOfOrder { .. }), "{error}");
    }
    let flipped = applied
        .step(&handoff, &Step::Flip { targets }, 2_000)
        .unwrap();
    assert_eq!(flipped.epoch(), applied.epoch().next());
    let abort = flipped.abort(2_500).unwrap_err();
    assert!(matches!(abort, AbortError::Unfenced { .. }), "{abort}");
    let cleaning = flipped.step(&handoff, &Step::Cleaning, 3_000).unwrap();
    let done = cleaning.step(&handoff, &Step::Done, 4_000).unwrap();
    assert_eq!(done.epoch(), flipped.epoch(), "routers see no difference");
    let moved = Edit::SetAddress {
        id: id("a"),
        address: address("x"),
    };
    assert!(try_apply(&staged(&record, &[moved])).is_ok());
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
    let record = Record::create(spec, &mut nonces()).unwrap();
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
        rules: None,
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
        rules: None,
    };
    let slots = Record::create(
        NewPool {
            generator,
            ..pool("a b", 1)
        },
        &mut nonces(),
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
