//! Random walks through a change: whatever is done in whatever order, it comes to an end, and keys change
//! their owner at a flip and nowhere else.

use std::collections::BTreeMap;

use clockwise_cluster::{Edit, Generation, Generator, HandoffId, Record, SlotRules, Step, View};
use clockwise_placement::{NodeId, Position};

use crate::pool::{add, address, applied, id, record, remove, step_to, through, try_apply};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(bound).unwrap()).unwrap()
    }
}

/// Something that can be done to a record, and the record after it.
enum Move {
    Step(HandoffId, Step),
    RollBackStale,
    Abort,
    End,
}

const STATES: [&str; 7] = [
    "copying",
    "verifying",
    "handover",
    "flipped",
    "cleaning",
    "done",
    "undone",
];

/// Everything that may be done now.
fn moves(record: &Record, now_ms: u64) -> Vec<(Move, Record)> {
    let mut moves = Vec::new();
    for handoff in &record.change().unwrap().handoffs {
        for state in STATES {
            let step = step_to(record, &handoff.id(), state);
            if let Ok(next) = record.step(&handoff.id(), &step, now_ms) {
                moves.push((Move::Step(handoff.id(), step), next));
            }
        }
    }
    moves.extend(
        record
            .roll_back_stale_handover(now_ms)
            .map(|next| (Move::RollBackStale, next)),
    );
    moves.extend(record.abort(now_ms).map(|next| (Move::Abort, next)));
    moves.extend(record.end_change(now_ms).map(|next| (Move::End, next)));
    moves
}

fn owners(record: &Record, probes: &[Position]) -> Vec<NodeId> {
    let view = View::from_record(record).unwrap();
    let owner = |&position: &Position| view.node(view.route(position.into()).node).id.clone();
    probes.iter().map(owner).collect()
}

/// The highest generation that each id ever had in this record.
fn generations(record: &Record) -> BTreeMap<NodeId, Generation> {
    let retired = record
        .retired()
        .iter()
        .map(|tombstone| (tombstone.id.clone(), tombstone.generation));
    let nodes = record
        .membership()
        .nodes
        .iter()
        .map(|node| (node.id.clone(), node.generation));
    retired.chain(nodes).collect()
}

/// Walks until the change has ended. Prefers going on to turning back, lest every walk be an abort.
fn walk(start: &Record, seed: u64) {
    let mut random = Random(seed);
    let change = start.change().unwrap();
    let built = [
        change.before.build().unwrap(),
        change.after.build().unwrap(),
    ];
    let probes: Vec<Position> = built
        .iter()
        .flat_map(|side| side.points().map(|(point, _)| point))
        .collect();
    let mut record = start.clone();
    let mut view = View::from_record(start).unwrap();
    for steps in 1.. {
        assert!(steps < 2_000, "seed {seed}: no end after {steps} steps");
        let now_ms = 10_000 * steps;
        let mut moves = moves(&record, now_ms);
        assert!(
            !moves.is_empty(),
            "seed {seed}: nothing can be done in {:?}",
            record.change()
        );
        let (taken, next) = moves.swap_remove(random.below(moves.len()));
        if matches!(taken, Move::Abort) && random.below(10) > 0 {
            continue;
        }
        check_move(&record, &next, &taken, &probes, seed);
        record = next;
        // A view renewed all the way is the one that is made afresh.
        view = view.renewed(&record).unwrap();
        assert_eq!(
            view.fingerprint(),
            View::from_record(&record).unwrap().fingerprint()
        );
        let route = |&position: &Position| view.node(view.route(position.into()).node).id.clone();
        assert_eq!(
            probes.iter().map(route).collect::<Vec<_>>(),
            owners(&record, &probes)
        );
        if matches!(taken, Move::End) {
            return;
        }
    }
}

fn check_move(before: &Record, after: &Record, taken: &Move, probes: &[Position], seed: u64) {
    assert!(
        after.epoch() >= before.epoch(),
        "seed {seed}: the epoch never decreases"
    );
    let flips = matches!(taken, Move::Step(_, Step::Flip { .. }));
    if !flips {
        let same = owners(before, probes) == owners(after, probes);
        assert!(same, "seed {seed}: keys changed their owner without a flip");
    }
    let (old, new) = (generations(before), generations(after));
    for (node, generation) in old {
        assert!(
            new[&node] >= generation,
            "seed {seed}: generation of {node} went back"
        );
    }
    if let Move::Step(handoff, step) = taken {
        let entry = after.change().unwrap().handoff(handoff).unwrap();
        assert_eq!(entry.state, step.state(), "seed {seed}");
    }
    let bytes = after.encode().unwrap();
    assert_eq!(&Record::decode(&bytes).unwrap(), after, "seed {seed}");
}

