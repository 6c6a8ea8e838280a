//! Commands and events of the handoff machine in a form that a small state can hold.

use clockwise_cluster::Incarnation;
use clockwise_cluster::copier::Lane;
use clockwise_cluster::handoff::{
    Command, Conductor, Event, FenceFailure, Identities, Identity, Order, Party, RoundReport,
    Server,
};

use crate::real::{Real, node_id};

/// What a process of the rebalancer does next, for the handoff of this rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Job {
    pub(crate) index: u8,
    pub(crate) task: Task,
}

/// An order of the conductor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Task {
    Inspect,
    Open(Sides),
    ReadRecord,
    Identify,
    DurableSource,
    Sweep,
    Track,
    List,
    Round,
    Verify,
    Prepare,
    Commit(u16),
    CountOld,
    Fence(u64),
    Barrier,
    CopyLast,
    CompareLast,
    Untrack,
    Durable,
    Clean,
    Purge,
    Cancel,
    TurnBack,
    End,
    Deposed,
}

/// At which nodes sessions are opened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Sides {
    Both,
    Target,
}

/// The job that an order asks for; none if there is nothing to do.
pub(crate) fn job_of(order: &Order, real: &mut Real) -> Option<Job> {
    let (index, command) = match order {
        Order::Handoff(index, command) => (*index, command),
        Order::TurnBack => return Some(whole(Task::TurnBack)),
        Order::End => return Some(whole(Task::End)),
        Order::Deposed => return Some(whole(Task::Deposed)),
        other => unreachable!("{other:?} is never asked for"),
    };
    let task = match command {
        Command::Inspect => Task::Inspect,
        Command::Open(Party::All) => Task::Open(Sides::Both),
        Command::Open(_) => Task::Open(Sides::Target),
        Command::ReadRecord { .. } => Task::ReadRecord,
        Command::Identify => Task::Identify,
        Command::DurableSource => Task::DurableSource,
        Command::Sweep => Task::Sweep,
        Command::Track => Task::Track,
        Command::List => Task::List,
        Command::Round { .. } => Task::Round,
        Command::Verify => Task::Verify,
        Command::Prepare => Task::Prepare,
        Command::Commit(step) => Task::Commit(real.step_id(step)),
        Command::CountOld { .. } => Task::CountOld,
        Command::Fence(generation) => Task::Fence(generation.get()),
        Command::Barrier => Task::Barrier,
        Command::CopyLast => Task::CopyLast,
        Command::CompareLast => Task::CompareLast,
        Command::Untrack => Task::Untrack,
        Command::Durable => Task::Durable,
        Command::Clean => Task::Clean,
        Command::Purge(_) => Task::Purge,
        Command::Cancel => Task::Cancel,
        Command::Stop(_) | Command::Park | Command::Finish => return None,
        other => unreachable!("{other:?} stays with the conductor"),
    };
    let index = u8::try_from(index).expect("few handoffs");
    Some(Job { index, task })
}

const fn whole(task: Task) -> Job {
    Job { index: 0, task }
}

/// What happened to a handoff.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Happened {
    Inspected { record: u16, source: u8, target: u8 },
    Opened,
    Record { record: u16, leads: bool },
    Identified { source: u8, target: u8, keys: u8 },
    Swept,
    Tracking,
    Listed,
    Round { dirty: u8 },
    Verified { mismatches: u8 },
    Prepared { user: u8 },
    Committed,
    Conflict,
    Unknown,
    Deposed,
    NoneOld,
    Fenced,
    Busy,
    BarrierPassed,
    LastCopied,
    LastCompared { different: u8 },
    Durable,
    Cleaned,
    Cancelled,
    Broken { at_source: bool },
    TrackingLost,
    Timeout,
}

/// The event of one handoff, as the machine takes it.
pub(crate) fn event_of(real: &Real, conductor: &Conductor, index: u8, happened: Happened) -> Event {
    let source = real.source_of(conductor, index);
    match happened {
        Happened::Inspected {
            record,
            source: run,
            target,
        } => {
            let entry = real.situation(conductor, index, record, true).entry;
            let expected = entry.and_then(|entry| entry.source_expected);
            let facts = real.facts_of(source, [run, target], expected);
            Event::Inspected(facts)
        }
        Happened::Opened => Event::Opened,
        Happened::Record { record, leads } => {
            Event::Record(real.situation(conductor, index, record, leads))
        }
        Happened::Identified {
            source: run,
            target,
            keys,
        } => Event::Identified(Identities {
            source: Some((identity(source, run), u64::from(keys))),
            targets: vec![identity(1 - source, target)],
        }),
        Happened::Swept => Event::Swept { removed: 0 },
        Happened::Tracking => Event::Tracking,
        Happened::Listed => Event::Listed,
        Happened::Round { dirty } => Event::Round(RoundReport {
            dirty: u64::from(dirty),
            ..RoundReport::default()
        }),
        Happened::Verified { mismatches } => Event::Verified {
            compared: 1,
            mismatches: u64::from(mismatches),
        },
        Happened::Prepared { user } => {
            let (generation, nonce) = real.user(user);
            Event::Prepared { generation, nonce }
        }
        Happened::Committed => Event::Committed {
            epoch: clockwise_cluster::Epoch::FIRST,
        },
        Happened::Conflict => Event::Conflict,
        Happened::Unknown => Event::Unknown,
        Happened::Deposed => Event::Deposed,
        Happened::NoneOld => Event::OldConnections(0),
        Happened::Fenced => Event::Fenced,
        Happened::Busy => Event::FenceFailed(FenceFailure::Busy),
        Happened::BarrierPassed => Event::BarrierPassed,
        Happened::LastCopied => Event::LastCopied { keys: 1 },
        Happened::LastCompared { different } => Event::LastCompared {
            different: u64::from(different),
        },
        Happened::Durable => Event::Durable,
        Happened::Cleaned => Event::Cleaned {
            removed: 0,
            finished: true,
        },
        Happened::Cancelled => Event::Cancelled,
        Happened::Broken { at_source } => Event::Broken {
            at: if at_source {
                Server::Source
            } else {
                Server::Target(Lane(0))
            },
            why: String::new(),
        },
        Happened::TrackingLost => Event::TrackingLost,
        Happened::Timeout => Event::Timeout,
    }
}

/// Which run of its data a node is after so many restarts.
pub(crate) fn incarnation(node: usize, run: u8) -> Incarnation {
    let name = |what: char| format!("{}{what}{run}", node_id(node)).parse();
    Incarnation {
        run_id: name('r').expect("a plain name"),
        replication_id: name('d').expect("a plain name"),
    }
}

pub(crate) fn identity(node: usize, run: u8) -> Identity {
    Identity {
        incarnation: incarnation(node, run),
        primary: true,
    }
}
