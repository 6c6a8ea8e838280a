//! Planned slots in a record: the table is planned once, kept, and the same for every reader.

use std::collections::BTreeMap;

use clockwise_cluster::{
    ApplyError, Edit, Generator, InvalidRecord, NewPool, Plan, Record, Remedy, SlotRules, TooLarge,
    View, Warning,
};
use clockwise_placement::NodeId;

use crate::pool::{
    add, address, applied, id, nonces, pool, record, remove, set_weight, staged, through, try_apply,
};

fn by(slots: u32, rules: SlotRules) -> Generator {
    Generator::planned_slots(slots, rules)
}

fn slots_of(nodes: &str, slots: u32) -> Record {
    let new = NewPool {
        generator: by(slots, SlotRules::default()),
        ..pool(nodes, 1)
    };
    Record::create(new, &mut nonces()).unwrap()
}

fn set(generator: Generator) -> Edit {
    Edit::SetGenerator { generator }
}

/// How many slots each node owns first.
fn owned(record: &Record) -> BTreeMap<NodeId, usize> {
    let Generator::Slots { owners, table, .. } = &record.membership().generator else {
        panic!("no slots: {}", record.membership().generator)
    };
    let width = usize::from(record.membership().replicas);
    let mut owned = BTreeMap::new();
    for row in table.chunks(width) {
        *owned
            .entry(owners[usize::from(row[0])].clone())
            .or_default() += 1;
    }
    owned
}

fn counts(record: &Record) -> Vec<usize> {
    owned(record).into_values().collect()
}

fn plan(record: &Record, edits: &[Edit]) -> Plan {
    staged(record, edits).plan(&BTreeMap::new()).unwrap()
}

/// The pool after these edits, every handoff taken to its end.
fn after(record: &Record, edits: &[Edit]) -> Record {
    let mut next = applied(record, edits);
    let Some(change) = next.change().cloned() else {
        return next;
    };
    for states in [
        &["copying", "verifying", "handover", "flipped"][..],
        &["cleaning", "done"],
    ] {
        for handoff in &change.handoffs {
            next = through(&next, &handoff.id(), states);
        }
    }
    next.end_change(1).unwrap()
}

#[test]
fn a_new_pool_of_slots_is_even_and_whoever_reads_its_record_decides_alike() {
    let record = slots_of("a b c", 64);
    assert_eq!(counts(&record), [22, 21, 21]);
    let read = Record::decode(&record.encode().unwrap()).unwrap();
    assert_eq!(read, record);
    let [ours, theirs] = [&record, &read].map(|record| View::from_record(record).unwrap());
    assert_eq!(ours.fingerprint(), theirs.fingerprint());
    for number in 0..1_000 {
        let key = format!("user:{number}");
        assert_eq!(ours.owner(key.as_bytes()), theirs.owner(key.as_bytes()));
    }
    assert_eq!(slots_of("a b c", 64), record, "planned the same twice");
}

#[test]
fn a_change_of_slots_moves_no_more_than_it_must_and_ends_as_even_as_slots_can_be() {
    let pool = slots_of("a b c d", 256);
    for (edit, shares) in [
        (add("e"), vec![("a", 51.2), ("d", 51.2), ("e", 51.2)]),
        (remove("b"), vec![("a", 85.3), ("c", 85.3), ("d", 85.3)]),
        (
            set_weight("a", "2"),
            vec![("a", 102.4), ("b", 51.2), ("d", 51.2)],
        ),
    ] {
        let plan = plan(&pool, std::slice::from_ref(&edit));
        let excess = plan.moves.copies - plan.moves.copies_least;
        assert!(excess.abs() < 1e-9, "{edit}: {excess} too much");
        assert_eq!(plan.moves.copies_needless, Some(0.0), "{edit}");
        let owned = owned(&after(&pool, std::slice::from_ref(&edit)));
        for (node, share) in shares {
            let off = owned[&id(node)] as f64 - share;
            assert!(
                off.abs() < 1.0,
                "{edit}: {node} is {off} slots off its share"
            );
        }
    }
}

