//! A client that knows no router: it goes on writing to one server with the credential it was
//! given, as an application does whose view of the ring is frozen.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clockwise_client::credentials::Password;
use tokio_util::sync::CancellationToken;

use super::client::Live;
use super::options::Mix;

/// How a [`DirectWriter`] writes.
#[derive(Debug, Clone)]
pub struct DirectOptions {
    /// `host:port` of the server.
    pub addr: String,
    /// User and password to log in with.
    pub auth: Option<(String, Password)>,
    /// Requests a second at fixed times; `None`: each as soon as there is room.
    pub rate: Option<u64>,
    /// How many requests may be under way.
    pub pipeline: usize,
    /// What is asked how often; usually [`Mix::writes`].
    pub mix: Mix,
}

/// A running direct writer. It ends with its workload; dropping this does not end it.
#[derive(Debug)]
pub struct DirectWriter {
    stop: CancellationToken,
    live: Arc<Live>,
    keys: usize,
}

impl DirectWriter {
    pub(super) fn new(stop: CancellationToken, live: Arc<Live>, keys: usize) -> DirectWriter {
        DirectWriter { stop, live, keys }
    }

    /// How many keys were chosen.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// Writes that the server has acknowledged so far.
    #[must_use]
    pub fn acknowledged_writes(&self) -> u64 {
        self.live.acknowledged.load(Ordering::Relaxed)
    }

    /// Makes no more writes. What it did stands in the workload's report.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}
