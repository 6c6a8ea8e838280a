//! What the admin API answers: the names that scripts rely on. Fields are only ever added.
//!
//! Positions are strings of 16 hexadecimal digits, since not every JSON reader keeps 64-bit numbers.

use std::fmt;

use clockwise_cluster::Edit;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::API_VERSION;
use crate::up::placing::Placing;

/// What every answer begins with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// [`API_VERSION`].
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    /// What kind of answer it is.
    pub kind: String,
    /// The epoch it was given at; none where no record is looked at.
    pub epoch: Option<u64>,
    /// The answer itself.
    #[serde(flatten)]
    pub body: T,
}

/// An answer with a name.
pub trait Answer {
    /// Its name in the envelope.
    const KIND: &'static str;

    /// The answer in its envelope.
    fn at(self, epoch: u64) -> Envelope<Self>
    where
        Self: Sized,
    {
        Envelope {
            api_version: API_VERSION.to_owned(),
            kind: Self::KIND.to_owned(),
            epoch: Some(epoch),
            body: self,
        }
    }
}

/// How the pool is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The pool's name.
    pub pool: String,
    /// What its nodes speak.
    pub protocol: String,
    /// What may happen to its data.
    pub class: String,
    /// Grows with every commit of the record.
    pub revision: u64,
    /// Equal fingerprints place every key alike.
    pub fingerprint: String,
    /// How keys become positions.
    pub scheme: String,
    /// How the intervals come about.
    pub generator: String,
    /// The same in numbers; none of a kind that this version does not know.
    #[serde(default)]
    pub placement: Option<Placing>,
    /// How many nodes hold a key.
    pub replicas: u8,
    /// The change in flight.
    pub change: Option<ChangeSummary>,
    /// How many edits wait for `apply`.
    pub staged: usize,
    /// The nodes, those that join or leave included.
    pub nodes: Vec<NodeStatus>,
    /// Who leads the pool: moves its keys, and decides whom its nodes let in.
    #[serde(default)]
    pub leader: Option<LeaderStatus>,
    /// What is wrong, in words; empty when all is well.
    pub problems: Vec<String>,
    /// What to type to mend that, where it is known.
    #[serde(default)]
    pub next: Option<String>,
}

/// Who leads a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderStatus {
    /// What it calls itself.
    pub name: String,
    /// Its term.
    pub term: u64,
    /// Where its admin API is, as it says.
    pub admin: Option<String>,
    /// Whether it is the process that answers.
    pub here: bool,
    /// Why it could not be asked how far it is: then only what the record says is known.
    pub unheard: Option<String>,
}

/// A change in flight in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeSummary {
    /// Its name.
    pub id: String,
    /// The epoch it was planned at.
    pub base_epoch: u64,
    /// `forward`, or `back` after an abort.
    pub direction: String,
    /// How many handoffs it has.
    pub handoffs: usize,
    /// How many of them are over.
    pub over: usize,
}

/// How a node is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its stable name.
    pub id: String,
    /// What part it plays.
    pub state: String,
    /// Where its server listens.
    pub address: String,
    /// Where it stands; empty when no place is known.
    pub domain: String,
    /// How much it takes beside the others.
    pub weight: f64,
    /// Keys on its server; none while that does not answer.
    pub keys: Option<u64>,
    /// Keys that it had when it last answered this process, where it does not answer now.
    #[serde(default)]
    pub keys_before: Option<u64>,
    /// The part of all positions that it owns now.
    pub share: f64,
    /// Requests that the router sent there in the last second.
    pub requests_per_second: u64,
    /// Bytes of memory its server uses.
    pub memory_bytes: Option<u64>,
    /// What answers there.
    pub server: Option<String>,
    /// Why it lets no clients in.
    #[serde(default)]
    pub closed: Option<String>,
}

/// Where a key is, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// The key as text; bytes that are none are replaced.
    pub key: String,
    /// The key's bytes in hexadecimal digits.
    pub key_hex: String,
    /// Where the key lies.
    pub position: String,
    /// The point that owns it.
    pub point: String,
    /// The interval up to that point.
    pub interval: IntervalText,
    /// The node that owns the key now.
    pub node: String,
    /// Where that node's server listens.
    pub address: String,
    /// All nodes that hold the key, its owner first.
    pub replicas: Vec<String>,
    /// What is missing of the replicas asked for.
    pub shortfall: ShortfallText,
    /// The change in flight that moves the key.
    pub moving: Option<MovingText>,
    /// Why that node, in words.
    pub why: String,
}

/// An interval of the circle: after one position and through the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalText {
    /// The position before its first.
    pub after: String,
    /// Its last position.
    pub through: String,
}

/// What is missing of a key's replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortfallText {
    /// Replicas that there are no nodes for.
    pub nodes: u8,
    /// For each level of domains, outermost first: replicas that share one with an earlier replica.
    pub domains: Vec<u8>,
}

