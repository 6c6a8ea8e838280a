//! What one client, one node connection and one worker may cost. Every bound has its reason here.

use clockwise_client::memcached;
use clockwise_client::resp::RequestLimits;
use clockwise_client::routing::{ConversationLimits, TrafficLimits};

/// The router's limits. The defaults suit a pool of caches or stores with small values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients at a time. More are told so and let go. Lowered at start when the process may not
    /// open that many files, keeping [`FILES_RESERVED`] for everything else.
    pub clients_max: usize,
    /// Connections of clients' own to nodes at a time, for `WATCH` and for commands that block. Lowered
    /// likewise.
    pub own_links_max: usize,
    /// What one request may cost, and what it takes to pass over one that costs more.
    pub request: RequestLimits,
    /// The same for clients that speak memcached.
    pub memcached: memcached::RequestLimits,
    /// Bytes of one key. A longer one is refused; the connection stays.
    pub key_bytes_max: usize,
    /// Requests of one client without an answer yet.
    pub in_flight_max: usize,
    /// Bytes of one client's requests that nodes have not answered, before nothing more is read
    /// from it. One request may exceed it.
    pub in_flight_bytes_max: usize,
    /// Bytes of answers kept for a client before nothing more is read from it; what its requests
    /// in flight are likely to bring counts.
    pub output_bytes_soft: usize,
    /// Bytes of answers kept for a client that does not read, before further answers of nodes are not
    /// kept but replaced by an error. The answer that exceeds it is kept.
    pub output_bytes_max: usize,
    /// Bytes that one worker keeps for all its clients together, of requests that are not whole and
    /// of answers that are not read. Beyond, those who have more than their share are dropped. When
    /// answers ready to be read are half of it, no more of large ones is read from nodes.
    pub memory_bytes_max: usize,
    /// Bytes of requests a node connection may have unanswered before more are refused.
    pub node_pending_bytes_max: usize,
    /// Bytes of one reply of a node, and of one answer put together from several.
    pub reply_bytes_max: usize,
    /// Bytes of answers that are likely to be on their way from one node, over one connection, before
    /// further requests wait for these. One answer may exceed it, and so may the first large ones, a
    /// few: what an answer will be is known only by those before it.
    pub node_answers_bytes_max: usize,
    /// How long a node may be silent while it owes an answer.
    pub reply_ms_max: u64,
    /// How long a request may be without an answer in all, also while those before it arrive.
    pub answer_ms_max: u64,
    /// How long a node is asked to block at a time, for a client that waits. A server may take up to a
    /// tenth of a second more to notice that the time is over; together they stay below what a
    /// handover waits for connections of the generation before.
    pub block_ms_max: u64,
    /// How long a client may take to send one request whole.
    pub request_ms_max: u64,
    /// How long a client with a password to give may take to give it.
    pub login_ms_max: u64,
    /// How long a client may leave answers unread without taking a byte.
    pub unread_ms_max: u64,
    /// How long large answers may wait at their nodes for clients together to read what there is for
    /// them, before those who have most to read are dropped.
    pub choke_ms_max: u64,
    /// How long a client may be silent; zero means for ever, as with the servers behind.
    pub idle_ms_max: u64,
    /// Queues and waits while connections are made and keys are handed over.
    pub traffic: TrafficLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients_max: 10_000,
            own_links_max: 1_000,
            request: RequestLimits::default(),
            memcached: memcached::RequestLimits::default(),
            key_bytes_max: 64 << 10,
            in_flight_max: 1_024,
            in_flight_bytes_max: 64 << 20,
            output_bytes_soft: 4 << 20,
            output_bytes_max: 64 << 20,
            memory_bytes_max: 1 << 30,
            node_pending_bytes_max: 256 << 20,
            // A server's own limit for one string, and some for what surrounds it.
            reply_bytes_max: (512 << 20) + (1 << 20),
            node_answers_bytes_max: 64 << 20,
            reply_ms_max: 5_000,
            // Ten times the largest answer, over a network of a gigabit a second.
            answer_ms_max: 60_000,
            block_ms_max: 100,
            request_ms_max: 30_000,
            login_ms_max: 5_000,
            unread_ms_max: 5_000,
            choke_ms_max: 5_000,
            idle_ms_max: 0,
            traffic: TrafficLimits::default(),
        }
    }
}

impl Limits {
    /// Of one connection to a node.
    pub(super) fn conversation(&self) -> ConversationLimits {
        ConversationLimits {
            reply_bytes_max: self.reply_bytes_max,
            answers_bytes_max: self.node_answers_bytes_max,
            reply_ms_max: self.reply_ms_max,
            answer_ms_max: self.answer_ms_max,
        }
    }
}

/// For frames that were taken under limits which may be others by now: nothing is asked of their sizes again.
pub(super) const TAKEN: RequestLimits = RequestLimits {
    elements_max: u32::MAX,
    bulk_bytes_max: u32::MAX,
    request_bytes_max: u32::MAX,
    inline_bytes_max: u32::MAX,
    skip_bytes_max: 0,
};

/// What a client may have of a worker's memory even when there is no more.
pub(super) const MEMORY_SHARE_BYTES: usize = 1 << 20;

/// Files the process keeps for nodes, stores and the admin interface when clients take all others.
pub const FILES_RESERVED: usize = 128;

/// Bytes read from a client at once. Larger requests grow a buffer of their own.
pub(super) const CLIENT_READ_BYTES: usize = 64 << 10;

/// Bytes read from a node at once.
pub(super) const NODE_READ_BYTES: usize = 256 << 10;

/// Answers up to this size are kept for a client whatever is unread: it has few of them on their way.
pub(super) const ANSWER_BYTES_UNCOUNTED: usize = 4 << 10;

/// Capacity a buffer keeps when it is empty; what a large value needed is given back.
pub(super) const BUFFER_KEPT_BYTES: usize = 16 << 10;

/// What a client's next answer is taken to be before it had any.
pub(super) const FIRST_REPLY_BYTES: usize = 64 << 10;

/// Bytes read and dropped from a client that is being let go with an error, so that the error arrives.
pub(super) const LINGER_BYTES_MAX: usize = 1 << 20;

/// How long that may take.
pub(super) const LINGER_MS_MAX: u64 = 1_000;

/// How often clients that take too long are looked for, and rates are counted.
pub(super) const SWEEP_MS: u64 = 1_000;

/// Connections accepted in one turn, so that a flood of them does not starve those that are there.
pub(super) const ACCEPTS_PER_TURN: usize = 64;

/// How long a client's own connection to a node is kept when nothing needs it.
pub(super) const OWN_LINK_REST_MS: u64 = 1_000;

/// How long after a refused `MULTI` the commands behind it are refused with it, unless `EXEC` or
/// `DISCARD` comes first. A client that pipelines them sends all at once; one that saw the error
/// and went on must not be refused for ever.
pub(super) const REFUSED_MULTI_MS: u64 = 1_000;
