//! The stored form of a record: what survives a round trip, and what is said about bytes that are none.

use clockwise_cluster::{
    Address, DecodeError, Epoch, HandoffFault, InvalidRecord, LayoutError, NewNode, NewPool,
    NodeState, Nonce, RECORD_BYTES_MAX, Record, STAGED_MAX, ServiceClass, StagedId, TooLarge,
};
use clockwise_placement::PlacementError;
use serde_json::{Value, json};

use crate::pool::{add, applied, id, record};

/// A pool as a person would write it down, with every optional part left out.
const SHORT: &str = r#"{
  "format": 1, "pool": "main", "protocol": "redis", "class": "store", "revision": 3, "epoch": 7,
  "membership": {"nodes": [
    {"id": "b", "address": "10.0.0.2:6379", "state": "active", "generation": 2,
     "nonce": "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"},
    {"id": "a", "address": "10.0.0.1:6379", "state": "active", "generation": 1,
     "nonce": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}
  ]}
}"#;

/// The same, changed through JSON.
fn edited(change: impl FnOnce(&mut Value)) -> Result<Record, DecodeError> {
    let mut value: Value = serde_json::from_str(SHORT).unwrap();
    change(&mut value);
    Record::decode(&serde_json::to_vec(&value).unwrap())
}

fn invalid(change: impl FnOnce(&mut Value)) -> InvalidRecord {
    match edited(change) {
        Err(DecodeError::Invalid(error)) => error,
        other => panic!("expected an invalid record, got {other:?}"),
    }
}

fn malformed(change: impl FnOnce(&mut Value)) -> String {
    match edited(change) {
        Err(DecodeError::Malformed { reason, .. }) => reason,
        other => panic!("expected a malformed record, got {other:?}"),
    }
}

fn pool(nodes: usize) -> NewPool {
    let node = |at: usize| {
        let address: Address = format!("10.0.{}.{}:6379", at / 256, at % 256)
            .parse()
            .unwrap();
        NewNode::new(id(&format!("node-{at}")), address)
    };
    NewPool::new("main".parse().unwrap(), (0..nodes).map(node).collect())
}

#[test]
fn a_short_record_is_read_with_its_defaults_and_sorted() {
    let record = Record::decode(SHORT.as_bytes()).unwrap();
    let ids: Vec<&str> = record
        .membership()
        .nodes
        .iter()
        .map(|node| node.id.as_str())
        .collect();
    assert_eq!(ids, ["a", "b"]);
    let b = record.node(&id("b")).unwrap();
    assert_eq!(
        (b.weight.to_string().as_str(), b.domain.depth(), b.state),
        ("1", 0, NodeState::Active)
    );
    assert_eq!(record.epoch(), Epoch::new(7));
    assert_eq!(record.class(), ServiceClass::Store);
    assert!(record.change().is_none() && record.staged().is_empty() && record.retired().is_empty());
    assert_eq!(record.options().throttle.keys_per_second, 0);
}

#[test]
fn a_record_comes_back_as_it_was_stored() {
    let record = Record::decode(SHORT.as_bytes()).unwrap();
    let bytes = record.encode().unwrap();
    assert_eq!(Record::decode(&bytes).unwrap(), record);
    assert_eq!(
        Record::decode(&bytes).unwrap().encode().unwrap(),
        bytes,
        "the stored form is canonical"
    );
}

