//! `SCAN` over all nodes, with a cursor of our own.
//!
//! The cursor says which node is being scanned, how far, and under which epoch. When the epoch has
//! changed since, keys may have moved from a node still to be scanned to one that has been: the scan
//! then begins again, unseen, so that what exists throughout is still returned at least once. (More than
//! once is allowed, as with one server.) A key is returned only by the node that owns it, so
//! copies being made for a move, and what has not been cleaned up behind one, do not show.

use clockwise_client::resp::{Value, write_array, write_bulk, write_error};
use clockwise_cluster::{Epoch, View};

use super::refusal;
use crate::driver::redis::RESERVED_PREFIX;

/// Bits of a node's own cursor. A server's cursor is below the size of its table.
const CURSOR_BITS: u32 = 40;
/// Bits of the node's place in the view, enough for the largest pool.
const NODE_BITS: u32 = 14;
/// Bits of the epoch, its lowest. Together 63: some clients read cursors as signed numbers.
const EPOCH_BITS: u32 = 9;

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Where a scan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    epoch: Epoch,
    /// The node's place in the view.
    pub(super) node: usize,
    cursor: u64,
}

impl Page {
    /// The page a client's cursor stands for, under the view that holds now: the same, or the first
    /// if the epoch has changed. `None` if the text is no cursor.
    pub(super) fn at(cursor: &[u8], epoch: Epoch) -> Option<Self> {
        let number: u64 = std::str::from_utf8(cursor).ok()?.parse().ok()?;
        let first = Self {
            epoch,
            node: 0,
            cursor: 0,
        };
        let tag = number >> (CURSOR_BITS + NODE_BITS);
        if number == 0 || tag != epoch.get() & mask(EPOCH_BITS) {
            return Some(first);
        }
        let node = usize::try_from((number >> CURSOR_BITS) & mask(NODE_BITS)).ok()?;
        Some(Self {
            epoch,
            node,
            cursor: number & mask(CURSOR_BITS),
        })
    }

    /// The same scan at another node, from its start.
    pub(super) fn on_node(self, node: usize) -> Self {
        Self {
            node,
            cursor: if node == self.node { self.cursor } else { 0 },
            ..self
        }
    }

    fn cursor(self) -> Option<u64> {
        let node = u64::try_from(self.node)
            .ok()
            .filter(|node| *node <= mask(NODE_BITS))?;
        let tag = self.epoch.get() & mask(EPOCH_BITS);
        (self.cursor <= mask(CURSOR_BITS))
            .then_some((tag << NODE_BITS | node) << CURSOR_BITS | self.cursor)
    }

    /// Writes the request for this page's node: as the client's, with the node's own cursor.
    pub(super) fn write_request(self, frame: &[u8], out: &mut Vec<u8>) {
        let Ok(Some((Value::Array(arguments), _))) = Value::parse(frame) else {
            unreachable!("a canonical frame is an array of strings");
        };
        write_array(out, arguments.len());
        for (at, argument) in arguments.iter().enumerate() {
            if at == 1 {
                write_bulk(out, self.cursor.to_string().as_bytes());
            } else {
                write_bulk(out, argument.as_bytes().unwrap_or_default());
            }
        }
    }
}

/// What turns a node's reply into ours.
pub(super) struct ScanReply<'a> {
    pub(super) view: &'a View,
    /// Which nodes of the view own anything.
    pub(super) owners: &'a [bool],
}

impl ScanReply<'_> {
    /// Writes our reply to the request for `page`, to which `node` replied `reply`.
    pub(super) fn write(&self, page: &Page, node: &str, reply: &[u8], out: &mut Vec<u8>) {
        let parsed = Value::parse(reply).ok().flatten().map(|(value, _)| value);
        let fields = parsed
            .as_ref()
            .and_then(Value::as_array)
            .unwrap_or_default();
        let [cursor, Value::Array(keys)] = fields else {
            return write_error(out, &refusal::unexpected("SCAN", node));
        };
        let cursor = cursor.as_text().and_then(|text| text.parse::<u64>().ok());
        let Some(next) = cursor.and_then(|cursor| self.next(page, cursor)) else {
            let text = format!(
                "ERR clockwise: the cursor of node {node} is too large to be passed on; scan that node by itself"
            );
            return write_error(out, &text);
        };
        let own: Vec<&[u8]> = keys
            .iter()
            .filter_map(Value::as_bytes)
            .filter(|key| self.belongs(page, key))
            .collect();
        write_array(out, 2);
        write_bulk(out, next.to_string().as_bytes());
        write_array(out, own.len());
        for key in own {
            write_bulk(out, key);
        }
    }

    fn belongs(&self, page: &Page, key: &[u8]) -> bool {
        // Under another epoch the scan begins again anyway.
        page.epoch == self.view.epoch()
            && self.view.route(self.view.position(key)).node.get() == page.node
            && !key.starts_with(RESERVED_PREFIX)
    }

    /// Our cursor behind a page whose node gave `cursor`; zero at the very end.
    fn next(&self, page: &Page, cursor: u64) -> Option<u64> {
        if cursor != 0 {
            return Page { cursor, ..*page }.cursor();
        }
        match (page.node + 1..self.owners.len()).find(|node| self.owners[*node]) {
            Some(node) => Page {
                node,
                cursor: 0,
                ..*page
            }
            .cursor(),
            None if page.epoch == self.view.epoch() => Some(0),
            // The epoch changed on the last page: a cursor that no epoch fits begins again.
            None => Page {
                epoch: page.epoch,
                node: page.node,
                cursor: mask(CURSOR_BITS),
            }
            .cursor(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(epoch: u64, node: usize, cursor: u64) -> Page {
        Page {
            epoch: Epoch::new(epoch),
            node,
            cursor,
        }
    }

    fn text(page: Page) -> String {
        page.cursor().unwrap().to_string()
    }

    #[test]
    fn a_cursor_leads_back_to_its_page_while_the_epoch_stays() {
        for (node, cursor) in [
            (0, 1),
            (0, mask(CURSOR_BITS)),
            (1, 0),
            (9_999, 12_345),
            (16_383, 7),
        ] {
            let page = page(511, node, cursor);
            assert_eq!(Page::at(text(page).as_bytes(), Epoch::new(511)), Some(page));
            assert!(
                page.cursor()
                    .is_some_and(|cursor| i64::try_from(cursor).is_ok())
            );
        }
    }

    #[test]
    fn under_another_epoch_a_cursor_begins_again() {
        let cursor = text(page(7, 2, 99));
        assert_eq!(
            Page::at(cursor.as_bytes(), Epoch::new(8)),
            Some(page(8, 0, 0))
        );
        assert_eq!(Page::at(b"0", Epoch::new(8)), Some(page(8, 0, 0)));
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        for text in [&b""[..], b"x", b"-1", b"1.5", b"99999999999999999999999"] {
            assert_eq!(Page::at(text, Epoch::new(1)), None);
        }
        assert_eq!(page(1, 1 << 14, 0).cursor(), None);
        assert_eq!(page(1, 0, 1 << 40).cursor(), None);
    }
}
