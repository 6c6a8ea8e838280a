//! Between the words of the nodes' driver and those of the handoff machine.

use clockwise_cluster::handoff::preflight::{Persistence, ServerFacts, Unseen};
use clockwise_cluster::handoff::{Identity, WriteRefusal};
use clockwise_cluster::{Generation, Incarnation, ServerId, Term};

use super::station::StationError;
use crate::driver::{self, DriverError, NodeFacts, WriteRefused};

pub(super) const fn term(term: Term) -> driver::Term {
    driver::Term(term.get())
}

pub(super) const fn generation(generation: Generation) -> driver::Generation {
    driver::Generation(generation.get())
}

pub(super) fn identity(found: &driver::Identity) -> Result<Identity, StationError> {
    let id = |text: &str| {
        let named: Result<ServerId, _> = text.parse();
        named.map_err(|error| StationError::Nameless(error.to_string()))
    };
    let incarnation = Incarnation {
        run_id: id(&found.run_id)?,
        replication_id: id(&found.replication_id)?,
    };
    Ok(Identity {
        incarnation,
        primary: found.primary,
    })
}

pub(super) fn facts(found: NodeFacts) -> Result<ServerFacts, Unseen> {
    let identity =
        identity(&found.identity).map_err(|error| Unseen::WrongServer(error.to_string()))?;
    Ok(ServerFacts {
        identity,
        persistence: match found.persistence {
            driver::Persistence::None => Persistence::None,
            driver::Persistence::Snapshots => Persistence::Snapshots,
            driver::Persistence::AppendEverySecond => Persistence::AppendEverySecond,
            driver::Persistence::AppendAlways => Persistence::AppendAlways,
        },
        memory_used_bytes: found.memory_used_bytes,
        memory_limit_bytes: found.memory_limit_bytes,
        evicts: found.evicts,
        clock_ms: found.clock_ms,
        foreign_writers: found.foreign_writers,
        open_by_default: found.open_by_default,
        persisted_users: found.persisted_users,
        missing_rights: found.missing_rights,
    })
}

pub(super) fn unseen(error: DriverError) -> Unseen {
    match error {
        DriverError::Unreachable { why, .. } => Unseen::Unreachable(why),
        DriverError::Denied { why, .. } => Unseen::Denied(why),
        DriverError::WrongServer { why, .. } => Unseen::WrongServer(why),
        other => Unseen::Unreachable(other.to_string()),
    }
}

pub(super) fn write_refusal(refused: WriteRefused) -> WriteRefusal {
    match refused {
        WriteRefused::OutOfMemory => WriteRefusal::OutOfMemory,
        WriteRefused::BadPayload(why) => WriteRefusal::BadPayload(why),
        WriteRefused::StagingLost => {
            WriteRefusal::Other("the staging value went away again and again".to_owned())
        }
        WriteRefused::Other(why) => WriteRefusal::Other(why),
    }
}