#[test]
fn only_the_keys_of_slots_that_the_plan_names_change_their_owner() {
    let pool = slots_of("a b c", 64);
    let plan = plan(&pool, &[add("d")]);
    let done = after(&pool, &[add("d")]);
    let (before, now) = (
        View::from_record(&pool).unwrap(),
        View::from_record(&done).unwrap(),
    );
    let mut moved = 0;
    for number in 0..2_000 {
        let key = format!("user:{number}");
        let (old, new) = (before.owner(key.as_bytes()), now.owner(key.as_bytes()));
        let position = pool
            .membership()
            .layout()
            .build()
            .unwrap()
            .position(key.as_bytes());
        let named = plan.moves.intervals.iter().find(|interval| {
            clockwise_placement::Interval {
                after: interval.after,
                through: interval.through,
            }
            .contains(position)
        });
        match named {
            None => assert_eq!(old, new, "{key}"),
            Some(interval) => {
                moved += 1;
                assert_eq!((old, new), (&interval.source, &interval.target), "{key}");
            }
        }
    }
    assert!((400..600).contains(&moved), "a quarter of 2,000: {moved}");
}

#[test]
fn a_ring_becomes_slots_and_a_ring_again_and_an_abort_leaves_it_a_ring() {
    let ring = record("a b c", 20);
    let to_slots = set(by(64, SlotRules::default()));
    let running = applied(&ring, std::slice::from_ref(&to_slots));
    assert_eq!(running.change().unwrap().handoffs.len(), 3);
    let undone = running.abort(2).unwrap().end_change(3).unwrap();
    assert_eq!(undone.membership().layout(), ring.membership().layout());

    let slots = after(&ring, &[to_slots]);
    assert!(counts(&slots).iter().all(|count| (21..=22).contains(count)));
    let generator = ring.membership().generator.clone();
    let back = after(&slots, &[set(generator)]);
    assert_eq!(back.membership().layout(), ring.membership().layout());
}

#[test]
fn a_newcomer_takes_exactly_the_slots_of_the_node_it_replaces() {
    for slots in 60..80 {
        let pool = slots_of("a b=2 c", slots);
        let edit = Edit::Replace {
            id: id("b"),
            by: id("n"),
            address: address("n"),
        };
        let plan = plan(&pool, std::slice::from_ref(&edit));
        let flows = plan.moves.flows.iter();
        let flows: Vec<_> = flows.map(|flow| (&flow.source, &flow.target)).collect();
        assert_eq!(flows, [(&id("b"), &id("n"))], "{slots} slots");
        let (mut before, now) = (owned(&pool), owned(&after(&pool, &[edit])));
        let replaced = before.remove(&id("b")).unwrap();
        before.insert(id("n"), replaced);
        assert_eq!(before, now, "{slots} slots");
    }
}

#[test]
fn what_does_not_move_a_table_leaves_it_as_it_is() {
    let pool = slots_of("a b c", 64);
    let same = set(by(64, SlotRules::default()));
    assert_eq!(
        try_apply(&staged(&pool, &[same])),
        Err(ApplyError::NoEffect)
    );
    let edit = Edit::SetAddress {
        id: id("a"),
        address: address("z"),
    };
    let moved = applied(&pool, &[edit]);
    assert!(moved.change().is_none());
    assert_eq!(moved.membership().generator, pool.membership().generator);
    // Other rules are kept for the next change, and no key moves now.
    let rules = SlotRules {
        overload_percent: 5,
        ..SlotRules::default()
    };
    let ruled = applied(&pool, &[set(by(64, rules))]);
    assert!(ruled.change().is_none());
    assert_eq!(
        ruled.membership().generator.to_string(),
        "64 planned slots, overload 5 %"
    );
    assert_eq!(owned(&ruled), owned(&pool));
}

