//! What a record and its view say in answers: shares of nodes, the route of a key and why.

use clockwise_cluster::handoff::Closed;
use clockwise_cluster::{Change, Direction, Handoff, KeyPosition, Record, Staged, View};
use clockwise_placement::{NodeId, Placement, Position, Shortfall, diff};

use super::answer::{
    BACK, ChangeSummary, IntervalText, MovingText, Plan, Route, ShortfallText, StagedEdit,
    StagedList, Throttle,
};
use super::refusal::{Code, Refusal};
use crate::rebalancer::{Door, Progress};

/// Keys drawn where two circles cannot be compared by their intervals.
const SAMPLES: u32 = 1 << 16;

/// The part of all positions that each node of a view owns now, in the order of its nodes.
///
/// Exact, unless a change of the scheme is in flight: then it is drawn from 65,536 keys.
pub(crate) fn shares(view: &View) -> Vec<f64> {
    let mut shares = vec![0.0; view.nodes().len()];
    let changes = view.after().map(|after| diff(view.before(), after));
    if let Some(Err(_)) = changes {
        for number in 0..SAMPLES {
            let owner = view.route(view.position(&number.to_le_bytes())).node;
            shares[owner.get()] += 1.0 / f64::from(SAMPLES);
        }
        return shares;
    }
    for load in view.before().balance().loads {
        let id = &view.before().node(load.node).id;
        let index = view
            .index_of(id)
            .expect("a placement's members are nodes of its view");
        shares[index.get()] = load.share;
    }
    for change in changes
        .into_iter()
        .flatten()
        .flat_map(|diff| diff.primaries().collect::<Vec<_>>())
    {
        let before = &view.before().node(change.old[0]).id;
        let before = view
            .index_of(before)
            .expect("a placement's members are nodes of its view");
        let owner = view.route(KeyPosition::from(change.interval.through)).node;
        shares[before.get()] -= change.interval.share();
        shares[owner.get()] += change.interval.share();
    }
    shares
}

/// Where a key is and why.
pub(super) fn route(record: &Record, view: &View, key: &[u8]) -> Route {
    let at = view.position(key);
    let (placement, position) = view.side(at);
    let interval = placement.interval_at(position).interval;
    let route = view.route(at);
    let node = view.node(route.node);
    let moving = view
        .moving(at)
        .zip(record.change())
        .map(|(moving, change)| {
            let (from, to) = (&view.node(moving.before).id, &view.node(moving.after).id);
            let handoff = deciding(change, from, to);
            MovingText {
                from: from.to_string(),
                to: to.to_string(),
                state: handoff
                    .map_or("unknown", |handoff| handoff.state.name())
                    .to_owned(),
                held: route.hold,
            }
        });
    Route {
        key: String::from_utf8_lossy(key).into_owned(),
        key_hex: key.iter().map(|byte| format!("{byte:02x}")).collect(),
        position: position.to_string(),
        point: interval.through.to_string(),
        interval: IntervalText {
            after: interval.after.to_string(),
            through: interval.through.to_string(),
        },
        node: node.id.to_string(),
        address: node.address.to_string(),
        replicas: view
            .replicas(at)
            .map(|node| view.node(node).id.to_string())
            .collect(),
        shortfall: shortfall(placement.shortfall_at(position), placement),
        why: why(placement, position, node.id.as_str(), moving.as_ref()),
        moving,
    }
}

/// The handoff whose state says which of two nodes owns what moves between them.
fn deciding<'a>(change: &'a Change, from: &NodeId, to: &NodeId) -> Option<&'a Handoff> {
    let of = |source: &NodeId, reverse: bool| {
        let mut handoffs = change.handoffs.iter();
        handoffs.find(|handoff| handoff.source == *source && handoff.is_reverse() == reverse)
    };
    of(to, true).or_else(|| of(from, false))
}

fn shortfall(shortfall: Shortfall, placement: &Placement) -> ShortfallText {
    let depth = placement
        .nodes()
        .iter()
        .map(|member| member.domain.depth())
        .max()
        .unwrap_or(0);
    let domains = shortfall.domains.into_iter().take(depth).collect();
    ShortfallText {
        nodes: shortfall.nodes,
        domains,
    }
}