/// A key's part in the change in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovingText {
    /// Its owner before the change.
    pub from: String,
    /// Its owner after the change.
    pub to: String,
    /// How far the handoff that moves it has got.
    pub state: String,
    /// Whether requests for it wait at this moment.
    pub held: bool,
}

/// The edits that wait for `apply`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StagedList {
    /// In the order in which they were staged.
    pub staged: Vec<StagedEdit>,
    /// Why `apply` would refuse them as they stand; further edits may mend it.
    #[serde(default)]
    pub refused: Option<String>,
}

/// One edit that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StagedEdit {
    /// By which it can be taken back.
    pub id: u32,
    /// In words.
    pub text: String,
    /// What it asks for.
    pub edit: Edit,
}

/// The nodes alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeList {
    /// Those of the pool, those that join or leave included.
    pub nodes: Vec<NodeStatus>,
}

/// What `apply` would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// For a person.
    pub text: String,
    /// All that was found out, as the cluster crate's plan names it.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// How far the moves of the change in flight have got, or those of the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moves {
    /// The change; none if there never was one that is still remembered.
    pub change: Option<String>,
    /// How it stands.
    pub outcome: Outcome,
    /// `forward`, or `back` after an abort.
    pub direction: Option<String>,
    /// How fast they may go.
    pub throttle: Throttle,
    /// What the change in flight was made of, in words; it is staged no more.
    #[serde(default)]
    pub edits: Vec<String>,
    /// Keys that changed their owner, or were copied so far, over all moves.
    #[serde(default)]
    pub keys_moved: u64,
    /// Keys that are expected to move: an estimate until all sources are listed; none where nothing was counted.
    #[serde(default)]
    pub keys_expected: Option<u64>,
    /// How much of that has moved, in percent. None on the way back.
    #[serde(default)]
    pub percent: Option<f64>,
    /// Keys copied a second of late.
    #[serde(default)]
    pub keys_per_second: Option<u64>,
    /// How long the copying takes at that rate. None while nothing is copied.
    #[serde(default)]
    pub eta_seconds: Option<u64>,
    /// One for each handoff.
    pub moves: Vec<Move>,
    /// What to type so that it goes on, where it does not by itself and that is known.
    #[serde(default)]
    pub next: Option<String>,
    /// Why the leader could not be asked: the numbers are those of the last step that the record has.
    #[serde(default)]
    pub unheard: Option<String>,
}

impl Moves {
    /// Whether the change is on its way back, or came back.
    #[must_use]
    pub fn goes_back(&self) -> bool {
        self.direction.as_deref() == Some(BACK)
    }
}

/// The direction of an aborted change.
pub(super) const BACK: &str = "back";

/// How a change stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Outcome {
    /// There is none.
    None,
    /// It goes on.
    Running,
    /// A handoff cannot go on by itself.
    Stopped,
    /// It ended with the layout that was asked for.
    Done,
    /// It was aborted, and everything is where it was.
    Undone,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Done => "done",
            Self::Undone => "undone",
        })
    }
}

/// One handoff.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// The node that gives.
    pub source: String,
    /// The nodes it gives to.
    pub targets: Vec<String>,
    /// How far it has got.
    pub state: String,
    /// Whether it takes an aborted change back.
    pub reverse: bool,
    /// Keys that changed their owner, or were copied so far.
    pub keys_moved: u64,
    /// Keys it is expected to move, where a source was counted: an estimate until its own is listed.
    pub keys_expected: Option<u64>,
    /// Bytes copied.
    pub bytes: u64,
    /// Keys that differed when both sides were compared; each was copied again.
    pub mismatches: u64,
    /// The longest that requests were held.
    pub hold_ms_max: u64,
    /// How long it took, or has taken so far.
    pub seconds: f64,
    /// Why it cannot go on by itself.
    pub stopped: Option<String>,
    /// The server it waits for and tries again, and what that said last.
    #[serde(default)]
    pub waiting: Option<String>,
}

/// How fast moves may go; 0 is without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    /// Keys a second, over all sources.
    pub keys_per_second: u64,
    /// Bytes a second, over all sources.
    pub bytes_per_second: u64,
}

impl Answer for Status {
    const KIND: &'static str = "Status";
}

impl Answer for Route {
    const KIND: &'static str = "Route";
}

impl Answer for StagedList {
    const KIND: &'static str = "Staged";
}

impl Answer for NodeList {
    const KIND: &'static str = "Nodes";
}

impl Answer for Plan {
    const KIND: &'static str = "Plan";
}

impl Answer for Moves {
    const KIND: &'static str = "Moves";
}

impl Answer for Throttle {
    const KIND: &'static str = "Throttle";
}
