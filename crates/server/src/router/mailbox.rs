//! What reaches a worker from outside its loop: views, the table of commands, resolved names, the
//! order to stop; and what it shows of itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use clockwise_client::commands::CommandTable;
use clockwise_client::resp::Protocol;
use clockwise_client::routing::NodeSlot;
use clockwise_cluster::View;
use mio::Waker;

use super::stats::WorkerStats;
use super::worker::Settings;

#[derive(Debug)]
pub(super) enum Message {
    /// The record's view at a later epoch.
    View(Arc<View>),
    /// A node has said which commands there are.
    Table(Arc<CommandTable>),
    /// A node's name was looked up.
    Resolved {
        slot: NodeSlot,
        protocol: Protocol,
        attempt: u64,
        addresses: Vec<SocketAddr>,
    },
    /// The name of the node was looked up to which a client's own connection is made.
    OwnResolved {
        place: usize,
        serial: u32,
        attempt: u64,
        addresses: Vec<SocketAddr>,
    },
    /// What the router was told anew: limits, and the password of clients.
    Settings(Arc<Settings>),
    /// Why no request may be routed any more, or that they may be again.
    Halt(Option<Arc<str>>),
    /// Accept nobody any more, finish what is under way, then end.
    Drain,
    /// End now.
    Stop,
    /// Forget the longest hold seen so far.
    ResetHold,
}

/// One worker's, written by others.
#[derive(Debug)]
pub(super) struct Mailbox {
    messages: Mutex<Vec<Message>>,
    waker: Waker,
    stats: Mutex<WorkerStats>,
}

impl Mailbox {
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            messages: Mutex::default(),
            waker,
            stats: Mutex::default(),
        }
    }

    pub(super) fn post(&self, message: Message) {
        self.messages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(message);
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "a router worker cannot be woken; it reads its messages at its next turn");
        }
    }

    pub(super) fn take(&self) -> Vec<Message> {
        std::mem::take(&mut self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn show(&self, update: impl FnOnce(&mut WorkerStats)) {
        update(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn stats(&self) -> WorkerStats {
        self.stats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