#[test]
fn a_change_in_steps_moves_its_share_at_a_time_until_the_best_balance_is_reached() {
    let rules = SlotRules {
        step_percent: 5,
        ..SlotRules::default()
    };
    let again = || set(by(200, rules));
    let mut pool = after(&slots_of("a b c", 200), &[again()]);
    let mut edits = vec![add("d")];
    let mut left = Vec::new();
    loop {
        let plan = plan(&pool, &edits);
        assert!(plan.moves.copies <= 0.05 + 1e-9, "{}", plan.moves.copies);
        left.push(plan.slots.unwrap().copies_left);
        pool = after(&pool, &edits);
        if left.last() == Some(&0.0) {
            break;
        }
        edits = vec![again()];
        assert!(left.len() < 10, "{left:?}");
    }
    assert_eq!(left.len(), 5, "a quarter by twentieths: {left:?}");
    assert_eq!(counts(&pool), [50, 50, 50, 50]);
    assert_eq!(
        try_apply(&staged(&pool, &[again()])),
        Err(ApplyError::NoEffect)
    );
}

fn by_steps_of(step_percent: u8, slots: u32) -> Generator {
    let overload_percent = 0;
    by(
        slots,
        SlotRules {
            overload_percent,
            step_percent,
        },
    )
}

/// What a plan says about a step that is above its limit.
fn beyond_step(plan: &Plan) -> Option<String> {
    let beyond = |warning: &&Warning| matches!(warning, Warning::BeyondStep { .. });
    Some(plan.warnings.iter().find(beyond)?.to_string())
}

#[test]
fn a_ring_becomes_slots_within_a_step_or_the_plan_says_what_cannot_wait() {
    let weighed = [set_weight("a", "2"), set(by_steps_of(5, 4_096))];
    let fine = plan(&record("a b c", 20), &weighed);
    assert!(fine.moves.copies <= 0.05 + 1e-9, "{}", fine.moves.copies);
    assert_eq!(beyond_step(&fine), None);
    assert!(fine.slots.unwrap().copies_left > 0.0);
    assert!(
        fine.to_string()
            .contains("still have to move after this step")
    );

    let coarse = plan(&record("a b c", 100), &[set(by_steps_of(5, 64))]);
    let moved = format!("{:.1} %", coarse.moves.copies * 100.0);
    assert!(coarse.moves.copies > 0.05, "{moved}");
    let reason = "of slots that several nodes share now, where a slot has one list of owners \
                  (more slots, less of it)";
    let words = format!("{moved} of the copies move, although a step is 5 %: {moved} {reason}");
    assert_eq!(beyond_step(&coarse), Some(words));
}

#[test]
fn what_a_leaving_node_has_moves_in_one_step_and_the_plan_says_so() {
    let mut pool = slots_of("a b c d", 400);
    pool = after(&pool, &[set(by_steps_of(5, 400))]);
    let words =
        "25.0 % of the copies move, although a step is 5 %: 25.0 % in slots of nodes that leave";
    let plan = plan(&pool, &[remove("b")]);
    assert_eq!(beyond_step(&plan).as_deref(), Some(words));
    assert!((plan.moves.copies - 0.25).abs() < 1e-9);
}

#[test]
fn what_evens_out_a_loaded_node_is_named_by_what_its_pool_has() {
    let remedy = |record: &Record, edits: &[Edit]| {
        let uneven = plan(record, edits)
            .warnings
            .into_iter()
            .find_map(|warning| {
                let words = warning.to_string();
                match warning {
                    Warning::Uneven { remedy, .. } => Some((remedy, words)),
                    _ => None,
                }
            });
        uneven.unwrap()
    };
    let (points, words) = remedy(&record("a b c d", 1), &[add("e")]);
    assert_eq!(points, Remedy::Points, "{words}");
    let (slots, words) = remedy(&slots_of("a b c", 2), &[add("d")]);
    assert_eq!(slots, Remedy::Slots, "{words}");
    let alone = after(&slots_of("a", 100), &[set(by_steps_of(5, 100))]);
    let (steps, words) = remedy(&alone, &[add("b")]);
    assert_eq!(steps, Remedy::Steps);
    assert_eq!(
        words,
        "a has 1.90 times its fair part: the steps that are left even it out"
    );
}

