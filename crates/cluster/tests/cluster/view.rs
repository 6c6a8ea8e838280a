//! Who owns what in every phase of a change, against a twin that follows the rule word for word.

use crate::pool::{add, applied, id, record, remove};
use clockwise_cluster::{
    Edit, Generator, HandoffId, HashSpec, Layout, Record, SchemeSpec, View, ViewError,
};
use clockwise_placement::{KeyHash, NodeId, Position, Scheme};
use serde_json::{Value, json};

const FORWARD: [&str; 7] = [
    "planned",
    "copying",
    "verifying",
    "handover",
    "flipped",
    "cleaning",
    "done",
];
const FROZEN: [&str; 4] = ["undone", "purging", "flipped", "done"];
const REVERSE: [&str; 5] = ["planned", "handover", "flipped", "cleaning", "done"];

/// The owner by a scan over all points: no table, no search.
fn owner(layout: &Layout, position: Position) -> NodeId {
    let Generator::Ring { points_per_weight } = &layout.generator else {
        panic!("a ring")
    };
    let scheme = scheme_of(layout);
    let mut points: Vec<(Position, NodeId)> = Vec::new();
    for seat in &layout.members {
        for copy in 0..points_per_weight * seat.weight.hundredths() / 100 {
            points.push((scheme.point(&seat.id, copy), seat.id.clone()));
        }
    }
    points.sort();
    let next = points
        .iter()
        .find(|(point, _)| *point >= position)
        .unwrap_or(&points[0]);
    next.1.clone()
}

fn scheme_of(layout: &Layout) -> Scheme {
    match layout.scheme.hash {
        HashSpec::Xxh3 { seed } => Scheme::v1(KeyHash::Xxh3 { seed }),
        ref other => panic!("no test uses {other:?}"),
    }
}

/// The rule of the ownership of a key, as the contract states it.
fn expected(record: &Record, before: &NodeId, after: &NodeId) -> (NodeId, bool) {
    if before == after {
        return (before.clone(), false);
    }
    let change = record.change().unwrap();
    let state = |entry: Option<&clockwise_cluster::Handoff>| entry.map(|entry| entry.state.name());
    let flipped = |state: &str| matches!(state, "flipped" | "cleaning" | "done");
    let forward = state(change.forward(before)).expect("a key that moves has a handoff");
    if !flipped(forward) {
        return (before.clone(), forward == "handover");
    }
    match state(change.reverse(after)) {
        None => (after.clone(), false),
        Some(reverse) if !flipped(reverse) => (after.clone(), reverse == "handover"),
        Some(_) => (before.clone(), false),
    }
}

/// Every point of both sides and the positions beside it.
fn probes(record: &Record) -> Vec<Position> {
    let change = record.change().unwrap();
    let mut probes = vec![Position(0), Position(u64::MAX)];
    for layout in [&change.before, &change.after] {
        let built = layout.build().unwrap();
        for (point, _) in built.points() {
            probes.extend([-1, 0, 1].map(|step| Position(point.0.wrapping_add_signed(step))));
        }
    }
    probes
}

fn check_view(record: &Record, probes: &[Position]) {
    let view = View::from_record(record).unwrap();
    let change = record.change().unwrap();
    for &position in probes {
        let before = owner(&change.before, position);
        let after = owner(&change.after, position);
        let (node, hold) = expected(record, &before, &after);
        let route = view.route(position.into());
        let states = || {
            change
                .handoffs
                .iter()
                .map(|h| (h.id(), h.state))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (&view.node(route.node).id, route.hold),
            (&node, hold),
            "{position} in {:?}",
            states()
        );
        let preferred: Vec<_> = view.preference(position.into()).collect();
        assert_eq!(preferred[0], route.node, "{position} in {:?}", states());
        assert_eq!(view.replicas(position.into()).next(), Some(route.node));
        check_moving_sets(record, &view, position, &before, &after);
    }
}

/// A key is in the moving set of exactly the handoffs that move it, whatever state they are in.
fn check_moving_sets(
    record: &Record,
    view: &View,
    position: Position,
    before: &NodeId,
    after: &NodeId,
) {
    let moving = view.moving(position.into());
    assert_eq!(moving.is_some(), before != after);
    for handoff in &record.change().unwrap().handoffs {
        let target = view
            .moving_set(&handoff.id())
            .unwrap()
            .target(position.into());
        let target = target.map(|node| view.node(node).id.clone());
        let expected = if handoff.is_reverse() {
            let came = record
                .change()
                .unwrap()
                .forward(before)
                .is_some_and(|f| f.state.is_flipped());
            (handoff.source == *after && before != after && came).then(|| before.clone())
        } else {
            (handoff.source == *before && before != after).then(|| after.clone())
        };
        assert_eq!(target, expected, "{position} of {}", handoff.id());
    }
}