#[test]
fn fields_of_a_later_version_are_kept_on_every_level() {
    let places = [
        "",
        "/membership",
        "/membership/scheme",
        "/membership/nodes/0",
        "/options",
        "/retired/0",
        "/staged/0",
        "/change",
        "/change/after",
        "/change/after/members/0",
        "/change/handoffs/0",
        "/change/handoffs/0/report",
    ];
    let with_change = |value: &mut Value| {
        let layout = |ids: &[&str]| {
            let members: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
            json!({"scheme": {"name": "clockwise/v1", "hash": {"kind": "xxh3-64"}},
                   "generator": {"kind": "ring", "points_per_weight": 200}, "replicas": 1,
                   "members": members})
        };
        value["membership"]["scheme"] =
            json!({"name": "clockwise/v1", "hash": {"kind": "xxh3-64"}});
        value["options"] = json!({});
        value["retired"] = json!([{"id": "z", "generation": 9}]);
        value["staged"] = json!([{"id": 1, "edit": {"kind": "remove", "id": "b"}}]);
        value["membership"]["nodes"][0]["state"] = json!("joining");
        value["change"] = json!({
            "id": "join-b", "base_epoch": 6, "applied_at_ms": 1000, "direction": "forward",
            "before": layout(&["a"]), "after": layout(&["a", "b"]),
            "handoffs": [{"source": "a", "targets": ["b"], "state": "copying", "entered_at_ms": 2000,
                          "report": {}}]
        });
    };
    for place in places {
        let record = edited(|value| {
            with_change(value);
            value.pointer_mut(place).unwrap()["of_the_future"] = json!({"deep": [1, "two", null]});
        })
        .unwrap_or_else(|error| panic!("{place}: {error}"));
        let stored: Value = serde_json::from_slice(&record.encode().unwrap()).unwrap();
        let found = stored
            .to_string()
            .matches(r#""of_the_future":{"deep":[1,"two",null]}"#)
            .count();
        assert_eq!(found, 1, "{place}");
    }
}

#[test]
fn a_record_from_the_future_is_refused_whatever_else_it_holds() {
    let bytes = br#"{"format": 2, "membership": "of a shape nobody here knows"}"#;
    let error = Record::decode(bytes).unwrap_err();
    assert_eq!(error, DecodeError::FromTheFuture { found: 2, known: 1 });
    assert_eq!(
        error.to_string(),
        "record has format 2, this version knows 1: upgrade it"
    );
}

#[test]
fn an_empty_a_torn_and_a_foreign_file_are_told_apart() {
    assert_eq!(Record::decode(b""), Err(DecodeError::Empty));
    assert_eq!(Record::decode(b" \n"), Err(DecodeError::Empty));
    assert_eq!(Record::decode(b"{}"), Err(DecodeError::NoFormat));
    assert!(matches!(
        Record::decode(&SHORT.as_bytes()[..300]),
        Err(DecodeError::Torn { .. })
    ));
    assert!(matches!(
        Record::decode(b"bind 127.0.0.1"),
        Err(DecodeError::Malformed { .. })
    ));
    assert!(matches!(
        Record::decode(b"[1]"),
        Err(DecodeError::Malformed { .. })
    ));
    assert_eq!(
        Record::decode(br#"{"format": 0}"#),
        Err(DecodeError::TooOld {
            found: 0,
            oldest: 1
        }),
    );
}

#[test]
fn a_file_torn_at_any_byte_is_no_record() {
    let bytes = Record::decode(SHORT.as_bytes()).unwrap().encode().unwrap();
    for end in 0..bytes.len() {
        let error = Record::decode(&bytes[..end]).unwrap_err();
        let torn = matches!(error, DecodeError::Empty | DecodeError::Torn { .. });
        assert!(torn, "cut at {end}: {error:?}");
    }
}

#[test]
fn no_bytes_make_the_reader_panic() {
    // SplitMix64 from a fixed seed: the same bytes in every run.
    let mut state: u64 = 0x5eed;
    let mut random = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let bytes = Record::decode(SHORT.as_bytes()).unwrap().encode().unwrap();
    let mut still_valid = 0;
    for _ in 0..20_000 {
        let mut damaged = bytes.clone();
        for _ in 0..=random() % 3 {
            let at = usize::try_from(random()).unwrap() % damaged.len();
            match random() % 3 {
                0 => damaged[at] = random().to_le_bytes()[0],
                1 => drop(damaged.remove(at)),
                _ => damaged.insert(at, b"{}[]\",:0-e"[usize::try_from(random() % 10).unwrap()]),
            }
        }
        if let Ok(record) = Record::decode(&damaged) {
            still_valid += 1;
            record.encode().unwrap();
        }
    }
    assert!(
        still_valid > 0,
        "damage inside names leaves records valid: the loop reaches the deep checks"
    );
    let nested = "[".repeat(RECORD_BYTES_MAX);
    assert!(matches!(
        Record::decode(nested.as_bytes()),
        Err(DecodeError::Torn { .. } | DecodeError::Malformed { .. })
    ));
}

#[test]
fn duplicate_ids_and_addresses_are_refused_by_name() {
    let error = invalid(|value| value["membership"]["nodes"][1]["id"] = json!("b"));
    assert_eq!(error, InvalidRecord::DuplicateNode { node: id("b") });
    let error =
        invalid(|value| value["membership"]["nodes"][0]["address"] = json!("10.0.0.1:6379"));
    let address = "10.0.0.1:6379".parse().unwrap();
    assert_eq!(
        error,
        InvalidRecord::SharedAddress {
            address,
            node: id("a"),
            other: id("b")
        }
    );
}

#[test]
fn zero_and_absurd_weights_are_refused() {
    let weight = |weight: &'static str| {
        move |value: &mut Value| value["membership"]["nodes"][0]["weight"] = json!(weight)
    };
    assert_eq!(
        invalid(weight("0")),
        InvalidRecord::ZeroWeight { node: id("b") }
    );
    for absurd in ["-1", "NaN", "1e9", "1.001", "99999999999999999999", ""] {
        let reason = malformed(weight(absurd));
        assert!(reason.contains("weight"), "{absurd}: {reason}");
    }
    // A weight that can be written down but not built into a ring.
    let mut spec = pool(2);
    spec.nodes[1].weight = "42949672.95".parse().unwrap();
    let error = Record::create(spec, &mut || Nonce::new([0; 16])).unwrap_err();
    let too_many = InvalidRecord::Layout(LayoutError::Placement(PlacementError::TooManyPoints {
        points: 8_589_934_790,
        points_per_weight: 200,
        points_per_weight_max: None,
    }));
    assert_eq!(error, too_many);
}

#[test]
fn domains_that_are_no_paths_are_refused() {
    for bad in ["/", "eu//rack", "a/b/c/d/e", "eu zone", "eu/"] {
        let reason = malformed(|value| value["membership"]["nodes"][0]["domain"] = json!(bad));
        assert!(reason.contains("domain"), "{bad}: {reason}");
    }
}

#[test]
fn an_address_without_a_port_is_refused() {
    let reason = malformed(|value| value["membership"]["nodes"][0]["address"] = json!("10.0.0.9"));
    assert!(
        reason.contains("\"10.0.0.9\": address has no port"),
        "{reason}"
    );
}

#[test]
fn a_generation_that_was_used_before_is_refused() {
    let error = invalid(|value| value["retired"] = json!([{"id": "b", "generation": 2}]));
    let (generation, used) = (record_generation("b"), record_generation("b"));
    assert_eq!(
        error,
        InvalidRecord::GenerationReused {
            node: id("b"),
            generation,
            used
        }
    );
    assert!(edited(|value| value["retired"] = json!([{"id": "b", "generation": 1}])).is_ok());
}

fn record_generation(name: &str) -> clockwise_cluster::Generation {
    Record::decode(SHORT.as_bytes())
        .unwrap()
        .node(&id(name))
        .unwrap()
        .generation
}

#[test]
fn epoch_zero_and_numbers_beyond_json_are_refused() {
    assert_eq!(
        invalid(|value| value["epoch"] = json!(0)),
        InvalidRecord::NoEpoch
    );
    let reason = malformed(|value| value["epoch"] = json!(u64::MAX));
    assert!(reason.contains("is above 9007199254740991"), "{reason}");
}

#[test]
fn a_joining_node_without_a_change_is_refused() {
    let error = invalid(|value| value["membership"]["nodes"][0]["state"] = json!("joining"));
    assert_eq!(
        error,
        InvalidRecord::StateWithoutChange {
            node: id("b"),
            state: NodeState::Joining
        }
    );
}

#[test]
fn a_store_keeps_one_copy_of_each_key() {
    let error = invalid(|value| value["membership"]["replicas"] = json!(2));
    assert_eq!(error, InvalidRecord::ReplicasInStore { replicas: 2 });
}

#[test]
fn a_pool_without_nodes_is_refused() {
    let error = Record::create(pool(0), &mut || Nonce::new([0; 16])).unwrap_err();
    assert_eq!(error, InvalidRecord::NoNodes);
}

#[test]
fn a_record_over_one_mebibyte_is_refused_with_the_figure() {
    let record = Record::create(pool(9_000), &mut || Nonce::new([1; 16])).unwrap();
    let TooLarge { bytes, limit } = record.encode().map(|bytes| bytes.len()).unwrap_err();
    assert_eq!(limit, 1_048_576);
    assert!(bytes > limit, "{bytes}");
    let bytes = vec![b' '; RECORD_BYTES_MAX + 1];
    let error = DecodeError::TooLarge(TooLarge {
        bytes: bytes.len(),
        limit,
    });
    assert_eq!(Record::decode(&bytes), Err(error));
    let error = Record::create(pool(10_001), &mut || Nonce::new([1; 16])).unwrap_err();
    assert_eq!(error, InvalidRecord::TooManyNodes { nodes: 10_001 });
}

/// A change in flight from a, b to a, b, c with one handoff of each source, changed through JSON.
fn invalid_change(change: impl FnOnce(&mut Value)) -> InvalidRecord {
    let running = applied(&record("a b", 10), &[add("c")]);
    let mut value: Value = serde_json::from_slice(&running.encode().unwrap()).unwrap();
    change(&mut value);
    match Record::decode(&serde_json::to_vec(&value).unwrap()) {
        Err(DecodeError::Invalid(error)) => error,
        other => panic!("expected an invalid record, got {other:?}"),
    }
}

fn fault_of_a(edit: impl FnOnce(&mut Value)) -> HandoffFault {
    let error = invalid_change(|value| edit(&mut value["change"]["handoffs"][0]));
    match error {
        InvalidRecord::Handoff { source, fault } if source == id("a") => fault,
        other => panic!("expected a fault of the handoff of a, got {other:?}"),
    }
}

#[test]
fn a_handoff_that_does_not_fit_its_change_is_refused() {
    let (b, c) = (id("b"), id("c"));
    assert_eq!(
        fault_of_a(|a| a["targets"] = json!([])),
        HandoffFault::NoTargets
    );
    let twice = HandoffFault::Target { target: c.clone() };
    assert_eq!(fault_of_a(|a| a["targets"] = json!(["c", "c"])), twice);
    let itself = HandoffFault::Target { target: id("a") };
    assert_eq!(fault_of_a(|a| a["targets"] = json!(["a"])), itself);
    let stranger = HandoffFault::NotInLayout { node: id("z") };
    assert_eq!(fault_of_a(|a| a["targets"] = json!(["z"])), stranger);
    assert_eq!(
        fault_of_a(|a| a["kind"] = json!("reverse")),
        HandoffFault::NotInLayout { node: c.clone() }
    );
    let back_in_a_change_forward = fault_of_a(|a| {
        a["kind"] = json!("reverse");
        a["targets"] = json!(["b"]);
    });
    assert_eq!(back_in_a_change_forward, HandoffFault::Direction);
    assert_eq!(
        fault_of_a(|a| a["state"] = json!("purging")),
        HandoffFault::Direction
    );
    assert_eq!(
        fault_of_a(|a| a["state"] = json!("flipped")),
        HandoffFault::Flip
    );
    let run = json!([{"target": "c", "run_id": "r", "replication_id": "d"}]);
    assert_eq!(fault_of_a(|a| a["flip"] = run), HandoffFault::Flip);
    let lost_and_copying = fault_of_a(|a| {
        a["kind"] = json!("lost");
        a["state"] = json!("copying");
    });
    assert_eq!(lost_and_copying, HandoffFault::Direction);
    let source = fault_of_c(|a| a["source"] = json!("c"));
    assert_eq!(source, HandoffFault::Target { target: c });
    let twice = invalid_change(|value| value["change"]["handoffs"][0]["source"] = json!("b"));
    assert_eq!(
        twice,
        InvalidRecord::Handoff {
            source: b,
            fault: HandoffFault::Duplicate
        }
    );
}

fn fault_of_c(edit: impl FnOnce(&mut Value)) -> HandoffFault {
    match invalid_change(|value| edit(&mut value["change"]["handoffs"][0])) {
        InvalidRecord::Handoff { fault, .. } => fault,
        other => panic!("expected a fault of a handoff, got {other:?}"),
    }
}

#[test]
fn an_aborted_change_without_a_way_back_for_what_flipped_is_refused() {
    let error = invalid_change(|value| {
        value["change"]["direction"] = json!("back");
        value["membership"]["nodes"][2]["state"] = json!("leaving");
        value["change"]["handoffs"][1]["state"] = json!("undone");
        let a = &mut value["change"]["handoffs"][0];
        a["state"] = json!("flipped");
        a["flip"] = json!([{"target": "c", "run_id": "r", "replication_id": "d"}]);
    });
    let fault = HandoffFault::NoReverse { target: id("c") };
    assert_eq!(
        error,
        InvalidRecord::Handoff {
            source: id("a"),
            fault
        }
    );
}

#[test]
fn two_handovers_at_once_are_refused() {
    let error = invalid_change(|value| {
        for at in 0..2 {
            value["change"]["handoffs"][at]["state"] = json!("handover");
        }
    });
    assert_eq!(
        error,
        InvalidRecord::TwoHandovers {
            source: id("a"),
            other: id("b")
        }
    );
}

#[test]
fn layouts_and_nodes_of_a_change_name_each_other() {
    let error = invalid_change(|value| value["change"]["after"]["members"][2]["id"] = json!("z"));
    assert_eq!(error, InvalidRecord::UnknownMember { node: id("z") });
    let error = invalid_change(|value| value["change"]["after"]["members"][2]["id"] = json!("b"));
    assert_eq!(error, InvalidRecord::DuplicateMember { node: id("b") });
    let error = invalid_change(|value| {
        value["change"]["after"]["members"]
            .as_array_mut()
            .unwrap()
            .remove(2);
    });
    assert_eq!(error, InvalidRecord::UnplacedNode { node: id("c") });
    let error = invalid_change(|value| value["membership"]["nodes"][2]["state"] = json!("active"));
    assert_eq!(
        error,
        InvalidRecord::StateWithoutChange {
            node: id("c"),
            state: NodeState::Active
        }
    );
}

#[test]
fn staged_edits_and_foreign_writers_are_bounded_and_numbered_once() {
    let edit = json!({"kind": "remove", "id": "b"});
    let error = invalid(|value| {
        value["staged"] = json!([{"id": 1, "edit": edit}, {"id": 1, "edit": edit}]);
    });
    assert_eq!(error, InvalidRecord::DuplicateStaged { id: StagedId(1) });
    let many: Vec<Value> = (0..=STAGED_MAX)
        .map(|n| json!({"id": n, "edit": edit}))
        .collect();
    let error = invalid(|value| value["staged"] = json!(many));
    assert_eq!(
        error,
        InvalidRecord::TooManyStaged {
            staged: STAGED_MAX + 1
        }
    );
    for names in [json!([""]), json!(["two words"]), json!(vec!["x"; 65])] {
        let error = invalid(|value| value["options"] = json!({"foreign_writers": names}));
        assert_eq!(error, InvalidRecord::ForeignWriters);
    }
    let allowed =
        edited(|value| value["options"] = json!({"foreign_writers": ["backup"]})).unwrap();
    assert_eq!(allowed.options().foreign_writers, ["backup"]);
    assert!(
        allowed
            .with_foreign_writers(vec!["no name".into()])
            .is_err()
    );
}
