//! What a workload does, and to whom.

use std::ops::RangeInclusive;
use std::time::Duration;

use clockwise_client::credentials::Password;

use super::connection::Broken;
use super::payload::VALUE_BYTES_MIN;

/// How a [`Workload`](super::Workload) runs. The default is a closed loop of 50 connections on a
/// local router.
#[derive(Debug, Clone)]
pub struct WorkloadOptions {
    /// `host:port` of a router or server.
    pub addr: String,
    /// Further routers of the same pool. Connections are spread over all, so that what one router
    /// was acknowledged is read through the others.
    pub more_addrs: Vec<String>,
    /// User and password to log in with.
    pub auth: Option<(String, Password)>,
    /// How many connections; each writes keys of its own and reads all.
    pub connections: usize,
    /// How many requests a connection may have under way.
    pub pipeline: usize,
    /// How many keys; at least 16 a connection, so that each has a counter.
    pub keys: usize,
    /// What the names of the keys begin with.
    pub key_prefix: String,
    /// The length of a value; at least 48.
    pub value_bytes: usize,
    /// The same seed gives the same choices on each connection.
    pub seed: u64,
    /// Requests a second over all connections, begun at fixed times whether or not earlier ones
    /// were answered (an open loop). `None`: each as soon as there is room for it (a closed loop).
    pub rate: Option<u64>,
    /// What is asked how often.
    pub mix: Mix,
    /// How long values with an expiry live.
    pub ttl_ms: RangeInclusive<u64>,
    /// After this long without an answer a connection is given up.
    pub op_timeout: Duration,
    /// How long a key is left alone after a write of unknown outcome, which may still be executed
    /// somewhere; more than a router holds a request.
    pub unknown_rest: Duration,
    /// How far the clocks and timers of server and workload may be apart.
    pub expiry_tolerance: Duration,
}

impl Default for WorkloadOptions {
    fn default() -> Self {
        WorkloadOptions {
            addr: "127.0.0.1:7379".to_owned(),
            more_addrs: Vec::new(),
            auth: None,
            connections: 50,
            pipeline: 1,
            keys: 10_000,
            key_prefix: "bench".to_owned(),
            value_bytes: 100,
            seed: 1,
            rate: None,
            mix: Mix::default(),
            ttl_ms: 1_000..=60_000,
            op_timeout: Duration::from_secs(5),
            unknown_rest: Duration::from_secs(3),
            expiry_tolerance: Duration::from_millis(50),
        }
    }
}

/// How often each request is made, as weights. What cannot be done to a key at that moment becomes
/// a plain `SET` or `GET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// `GET`.
    pub get: u32,
    /// `MGET` of four keys.
    pub multi_get: u32,
    /// `PEXPIRETIME`, or `PTTL` where the server does not know it.
    pub expiry: u32,
    /// `SET`.
    pub set: u32,
    /// `SET` with `PXAT`.
    pub set_expiring: u32,
    /// `PEXPIREAT` of a value that is there.
    pub expire: u32,
    /// `DEL`.
    pub delete: u32,
    /// `INCR`.
    pub increment: u32,
}

impl Default for Mix {
    fn default() -> Self {
        Mix {
            get: 40,
            multi_get: 5,
            expiry: 5,
            set: 30,
            set_expiring: 8,
            expire: 2,
            delete: 5,
            increment: 5,
        }
    }
}

impl Mix {
    /// The default's writes without its reads.
    #[must_use]
    pub fn writes() -> Mix {
        Mix {
            get: 0,
            multi_get: 0,
            expiry: 0,
            ..Mix::default()
        }
    }
}

/// Why a workload did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Not every connection would have a counter of its own.
    #[error(
        "{keys} keys are too few for {connections} connections: at least {keys_min} are needed"
    )]
    TooFewKeys {
        /// How many were asked for.
        keys: usize,
        /// For so many connections.
        connections: usize,
        /// How many are needed.
        keys_min: usize,
    },
    /// A value has to name its key and version.
    #[error("values of {bytes} bytes are too short: at least {VALUE_BYTES_MIN} are needed")]
    ValueTooShort {
        /// The length asked for.
        bytes: usize,
    },
    /// Nothing would happen.
    #[error("{what} must not be 0")]
    Zero {
        /// The option.
        what: &'static str,
    },
    /// The shortest life is longer than the longest.
    #[error("the range of lives is empty")]
    NoTtl,
    /// The server cannot be reached, or does not let us in.
    #[error("{addr}: {why}")]
    Connect {
        /// The address.
        addr: String,
        /// What happened.
        why: Broken,
    },
    /// The keys could not be made.
    #[error("{addr} answered to {command}: {why}")]
    Refused {
        /// The address.
        addr: String,
        /// The command.
        command: &'static str,
        /// The server's words.
        why: String,
    },
}

/// Keys of a connection for each of its counters.
pub(super) const KEYS_PER_COUNTER: usize = 16;

impl WorkloadOptions {
    pub(super) fn check(&self) -> Result<(), StartError> {
        let Mix {
            get,
            multi_get,
            expiry,
            set,
            set_expiring,
            expire,
            delete,
            increment,
        } = self.mix;
        let weights = [
            get,
            multi_get,
            expiry,
            set,
            set_expiring,
            expire,
            delete,
            increment,
        ];
        let zeroes = [
            ("the number of connections", self.connections == 0),
            ("the pipeline", self.pipeline == 0),
            ("the rate", self.rate == Some(0)),
            (
                "the sum of the mix",
                weights.iter().all(|weight| *weight == 0),
            ),
        ];
        if let Some((what, _)) = zeroes.into_iter().find(|(_, zero)| *zero) {
            return Err(StartError::Zero { what });
        }
        let keys_min = self.connections.saturating_mul(KEYS_PER_COUNTER);
        if self.keys < keys_min {
            return Err(StartError::TooFewKeys {
                keys: self.keys,
                connections: self.connections,
                keys_min,
            });
        }
        if self.value_bytes < VALUE_BYTES_MIN {
            return Err(StartError::ValueTooShort {
                bytes: self.value_bytes,
            });
        }
        if self.ttl_ms.is_empty() {
            return Err(StartError::NoTtl);
        }
        Ok(())
    }
}
