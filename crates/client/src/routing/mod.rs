//! Where a request may go now, decided without sockets or clock.
//!
//! [`Traffic`] is one worker's half of the promise that no write is lost when ownership moves. It
//! knows the nodes of the current epoch, which credential generation each connection belongs to,
//! and what is on its way; it is told what happens and answers with what to do. Time is an argument.
//!
//! The rules it keeps, each named by a test:
//! - A request routed under an epoch goes only over a connection of that epoch's generation.
//! - A node's next generation is used only when nothing is in flight on the one before; what is for
//!   that node meanwhile waits, in order.
//! - Requests for keys being handed over are held, reads too; everything else goes on.
//! - Nothing waits or is held for longer than its limit, and what waits is bounded in number and bytes.
//! - What was not sent yet is routed again whenever the epoch changes.
//! - A write whose bytes may have left before its connection broke is *unknown*, and never sent again.
//!
//! [`Conversation`] is the other half, one for each connection: what has left, whose answer comes next.
//!
//! The server's router and the embedded client share both; each executes the [`Command`]s with its
//! own sockets. Cost of the usual way, an open connection: two array lookups and a counter.

mod admission;
mod budget;
mod conversation;
mod greeting;
mod health;
mod lane;
mod outcome;
mod queue;
mod send_buffer;
mod time;
mod traffic;
mod window;

pub use admission::{
    Admission, Command, ConnectFailure, NodeSlot, Obstacle, Refused, StaleEpoch, Target,
    TrafficLimits,
};
pub use budget::RetryLimits;
pub use conversation::{
    Answered, Conversation, ConversationLimits, Front, InFlight, Lost, NoReply, Outgoing, Unmatched,
};
pub use greeting::{Credential, Greeting, Login, ROUTER_FIELD, fact};
pub use health::BackoffLimits;
pub use outcome::{Effect, Flight, Verdict, judge};
pub use queue::{QueueLimits, Waiting};
pub use traffic::Traffic;

/// Milliseconds since an origin of the caller's choosing. Never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// This much later.
    #[must_use]
    pub fn after(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// How much later this is than `earlier`; zero when it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
