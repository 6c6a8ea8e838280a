//! What a run has to show, and what makes it count for nothing.

use clockwise_cluster::View;
use serde_json::Value;

use super::world::{KEY_PREFIX, World, node_name};

/// Fewer acknowledged writes a second, over the whole run, and a fault has met too little.
const WRITES_PER_SECOND_MIN: u64 = 1_000;
/// So many wrong keys are named.
const NAMED_MAX: usize = 5;
/// How many values are deleted where a run is spoiled.
const SPOILED: usize = 50;

/// What came of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Clean,
    /// It counts for nothing, and why.
    Void(String),
    /// What does not hold.
    Violation(Vec<String>),
}

impl Verdict {
    pub(super) fn is_violation(&self) -> bool {
        matches!(self, Self::Violation(_))
    }
}

/// What the checked workload saw.
pub(super) fn of_load(report: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let faults = report["faults"].as_object();
    for (kind, count) in faults.into_iter().flatten() {
        if count != 0 {
            wrong.push(format!("{count} keys {kind}"));
        }
    }
    let described = report["described"].as_array();
    for fault in described.into_iter().flatten().take(NAMED_MAX) {
        wrong.push(format!(
            "{} {}: {}",
            fault["kind"], fault["key"], fault["detail"]
        ));
    }
    if faults.is_none() {
        wrong.push("the load has no counts of faults".to_owned());
    }
    if report["keys_not_audited"] != 0 {
        wrong.push(format!(
            "{} keys could not be read at the end",
            report["keys_not_audited"]
        ));
    }
    wrong
}

/// Whether enough was going on.
pub(super) fn of_rate(writes_per_second: Option<u64>) -> Result<(), String> {
    match writes_per_second {
        Some(rate) if rate >= WRITES_PER_SECOND_MIN => Ok(()),
        Some(rate) => Err(format!("only {rate} writes/s were acknowledged")),
        None => Err("the load says nothing of its writes".to_owned()),
    }
}

/// Acknowledged writes a second, outages included.
pub(super) fn writes_per_second(report: &Value) -> Option<u64> {
    let (writes, seconds) = (
        report["acknowledged_writes"].as_f64()?,
        report["seconds"].as_f64()?,
    );
    // Far below 2^53, and never negative.
    (seconds > 0.0).then_some((writes / seconds) as u64)
}

/// Every key is at its owner and nowhere else, once a change is over.
pub(super) fn of_places(world: &World) -> Vec<String> {
    let Some(record) = world
        .witness
        .newest()
        .filter(|record| record.change().is_none())
    else {
        return Vec::new();
    };
    let view = match View::from_record(&record) {
        Ok(view) => view,
        Err(error) => return vec![format!("the record is not routed by: {error}")],
    };
    let mut elsewhere = Vec::new();
    for (at, node) in world.nodes.iter().enumerate() {
        let name = node_name(at);
        let keys = node.cli(&["--scan"]);
        // What clockwise keeps for itself on a node is nobody's data.
        for key in keys.lines().filter(|key| key.starts_with(KEY_PREFIX)) {
            let owner = view.owner(key.as_bytes());
            if owner.as_str() != name {
                elsewhere.push(format!("{key} of {owner} is at {name}"));
            }
        }
    }
    match elsewhere.len() {
        0 => Vec::new(),
        count => {
            elsewhere.truncate(NAMED_MAX);
            vec![format!(
                "{count} keys are not where their owner is: {}",
                elsewhere.join(", ")
            )]
        }
    }
}

/// Deletes values behind everybody's back.
pub(super) fn spoil(world: &World) {
    let node = &world.nodes[0];
    let keys = node.cli(&["--scan"]);
    let mut delete = vec!["DEL"];
    delete.extend(keys.lines().take(SPOILED));
    node.cli(&delete);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(lost: u64, not_audited: u64) -> Value {
        json!({
            "faults": {"lost": lost, "stale": 0}, "described": [], "keys_not_audited": not_audited,
            "acknowledged_writes": 10_000, "seconds": 5.0,
        })
    }

    #[test]
    fn a_lost_write_and_an_unread_key_are_violations_and_nothing_else_is() {
        assert_eq!(of_load(&report(0, 0)), Vec::<String>::new());
        assert_eq!(of_load(&report(3, 0)), ["3 keys lost"]);
        assert_eq!(
            of_load(&report(0, 2)),
            ["2 keys could not be read at the end"]
        );
        assert_eq!(of_load(&json!({"keys_not_audited": 0})).len(), 1);
    }

    #[test]
    fn a_run_with_too_few_writes_is_void() {
        assert_eq!(writes_per_second(&report(0, 0)), Some(2_000));
        assert_eq!(of_rate(Some(1_000)), Ok(()));
        assert!(of_rate(Some(999)).is_err() && of_rate(None).is_err());
    }
}
