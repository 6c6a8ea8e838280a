//! Back-pressure: nodes are faster than clients, and a worker's memory is neither's.
//!
//! What a node has sent lies in its connection until an answer is whole, then with the client that
//! asked, until that has read it. When clients have as much to read as they may together, a
//! connection in the middle of a large answer is not read from: it is *choked*. The node's bytes then
//! wait in the socket, and the node with them. Small answers go on, since they cost nothing.
//!
//! *Nobody waits for ever.* A connection is choked until clients have read a good part of what there
//! was for them. If they do not do that in time, those who have most are dropped until the part is
//! gone. So slow readers cost others that time once, and then their connections.
//!
//! *Nobody waits for each other.* Of the answers that are arriving the largest counts only what clients
//! could read, each other one also those larger than itself: one always goes on.

use clockwise_client::resp::Protocol;
use clockwise_client::routing::NodeSlot;

use super::limits::{MEMORY_SHARE_BYTES, NODE_READ_BYTES};
use super::worker::{Turn, Worker};

impl Worker {
    /// Bytes that clients may have to read before large answers wait, and down to which they must have
    /// come before those go on.
    fn unread_bounds(&self) -> (usize, usize) {
        let max = self.settings.limits.memory_bytes_max;
        (max / 2, max / 8 * 3)
    }

    /// Whether nothing is read from this connection now; if so, it is as soon as there is room.
    pub(super) fn chokes(&mut self, slot: NodeSlot, protocol: Protocol) -> bool {
        if !self.is_too_much(slot, protocol) {
            return false;
        }
        let link = self
            .links
            .get_mut(slot.0)
            .and_then(|links| links[protocol as usize].as_mut());
        if let Some(link) = link.filter(|link| !link.choked) {
            link.choked = true;
            self.choked_links.push((slot, protocol));
            self.choked_since.get_or_insert(self.now);
        }
        true
    }

    /// Whether there is no room for more of the answer that is arriving over this connection.
    fn is_too_much(&self, slot: NodeSlot, protocol: Protocol) -> bool {
        let link = self
            .links
            .get(slot.0)
            .and_then(|links| links[protocol as usize].as_ref());
        let arrived = link.map_or(0, |link| link.input_bytes());
        if arrived <= NODE_READ_BYTES {
            return false;
        }
        let size = |arrived: usize, at: (NodeSlot, Protocol)| (arrived, at.0, at.1 as usize);
        let own = size(arrived, (slot, protocol));
        let links = self.links.iter().flatten().flatten();
        let larger: usize = links
            .map(|link| (link.input_bytes(), (link.slot, link.protocol)))
            .filter(|(arrived, at)| size(*arrived, *at) > own)
            .map(|(arrived, _)| arrived)
            .sum();
        let (high, low) = self.unread_bounds();
        let bound = if self.choked_since.is_some() {
            low
        } else {
            high
        };
        self.unread_bytes + larger > bound
    }

    /// Reads on where there is room again.
    pub(super) fn unchoke_links(&mut self) {
        for (slot, protocol) in std::mem::take(&mut self.choked_links) {
            if self.is_too_much(slot, protocol) {
                self.choked_links.push((slot, protocol));
            } else {
                self.unchoke(slot, protocol);
            }
        }
        if self.choked_links.is_empty() {
            self.choked_since = None;
        }
    }

    fn unchoke(&mut self, slot: NodeSlot, protocol: Protocol) {
        let now = self.now;
        if let Some(link) = self.links[slot.0][protocol as usize].as_mut() {
            link.unchoke(now);
            self.ready_links.push((slot, protocol));
        }
    }

    /// Drops those who have most to read, when clients together have taken too long.
    pub(super) fn end_choke(&mut self, turn: &Turn) {
        let ms_max = self.settings.limits.choke_ms_max;
        let Some(since) = self.choked_since else {
            return;
        };
        if turn.now.since(since) < ms_max {
            return;
        }
        let (_, low) = self.unread_bounds();
        let mut readers: Vec<(usize, usize)> = Vec::new();
        for place in self.clients.taken() {
            if let Some(client) = self.clients.get(place) {
                readers.push((client.counted_unread, place));
            }
        }
        readers.sort_unstable();
        while self.unread_bytes > low
            && let Some((unread, place)) = readers.pop()
            && unread > MEMORY_SHARE_BYTES
        {
            if let Some(client) = self.clients.get(place) {
                let (client, all) = (client.addr(), self.unread_bytes);
                tracing::info!(
                    client,
                    unread,
                    all,
                    "dropped: others wait for what it does not read"
                );
            }
            self.counters.clients_dropped += 1;
            self.remove(place);
        }
        // Where nobody has much, there are just many: the bound of the memory is for them.
        for (slot, protocol) in std::mem::take(&mut self.choked_links) {
            self.unchoke(slot, protocol);
        }
        self.choked_since = None;
    }
}