#[test]
fn every_walk_through_a_change_ends_and_only_flips_change_owners() {
    let points = |points_per_weight| Edit::SetGenerator {
        generator: Generator::Ring { points_per_weight },
    };
    let slots = || Edit::SetGenerator {
        generator: Generator::planned_slots(16, SlotRules::default()),
    };
    let lost = Edit::RemoveLost {
        id: id("b"),
        keys_counted: Some(7),
    };
    for (nodes, edits) in [
        ("a b c", vec![slots()]),
        ("a b c", vec![slots(), remove("b"), add("d")]),
        ("a b c", vec![add("d")]),
        ("a b c", vec![remove("b")]),
        ("a b c", vec![points(7)]),
        ("a b c", vec![lost, add("d")]),
        ("a b", vec![add("c"), remove("a"), add("d")]),
    ] {
        let start = applied(&record(nodes, 5), &edits);
        for seed in 0..60 {
            walk(&start, seed);
        }
    }
    let slots = finished(&applied(&record("a b c", 5), &[slots()]));
    for edits in [vec![add("d")], vec![remove("b")], vec![points(7)]] {
        for seed in 0..60 {
            walk(&applied(&slots, &edits), seed);
        }
    }
}

/// A random edit of one of the nodes a to h.
fn random_edit(record: &Record, random: &mut Random) -> Edit {
    let name = char::from(b'a' + u8::try_from(random.below(8)).unwrap()).to_string();
    let weight = ["0.5", "1", "2", "3.25"][random.below(4)].parse().unwrap();
    match record.node(&id(&name)) {
        None => Edit::Add {
            id: id(&name),
            address: address(&name),
            weight,
            domain: "".parse().unwrap(),
        },
        Some(_) if random.below(2) == 0 => remove(&name),
        Some(_) => Edit::SetWeight {
            id: id(&name),
            weight,
        },
    }
}

/// Takes every handoff to its end, and the change with them.
fn finished(record: &Record) -> Record {
    let Some(change) = record.change() else {
        return record.clone();
    };
    // All flip before any is cleaned: a source that still gets keys is not cleaned.
    let mut record = record.clone();
    for states in [
        &["copying", "verifying", "handover", "flipped"][..],
        &["cleaning", "done"],
    ] {
        for handoff in &change.handoffs {
            record = through(&record, &handoff.id(), states);
        }
    }
    record.end_change(1).unwrap()
}

#[test]
fn after_any_sequence_of_changes_the_pool_is_what_a_new_one_would_be_and_moved_no_more_than_it_had_to()
 {
    for seed in 0..40 {
        let mut random = Random(seed);
        let mut pool = record("a b c", 40);
        let mut applied_changes = 0;
        for _ in 0..12 {
            let edit = random_edit(&pool, &mut random);
            let Ok(staged) = pool.stage(edit.clone()) else {
                continue;
            };
            let plan = staged.plan(&BTreeMap::new()).unwrap();
            let excess = plan.moves.copies - plan.moves.copies_least;
            assert!(
                excess.abs() < 1e-9,
                "seed {seed}: {edit} moves {excess} too much"
            );
            let next = try_apply(&staged).unwrap();
            assert_eq!(plan.at_once, next.change().is_none(), "seed {seed}: {edit}");
            for (node, generation) in generations(&pool) {
                assert!(
                    generations(&next)[&node] >= generation,
                    "seed {seed}: {edit}"
                );
            }
            pool = finished(&next);
            applied_changes += 1;
        }
        assert!(
            applied_changes >= 5,
            "seed {seed}: only {applied_changes} edits were fit to apply"
        );
        let nodes = pool.membership().nodes.iter();
        let nodes: Vec<String> = nodes
            .map(|node| format!("{}={}", node.id, node.weight))
            .collect();
        let fresh = record(&nodes.join(" "), 40);
        let fingerprint = |record: &Record| View::from_record(record).unwrap().fingerprint();
        assert_eq!(fingerprint(&pool), fingerprint(&fresh), "seed {seed}");
    }
}
