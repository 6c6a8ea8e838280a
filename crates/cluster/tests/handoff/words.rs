//! Commands as words.

use clockwise_cluster::handoff::{Command, Order, Party};
use clockwise_cluster::{HandoffId, Step};

use crate::book::name;

pub(crate) fn order(handoffs: &[HandoffId], order: &Order) -> String {
    match order {
        Order::Handoff(index, asked) => format!("{}: {}", name(&handoffs[*index]), command(asked)),
        Order::TurnBack => "commit that the change goes back".to_string(),
        Order::End => "commit that the change is over".to_string(),
        Order::Held => "held".to_string(),
        Order::Deposed => "deposed".to_string(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn command(command: &Command) -> String {
    let after = |after_ms: u64| {
        if after_ms == 0 {
            String::new()
        } else {
            format!(" after {after_ms} ms")
        }
    };
    match command {
        Command::Inspect => "inspect".to_string(),
        Command::Open(Party::All) => "open sessions at all".to_string(),
        Command::Open(Party::Targets) => "open sessions at the targets".to_string(),
        Command::Open(Party::Target(lane)) => format!("open a session at target {}", lane.0),
        Command::ReadRecord { after_ms } => format!("read the record{}", after(*after_ms)),
        Command::Identify => "identify".to_string(),
        Command::Sweep => "sweep the targets".to_string(),
        Command::Track => "track".to_string(),
        Command::List => "list and copy".to_string(),
        Command::Round { after_ms } => format!("round{}", after(*after_ms)),
        Command::Verify => "compare both sides".to_string(),
        Command::Prepare => "prepare client users".to_string(),
        Command::Commit(step) => format!("commit {}", self::step(step)),
        Command::CountOld {
            generation,
            after_ms,
        } => {
            format!("count connections below {generation}{}", after(*after_ms))
        }
        Command::Fence(generation) => format!("fence below {generation}"),
        Command::Barrier => "barrier".to_string(),
        Command::CopyLast => "copy the last keys".to_string(),
        Command::CompareLast => "compare the last keys".to_string(),
        Command::Untrack => "untrack".to_string(),
        Command::DurableSource => "wait until the source is durable".to_string(),
        Command::Durable => "wait until durable".to_string(),
        Command::Clean => "clean a slice".to_string(),
        Command::Purge(lane) => format!("purge a slice of target {}", lane.0),
        Command::Cancel => "cancel".to_string(),
        Command::Stop(reason) => format!("stop: {}", reason),
        Command::Park => "park".to_string(),
        Command::Finish => "finish".to_string(),
        Command::Ask(_) | Command::Release(_) => panic!("the conductor keeps these"),
        other => panic!("{other:?}"),
    }
}

fn step(step: &Step) -> String {
    match step {
        Step::Handover { generation, .. } => format!("handover to generation {generation}"),
        Step::Rollback => "rollback".to_string(),
        Step::Flip { targets } => {
            let runs: Vec<String> = targets
                .iter()
                .map(|target| target.run_id.to_string())
                .collect();
            format!("flip to {}", runs.join(" "))
        }
        other => other.state().to_string(),
    }
}