/// All lists of `length` words out of `words`.
fn all_lists(words: &[&'static str], length: usize) -> Vec<Vec<&'static str>> {
    (0..length).fold(vec![vec![]], |lists, _| {
        let longer = |list: &Vec<&'static str>| {
            let list = list.clone();
            words
                .iter()
                .map(move |word| [&list[..], &[word]].concat())
                .collect::<Vec<_>>()
        };
        lists.iter().flat_map(longer).collect()
    })
}

fn put(handoff: &mut Value, state: &str) {
    handoff["state"] = json!(state);
    let flipped = ["flipped", "cleaning", "done"].contains(&state);
    let run = |target: &Value| json!({"target": target, "run_id": "run", "replication_id": "data"});
    handoff["flip"] = match flipped {
        true => handoff["targets"]
            .as_array()
            .unwrap()
            .iter()
            .map(run)
            .collect(),
        false => json!([]),
    };
}

/// Every record that this change can be in.
fn every_phase(applied: &Record) -> Vec<Record> {
    let stored: Value = serde_json::from_slice(&applied.encode().unwrap()).unwrap();
    let sources = applied.change().unwrap().handoffs.len();
    let mut records = Vec::new();
    let mut keep = |value: &Value| {
        // Two handovers at once are refused; everything else that is built here is valid.
        if value.to_string().matches(r#""state":"handover""#).count() < 2 {
            records.push(Record::decode(&serde_json::to_vec(value).unwrap()).unwrap());
        }
    };
    for states in all_lists(&FORWARD, sources) {
        let mut value = stored.clone();
        for (at, state) in states.iter().enumerate() {
            put(&mut value["change"]["handoffs"][at], state);
        }
        keep(&value);
    }
    for states in all_lists(&FROZEN, sources) {
        let mut value = stored.clone();
        value["change"]["direction"] = json!("back");
        for node in value["membership"]["nodes"].as_array_mut().unwrap() {
            let stays = applied
                .change()
                .unwrap()
                .before
                .has(&id(node["id"].as_str().unwrap()));
            node["state"] = json!(if stays { "active" } else { "leaving" });
        }
        let mut back = std::collections::BTreeMap::<String, Vec<Value>>::new();
        for (at, state) in states.iter().enumerate() {
            let handoff = &mut value["change"]["handoffs"][at];
            put(handoff, state);
            if handoff["flip"] != json!([]) {
                for target in handoff["targets"].as_array().unwrap() {
                    let target = target.as_str().unwrap().to_owned();
                    back.entry(target)
                        .or_default()
                        .push(handoff["source"].clone());
                }
            }
        }
        for reverse_states in all_lists(&REVERSE, back.len()) {
            let mut value = value.clone();
            for ((source, targets), state) in back.iter().zip(reverse_states) {
                let mut handoff = json!({
                    "source": source, "targets": targets, "kind": "reverse", "entered_at_ms": 1
                });
                put(&mut handoff, state);
                value["change"]["handoffs"]
                    .as_array_mut()
                    .unwrap()
                    .push(handoff);
            }
            keep(&value);
        }
    }
    records
}

fn set_weight(name: &str, weight: &str) -> Edit {
    Edit::SetWeight {
        id: id(name),
        weight: weight.parse().unwrap(),
    }
}

#[test]
fn in_every_phase_of_every_small_change_the_view_routes_as_the_rule_says() {
    let mut phases = 0;
    for (nodes, points, edits) in [
        ("a b c", 5, vec![add("d")]),
        ("a b c", 5, vec![remove("b")]),
        ("a b c", 3, vec![add("d"), remove("a")]),
        (
            "a b c=2",
            1,
            vec![set_weight("c", "1"), set_weight("a", "3")],
        ),
        (
            "a b",
            2,
            vec![Edit::SetGenerator {
                generator: Generator::Ring {
                    points_per_weight: 3,
                },
            }],
        ),
        ("a", 3, vec![add("b"), add("c")]),
        ("a b c d", 5, vec![add("e"), add("f")]),
    ] {
        let applied = applied(&record(nodes, points), &edits);
        let probes = probes(&applied);
        for phase in every_phase(&applied) {
            check_view(&phase, &probes);
            phases += 1;
        }
    }
    assert!(phases > 3_000, "only {phases} phases were reached");
}

#[test]
fn a_change_of_scheme_moves_per_key_and_routes_by_both_positions() {
    let scheme = SchemeSpec::v1(HashSpec::Xxh3 { seed: 9 });
    let applied = applied(&record("a b", 3), &[Edit::SetScheme { scheme }]);
    let change = applied.change().unwrap();
    assert_eq!(change.handoffs.len(), 2, "any owner may give to any");
    let mut moved = 0;
    for phase in every_phase(&applied) {
        let view = View::from_record(&phase).unwrap();
        for key in (0..40).map(|n| format!("user:{n}")) {
            let before = owner(
                &change.before,
                scheme_of(&change.before).position(key.as_bytes()),
            );
            let after = owner(
                &change.after,
                scheme_of(&change.after).position(key.as_bytes()),
            );
            let (node, hold) = expected(&phase, &before, &after);
            let route = view.route(view.position(key.as_bytes()));
            assert_eq!(
                (&view.node(route.node).id, route.hold),
                (&node, hold),
                "{key}"
            );
            moved += usize::from(before != after);
        }
    }
    assert!(moved > 0);
}

#[test]
fn hash_tags_decide_ownership_so_switching_them_on_is_a_change() {
    let scheme = SchemeSpec::default().with_hash_tags(true);
    let applied = applied(&record("a b c", 10), &[Edit::SetScheme { scheme }]);
    let view = View::from_record(&applied).unwrap();
    let (tagged, tag) = (view.position(b"user:{42}:name"), view.position(b"42"));
    assert_ne!(
        tagged.before(),
        tag.before(),
        "before, the whole key was hashed"
    );
    assert_eq!(tagged.after(), tag.after());
    let untagged = view.position(b"user:42");
    assert_eq!(untagged.before(), untagged.after());
}

#[test]
fn a_move_that_no_handoff_covers_makes_no_view() {
    let applied = applied(&record("a b c", 5), &[add("d")]);
    let mut value: Value = serde_json::from_slice(&applied.encode().unwrap()).unwrap();
    value["change"]["handoffs"]
        .as_array_mut()
        .unwrap()
        .remove(1);
    let record = Record::decode(&serde_json::to_vec(&value).unwrap()).unwrap();
    let error = View::from_record(&record).unwrap_err();
    assert_eq!(
        error,
        ViewError::Uncovered {
            source: id("b"),
            target: id("d")
        }
    );
}

#[test]
fn equal_fingerprints_mean_equal_routes_and_a_phase_that_routes_otherwise_has_another() {
    let applied = applied(&record("a b c", 5), &[add("d")]);
    let probes = probes(&applied);
    let mut by_fingerprint = std::collections::BTreeMap::new();
    for phase in every_phase(&applied) {
        let view = View::from_record(&phase).unwrap();
        let routes: Vec<_> = probes
            .iter()
            .map(|&position| view.route(position.into()))
            .collect();
        let first = by_fingerprint
            .entry(view.fingerprint())
            .or_insert_with(|| routes.clone());
        assert_eq!(*first, routes);
    }
    assert!(by_fingerprint.len() > 20, "{}", by_fingerprint.len());
}

#[test]
fn a_lower_epoch_is_refused_and_the_view_goes_on() {
    let old = record("a b", 5);
    let view = View::from_record(&applied(&old, &[add("c")])).unwrap();
    let (current, found) = (view.epoch(), old.epoch());
    let error = view.renewed(&old).unwrap_err();
    assert_eq!(error, ViewError::EpochWentBack { current, found });
}

#[test]
fn a_view_with_hash_tags_has_another_fingerprint() {
    let mut tagged = crate::pool::pool("a b", 5);
    tagged.scheme = tagged.scheme.with_hash_tags(true);
    let tagged = Record::create(tagged, &mut crate::pool::nonces()).unwrap();
    let plain = View::from_record(&record("a b", 5)).unwrap();
    assert_ne!(
        plain.fingerprint(),
        View::from_record(&tagged).unwrap().fingerprint()
    );
    let relocated = Edit::SetAddress {
        id: id("a"),
        address: crate::pool::address("x"),
    };
    let relocated = View::from_record(&applied(&record("a b", 5), &[relocated])).unwrap();
    assert_eq!(
        plain.fingerprint(),
        relocated.fingerprint(),
        "an address decides no owner"
    );
}

#[test]
fn a_handoff_that_is_not_of_this_change_moves_nothing() {
    let applied = applied(&record("a b c", 2), &[add("d")]);
    let view = View::from_record(&applied).unwrap();
    assert!(view.moving_set(&HandoffId::forward(id("z"))).is_none());
    let at_rest = View::from_record(&record("a b c", 2)).unwrap();
    assert!(at_rest.moving_set(&HandoffId::forward(id("a"))).is_none());
    assert!(at_rest.after().is_none());
}

#[test]
fn views_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<View>();
}
