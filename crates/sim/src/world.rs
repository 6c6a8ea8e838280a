//! All there is at one moment: a record, two servers, every client there could be, up to three rebalancers.
//!
//! One key moves from the first node to the second. Values are numbers of writes; a deletion is a write.

use crate::bounds::Bounds;
use crate::real::Real;
use crate::task::Job;

/// How many nodes there are.
pub(crate) const NODES: usize = 2;
/// Processes of the rebalancer, one for each term.
pub(crate) const PROCESSES: usize = 3;
/// No value.
pub(crate) const ABSENT: u8 = 0;
/// Users that may be told apart.
const USERS: u8 = 16;

/// All there is at one moment. Opaque: [`Handover`](crate::Handover) knows what happens to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    // In the store.
    pub(crate) record: u16,
    pub(crate) leader: u8,
    pub(crate) nodes: [Node; NODES],
    // What published views say: a bit for each node and user.
    pub(crate) claims: u32,
    // What the last acknowledged write left.
    pub(crate) expected: u8,
    pub(crate) written: u8,
    pub(crate) processes: [Process; PROCESSES],
    pub(crate) left: Bounds,
    pub(crate) epoch_fell: bool,
    pub(crate) removed_from_server: bool,
    // A step was committed by a process that does not lead.
    pub(crate) usurped: bool,
    // A comparison found a difference that nobody can explain.
    pub(crate) differed: bool,
}

/// A server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Node {
    pub(crate) value: u8,
    // What a restart brings back.
    pub(crate) disk: u8,
    // A bit for each.
    pub(crate) users: u16,
    pub(crate) terms: u8,
    pub(crate) restarts: u8,
}

/// A process of the rebalancer, from its election on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Process {
    pub(crate) life: Life,
    // The newest record it has read or committed.
    pub(crate) known: u16,
    // Nodes that it believes to have a session at; a bit for each.
    pub(crate) sessions: u8,
    pub(crate) stream: Stream,
    // A touch of the key is on its way to it.
    pub(crate) pending: bool,
    pub(crate) books: u16,
    pub(crate) job: Option<Job>,
    pub(crate) phase: u8,
    pub(crate) carried: u8,
    pub(crate) copied_last: bool,
    // The handoff of the last job.
    pub(crate) active: u8,
    pub(crate) storing: Option<Job>,
    pub(crate) looks: [Option<Look>; NODES],
    // The generation of a user that no record names yet.
    pub(crate) prepared: [u64; NODES],
    pub(crate) late: Option<Late>,
}

/// Whether a process does anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Life {
    Unborn,
    AtRest,
    Conducting(u16),
    Ended,
}

/// The stream of touched keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Stream {
    Off,
    On(u8),
    /// Nothing comes any more, and nobody has noticed.
    Broken,
}

/// A decision about the users of a node, taken but not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Look {
    pub(crate) record: u16,
    pub(crate) admitted: Option<u8>,
}

/// A request of a task that was cancelled, perhaps still on its way to a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Late {
    pub(crate) node: usize,
    pub(crate) request: Request,
}

/// What it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Request {
    Put(u8),
    Remove,
    Fence(u64),
}

impl Process {
    pub(crate) const UNBORN: Self = Self {
        life: Life::Unborn,
        known: 0,
        sessions: 0,
        stream: Stream::Off,
        pending: false,
        books: 0,
        job: None,
        phase: 0,
        carried: 0,
        copied_last: false,
        active: 0,
        storing: None,
        looks: [None; NODES],
        prepared: [0; NODES],
        late: None,
    };
}

impl World {
    /// One node with one value, and a change in flight that brings it to the other.
    pub(crate) fn new(record: u16, real: &Real, bounds: Bounds) -> Self {
        let named = real.facts(record).named;
        let node = |at: usize| Node {
            users: named[at].map_or(0, |user| 1 << user),
            ..Node::default()
        };
        let mut nodes = [node(0), node(1)];
        nodes[0].value = 1;
        nodes[0].disk = 1;
        let mut processes = [Process::UNBORN; PROCESSES];
        processes[0].life = Life::AtRest;
        let mut world = Self {
            record,
            leader: 1,
            nodes,
            claims: 0,
            expected: 1,
            written: 1,
            processes,
            left: Bounds {
                terms: bounds.terms - 1,
                changes: bounds.changes - 1,
                ..bounds
            },
            epoch_fell: false,
            removed_from_server: false,
            usurped: false,
            differed: false,
        };
        world.claim(real, record, false);
        world
    }

    /// Takes in a record that was published; every view of it stays with some client for ever.
    pub(crate) fn claim(&mut self, real: &Real, record: u16, though_held: bool) {
        let facts = real.facts(record);
        if facts.held && !though_held {
            return;
        }
        let user = facts.named[facts.owner].expect("an owner is in the pool");
        assert!(user < USERS, "a small world has few users");
        let bit = usize::from(USERS) * facts.owner + usize::from(user);
        self.claims |= 1 << bit;
    }

    /// Whether a node accepts requests for the key from anybody.
    pub(crate) fn serves(&self, node: usize) -> bool {
        let claims = self.claims >> (usize::from(USERS) * node);
        claims & u32::from(self.nodes[node].users) != 0
    }

    /// Everybody who listens to a node hears that its key was touched.
    pub(crate) fn touch(&mut self, node: usize) {
        for process in &mut self.processes {
            if process.stream == Stream::On(index(node)) {
                process.pending = true;
            }
        }
    }

    /// A client's write, acknowledged; what clients write survives a restart.
    pub(crate) fn write(&mut self, node: usize, value: u8) {
        self.nodes[node].value = value;
        self.nodes[node].disk = value;
        self.expected = value;
        self.touch(node);
    }

    /// A copy: a restart may bring back what was there before it.
    pub(crate) fn put(&mut self, node: usize, value: u8) {
        if value == ABSENT {
            return self.take_away(node);
        }
        self.nodes[node].value = value;
        self.touch(node);
    }

    /// A removal by a copy, of a key that is gone at the source.
    fn take_away(&mut self, node: usize) {
        self.nodes[node].value = ABSENT;
        self.nodes[node].disk = ABSENT;
        self.touch(node);
    }

    /// A removal of what should not be there.
    pub(crate) fn remove(&mut self, node: usize) {
        self.removed_from_server |= self.serves(node) && self.nodes[node].value != ABSENT;
        self.take_away(node);
    }

    /// A node restarts: what is only in its memory is gone, users among it.
    pub(crate) fn restart(&mut self, node: usize, users: u16) {
        let server = &mut self.nodes[node];
        server.value = server.disk;
        server.users = users;
        server.terms = 0;
        server.restarts += 1;
        for process in &mut self.processes {
            process.lose_connections(node);
        }
    }
}

impl Process {
    /// The server has closed all connections of this process to a node.
    pub(crate) fn lose_connections(&mut self, node: usize) {
        if self.stream == Stream::On(index(node)) {
            self.stream = Stream::Broken;
            self.pending = false;
        }
        self.late = self.late.filter(|late| late.node != node);
    }
}

pub(crate) fn index(node: usize) -> u8 {
    u8::try_from(node).expect("two nodes")
}