fn why(
    placement: &Placement,
    position: Position,
    owner: &str,
    moving: Option<&MovingText>,
) -> String {
    let (ends, nodes) = (placement.point_count(), placement.nodes().len());
    let rule = match placement.slots() {
        None => format!(
            "the first point at or after the key's position, of {ends} points of {nodes} nodes, is one of {owner}"
        ),
        Some(_) => format!(
            "the key's position lies in slot {} of {ends}, which the owner table gives to {owner}",
            placement.interval_at(position).index
        ),
    };
    match moving {
        None => rule,
        Some(MovingText {
            from,
            to,
            state,
            held,
        }) => {
            let held = if *held {
                "; requests for it wait for the handover to end"
            } else {
                ""
            };
            format!("{rule}; it moves from {from} to {to}, that handoff is {state}{held}")
        }
    }
}

/// The change in flight in short.
pub(super) fn summary(change: &Change) -> ChangeSummary {
    ChangeSummary {
        id: change.id.to_string(),
        base_epoch: change.base_epoch.get(),
        direction: direction(change.direction).to_owned(),
        handoffs: change.handoffs.len(),
        over: change
            .handoffs
            .iter()
            .filter(|handoff| handoff.state.is_over())
            .count(),
    }
}

/// What waits for `apply`.
pub(super) fn staged(record: &Record) -> StagedList {
    let edit = |staged: &Staged| StagedEdit {
        id: staged.id.0,
        text: staged.edit.to_string(),
        edit: staged.edit.clone(),
    };
    StagedList {
        staged: record.staged().iter().map(edit).collect(),
        refused: record.check_staged().err().map(|error| error.to_string()),
    }
}

/// Why a node lets nobody in, if it does not.
pub(super) fn closed<'a>(progress: &'a Progress, id: &NodeId) -> Option<&'a Closed> {
    let mut doors = progress.doors.iter();
    doors.find_map(|(node, door)| match door {
        Door::Closed(closed) if node == id => Some(closed),
        _ => None,
    })
}

/// How to take a node as it is that is closed because it is another run than at its flip.
pub(super) fn acceptable(progress: &Progress) -> Option<String> {
    let mut doors = progress.doors.iter();
    doors.find_map(|(id, door)| match door {
        Door::Closed(Closed::ChangedSinceFlip { .. }) => {
            Some(format!("clockwise node accept {id}"))
        }
        _ => None,
    })
}

/// Whether there is something to accept about a node.
pub(super) fn check_acceptable(progress: &Progress, id: &NodeId) -> Result<(), Refusal> {
    let words = match closed(progress, id) {
        Some(Closed::ChangedSinceFlip { .. }) => return Ok(()),
        Some(other) => format!("node {id} is closed for another reason: {other}"),
        None => format!("node {id} is not closed: there is nothing to accept"),
    };
    Err(Refusal::new(Code::Unfit, words).with_next("clockwise status".to_owned()))
}

/// How fast moves may go.
pub(super) fn throttle(record: &Record) -> Throttle {
    let throttle = record.options().throttle;
    Throttle {
        keys_per_second: throttle.keys_per_second,
        bytes_per_second: throttle.bytes_per_second,
    }
}

/// A plan as it is answered: all its fields with what the servers have against it, and the same for a person.
pub(super) fn plan(
    plan: &clockwise_cluster::Plan,
    preflight: Vec<String>,
) -> Result<Plan, serde_json::Error> {
    let mut fields = match serde_json::to_value(plan)? {
        serde_json::Value::Object(fields) => fields,
        _ => serde_json::Map::new(),
    };
    // The envelope has it.
    fields.remove("epoch");
    let mut text = plan.to_string();
    for why in &preflight {
        text.push_str("would be refused now: ");
        text.push_str(why);
        text.push('\n');
    }
    fields.insert("preflight".to_owned(), preflight.into());
    Ok(Plan { text, fields })
}

/// The plan of a pool for which nothing is staged.
pub(super) fn empty_plan() -> Plan {
    let fields = [("edits".to_owned(), serde_json::Value::Array(Vec::new()))];
    Plan {
        text: "nothing is staged\n".to_owned(),
        fields: fields.into_iter().collect(),
    }
}