#[test]
fn a_newcomer_that_a_first_step_passes_over_is_not_said_to_be_of_no_help() {
    let mut pool = slots_of("a b c", 30);
    pool = after(&pool, &[set(by_steps_of(4, 30))]);
    let plan = plan(&pool, &[add("d")]);
    assert!(plan.slots.unwrap().copies_left > 0.0);
    let helpless = |warning: &Warning| matches!(warning, Warning::CannotHelp { .. });
    assert!(!plan.warnings.iter().any(helpless), "{:?}", plan.warnings);
}

#[test]
fn a_newcomer_that_takes_the_place_of_another_is_not_said_to_be_of_no_help() {
    let pool = slots_of("a b c", 30);
    let helpless = |warning: &Warning| matches!(warning, Warning::CannotHelp { .. });
    let replaced = plan(&pool, &[add("d"), remove("c")]);
    assert!(
        !replaced.warnings.iter().any(helpless),
        "{:?}",
        replaced.warnings
    );
}

#[test]
fn a_table_costs_two_or_three_bytes_a_copy_and_one_that_does_not_fit_is_refused_with_the_figure() {
    let ring = record("a b c d e f g h i j", 200).encode().unwrap().len();
    let slots = slots_of("a b c d e f g h i j", 4_096)
        .encode()
        .unwrap()
        .len();
    assert!((8_192..9_000).contains(&(slots - ring)), "{}", slots - ring);

    let nodes: Vec<String> = (0..20)
        .map(|n| format!("{}", char::from(b'A' + n)))
        .collect();
    let large = staged(
        &record(&nodes.join(" "), 10),
        &[set(by(65_536, SlotRules::default()))],
    );
    let plan = large.plan(&BTreeMap::new()).unwrap();
    assert!(
        plan.refusals.is_empty(),
        "65,536 slots of one copy fit: {:?}",
        plan.refusals
    );
    // Three copies of each fit once, but not three times, as a change has them.
    let three = |generator| NewPool {
        replicas: 3,
        class: clockwise_cluster::ServiceClass::Cache,
        generator,
        ..pool(&nodes.join(" "), 10)
    };
    let rules = SlotRules::default();
    let ring = Record::create(three(Generator::default()), &mut nonces()).unwrap();
    let large = staged(&ring, &[set(by(65_536, rules))]);
    let plan = large.plan(&BTreeMap::new()).unwrap();
    let refused = &plan.refusals[..];
    assert!(
        matches!(refused, [ApplyError::TooLarge(TooLarge { bytes, .. })] if *bytes > 1 << 20),
        "{refused:?}"
    );
    assert!(matches!(try_apply(&large), Err(ApplyError::TooLarge(_))));
    let new = Record::create(three(by(65_536, rules)), &mut nonces());
    assert!(matches!(new, Err(InvalidRecord::TooLarge(_))), "{new:?}");
}

#[test]
fn a_table_without_rules_is_read_as_one_that_stays_as_it_was_given() {
    let mut json: serde_json::Value =
        serde_json::from_slice(&slots_of("a b", 4).encode().unwrap()).unwrap();
    let generator = json["membership"]["generator"].as_object_mut().unwrap();
    assert_eq!(
        generator.remove("rules"),
        Some(serde_json::json!({"overload_percent": 0, "step_percent": 100}))
    );
    let record = Record::decode(json.to_string().as_bytes()).unwrap();
    assert_eq!(record.membership().generator.to_string(), "4 slots");
    assert!(matches!(
        try_apply(&staged(&record, &[remove("b")])),
        Err(ApplyError::Layout(_))
    ));
}
