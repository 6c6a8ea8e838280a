//! The embedded node: for trying clockwise without installing a server.
//!
//! It keeps strings in memory and nothing else; a restart loses everything, and it says so when it
//! starts. Clients speak RESP to it as they do to Redis. The rebalancer works with it through the same
//! [`Driver`](crate::driver::Driver), natively: no scripts, no dumps.
//!
//! The [`Model`] is the node without the outside. A [`EmbeddedNodes`] runs some of them in this
//! process, each behind a lock and a listener; [`EmbeddedDriver`] is how they are moved.

mod driver;
mod front;
mod model;
mod nodes;

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

pub use driver::EmbeddedDriver;
pub use model::{ConnectionId, Model, Pass, Stored, StreamId};
pub use nodes::{EmbeddedNodes, EmbeddedOptions, StartError};

/// What time it is.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> u64;
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        // A clock before 1970 stands at 1970: nothing expires.
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
