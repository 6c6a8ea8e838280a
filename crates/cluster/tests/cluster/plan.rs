//! What a plan says, against `apply` and against sums made in another way.

use std::collections::{BTreeMap, BTreeSet};

use clockwise_cluster::{
    Basis, Edit, Generator, HashSpec, Held, INTERVALS_LISTED_MAX, Plan, Record, SchemeSpec,
    SlotRules, Warning,
};
use clockwise_placement::{Interval, NodeId};
use serde_json::Value;

use crate::pool::{add, applied, id, record, remove, staged};

fn plan(record: &Record, edits: &[Edit]) -> Plan {
    staged(record, edits).plan(&BTreeMap::new()).unwrap()
}

fn set_points(points_per_weight: u32) -> Edit {
    Edit::SetGenerator {
        generator: Generator::Ring { points_per_weight },
    }
}

#[test]
fn the_planned_flows_are_the_handoffs_that_apply_makes() {
    let record = record("a b=2 c d", 50);
    let scheme = SchemeSpec::v1(HashSpec::Xxh3 { seed: 3 });
    for edits in [
        vec![add("e")],
        vec![remove("a"), add("e")],
        vec![set_points(60)],
        vec![Edit::SetGenerator {
            generator: Generator::planned_slots(64, SlotRules::default()),
        }],
        vec![Edit::SetScheme { scheme }],
        vec![Edit::SetScheme {
            scheme: SchemeSpec::default().with_hash_tags(true),
        }],
    ] {
        let flows = plan(&record, &edits).moves.flows;
        let planned: BTreeSet<(NodeId, NodeId)> = flows
            .into_iter()
            .map(|flow| (flow.source, flow.target))
            .collect();
        let change = applied(&record, &edits).change().unwrap().clone();
        let given = change.handoffs.iter().flat_map(|handoff| {
            handoff
                .targets
                .iter()
                .map(|target| (handoff.source.clone(), target.clone()))
        });
        assert_eq!(planned, given.collect::<BTreeSet<_>>(), "{edits:?}");
    }
}

#[test]
fn the_intervals_and_the_flows_both_sum_up_to_the_share() {
    let plan = plan(&record("a b c", 20), &[add("d")]);
    let moves = &plan.moves;
    let by_interval: f64 = moves
        .intervals
        .iter()
        .map(|interval| {
            Interval {
                after: interval.after,
                through: interval.through,
            }
            .share()
        })
        .sum();
    let by_flow: f64 = moves.flows.iter().map(|flow| flow.share).sum();
    assert!((by_interval - moves.share).abs() < 1e-12 && (by_flow - moves.share).abs() < 1e-12);
    assert_eq!(
        moves.intervals_count,
        Some(u64::try_from(moves.intervals.len()).unwrap())
    );
    let newcomer = plan.nodes.iter().find(|node| node.id == id("d")).unwrap();
    assert!(
        (newcomer.share_after - moves.share).abs() < 1e-12,
        "it takes its share and no more"
    );
}

#[test]
fn a_join_a_leave_and_a_reweight_move_no_copy_more_than_they_must() {
    let record = record("a b c d", 100);
    let reweight = Edit::SetWeight {
        id: id("a"),
        weight: "0.5".parse().unwrap(),
    };
    for edit in [add("e"), remove("b"), reweight] {
        let moves = plan(&record, &[edit]).moves;
        assert_eq!(moves.basis, Basis::Exact);
        assert!((moves.copies - moves.copies_least).abs() < 1e-12);
        assert_eq!(moves.copies_needless, Some(0.0));
    }
}

#[test]
fn modulo_would_move_what_the_articles_say() {
    let nodes: Vec<String> = (0..10)
        .map(|n| format!("{}", char::from(b'a' + n)))
        .collect();
    let moves = plan(&record(&nodes.join(" "), 200), &[add("k")]).moves;
    assert!((moves.modulo - 10.0 / 11.0).abs() < 1e-12);
    assert!(moves.share < 0.11);
}

#[test]
fn keys_and_bytes_are_those_of_the_sources_in_proportion() {
    let staged = staged(&record("a b", 50), &[add("c")]);
    let (keys, bytes) = (1_000_000, 64_000_000);
    let held = |names: &[&str]| {
        names
            .iter()
            .map(|name| (id(name), Held { keys, bytes }))
            .collect::<BTreeMap<_, _>>()
    };
    let plan = staged.plan(&held(&["a", "b"])).unwrap();
    for flow in &plan.moves.flows {
        let source = plan
            .nodes
            .iter()
            .find(|node| node.id == flow.source)
            .unwrap();
        let expected = 1_000_000.0 * flow.share / source.share_before;
        assert!((flow.keys.unwrap() as f64 - expected).abs() <= 1.0);
    }
    let sum = |amount: fn(&clockwise_cluster::PlannedFlow) -> Option<u64>| {
        plan.moves
            .flows
            .iter()
            .map(|flow| amount(flow).unwrap())
            .sum::<u64>()
    };
    assert_eq!(plan.moves.keys, Some(sum(|flow| flow.keys)));
    assert_eq!(plan.moves.bytes, Some(sum(|flow| flow.bytes)));
    let partly = staged.plan(&held(&["a"])).unwrap();
    assert_eq!(
        partly.moves.keys, None,
        "a sum with an unknown part is unknown"
    );
    assert!(partly.moves.flows[0].keys.is_some() && partly.moves.flows[1].keys.is_none());
}

#[test]
fn a_change_of_scheme_is_estimated_and_says_so() {
    let scheme = SchemeSpec::v1(HashSpec::Xxh3 { seed: 3 });
    let plan = plan(&record("a b c", 100), &[Edit::SetScheme { scheme }]);
    assert_eq!(plan.moves.basis, Basis::Sampled { keys: 65_536 });
    let stay: f64 = plan
        .nodes
        .iter()
        .map(|node| node.share_before * node.share_after)
        .sum();
    assert!(
        (plan.moves.share - (1.0 - stay)).abs() < 0.01,
        "as if both owners were drawn apart"
    );
    assert!(plan.warnings.contains(&Warning::Estimated {
        basis: plan.moves.basis
    }));
    assert_eq!(plan.moves.intervals_count, None);
}

#[test]
fn a_long_list_of_intervals_is_cut_and_counted() {
    let plan = plan(&record("a b c", 4_000), &[set_points(8_000)]);
    assert_eq!(plan.moves.intervals.len(), INTERVALS_LISTED_MAX);
    assert!(plan.moves.intervals_count.unwrap() > 6_000);
}

#[test]
fn a_plan_as_json_has_positions_of_16_digits_and_words_for_kinds() {
    let record = record("a b c", 20);
    let plan = plan(&record, &[add("d")]);
    let json: Value = serde_json::to_value(&plan).unwrap();
    for interval in json["moves"]["intervals"].as_array().unwrap() {
        for end in ["after", "through"] {
            let digits = interval[end].as_str().unwrap();
            assert!(digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        assert_eq!(interval["target"], "d");
    }
    assert_eq!(json["epoch"], 1);
    assert_eq!(json["nodes"][3]["fate"], "joins");
    assert_eq!(json["moves"]["basis"]["kind"], "exact");
    assert_eq!(json["edits"][0]["edit"]["kind"], "add");
    assert_eq!(json["refusals"], serde_json::json!([]));
}

#[test]
fn a_plan_changes_nothing_and_comes_out_the_same_twice() {
    let staged = staged(&record("a b c", 20), &[add("d")]);
    let before = staged.clone();
    assert_eq!(staged.plan(&BTreeMap::new()), staged.plan(&BTreeMap::new()));
    assert_eq!(staged, before);
}