pub(super) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Back => BACK,
    }
}

#[cfg(test)]
mod tests {
    use clockwise_cluster::{Apply, Edit, NewNode, NewPool, Nonce, Step};

    use super::*;

    fn nonces() -> impl FnMut() -> Nonce {
        let mut last = 0;
        move || {
            last += 1;
            Nonce::new([last; 16])
        }
    }

    fn pool() -> Record {
        let node = |id: &str, port: u16| {
            NewNode::new(
                id.parse().unwrap(),
                format!("127.0.0.1:{port}").parse().unwrap(),
            )
        };
        let nodes = vec![node("a", 1), node("b", 2), node("c", 3)];
        Record::create(NewPool::new("main".parse().unwrap(), nodes), &mut nonces()).unwrap()
    }

    fn joining(record: &Record) -> Record {
        let edit = Edit::Add {
            id: "d".parse().unwrap(),
            address: "127.0.0.1:4".parse().unwrap(),
            weight: "1".parse().unwrap(),
            domain: "".parse().unwrap(),
        };
        let staged = record.stage(edit).unwrap();
        let id = "join".parse().unwrap();
        let nonces = &mut nonces();
        staged
            .apply(Apply {
                expected: staged.epoch(),
                id,
                now_ms: 1_000,
                nonces,
            })
            .unwrap()
    }

    fn share_of(record: &Record, id: &str) -> f64 {
        let view = View::from_record(record).unwrap();
        let shares = shares(&view);
        let sum: f64 = shares.iter().sum();
        assert!((sum - 1.0).abs() < 1e-9, "shares add up to {sum}");
        shares[view.index_of(&id.parse().unwrap()).unwrap().get()]
    }

    #[test]
    fn shares_follow_the_handoffs() {
        let before = pool();
        let joined = joining(&before);
        assert_eq!(share_of(&joined, "d"), 0.0);
        assert!((share_of(&joined, "a") - share_of(&before, "a")).abs() < 1e-12);

        let id = joined.change().unwrap().handoffs[0].id();
        let incarnation = || clockwise_cluster::Incarnation {
            run_id: "run".parse().unwrap(),
            replication_id: "data".parse().unwrap(),
        };
        let steps = [
            Step::Copying,
            Step::Verifying,
            Step::Handover {
                generation: joined.node(&id.source).unwrap().generation.next(),
                nonce: Nonce::new([99; 16]),
            },
            Step::Flip {
                targets: vec![incarnation()],
            },
        ];
        let flipped = steps.iter().fold(joined.clone(), |record, step| {
            record.step(&id, step, 2_000).unwrap()
        });
        let given = share_of(&joined, "a") - share_of(&flipped, "a");
        assert!(given > 0.0);
        assert!((share_of(&flipped, "d") - given).abs() < 1e-12);
    }

    #[test]
    fn a_route_names_the_owner_and_what_moves() {
        let before = pool();
        let joined = joining(&before);
        let (old, new) = (
            View::from_record(&before).unwrap(),
            View::from_record(&joined).unwrap(),
        );
        let mut moving = 0;
        for number in 0..1_000 {
            let key = format!("user:{number}");
            let route = route(&joined, &new, key.as_bytes());
            assert_eq!(
                route.node,
                old.owner(key.as_bytes()).as_str(),
                "nothing has flipped"
            );
            assert_eq!(
                (route.replicas[0].as_str(), route.position.len()),
                (route.node.as_str(), 16)
            );
            if let Some(text) = route.moving {
                assert_eq!(
                    (text.from.as_str(), text.to.as_str()),
                    (route.node.as_str(), "d")
                );
                assert_eq!((text.state.as_str(), text.held), ("planned", false));
                moving += 1;
            }
        }
        assert!(
            (150..350).contains(&moving),
            "about a quarter moves: {moving}"
        );
    }

    #[test]
    fn bytes_that_are_no_text_keep_their_digits() {
        let record = pool();
        let view = View::from_record(&record).unwrap();
        assert_eq!(route(&record, &view, &[0xff, 0x00]).key_hex, "ff00");
    }
}
