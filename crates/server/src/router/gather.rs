//! One request spread over several nodes, and the one answer made of theirs.
//!
//! The request is kept whole; a *part* is a list of its keys that go to one node together, and its
//! bytes are written when it leaves. So a part that has not left can be split again when the view
//! changes. Values come back in the order of the keys, whatever node they are from.

use clockwise_client::commands::Scatter;
use clockwise_client::memcached;
use clockwise_client::resp::{
    ArgSpan, ReplyScanner, Request, Value, write_array, write_bulk, write_integer, write_simple,
};
use clockwise_cluster::{Epoch, Protocol};
use clockwise_placement::NodeId;

use super::memcached::parts;
use super::refusal;
use super::scan::Page;

/// How the parts make one answer.
#[derive(Debug)]
pub(super) enum Merge {
    /// An array of values in the order of the keys.
    Values,
    /// `OK` when every part said so.
    Acknowledged,
    /// The sum of the numbers.
    Sum,
    /// What any of them said.
    Same,
    /// One page of the scan over all nodes.
    Page(Page),
    /// memcached: items in the order of the keys.
    Items,
    /// memcached: `OK` when every node said so.
    Confirmed,
    /// memcached: statistics of all nodes, as one.
    Statistics(Epoch),
    /// memcached: a node's version, and that a router says it.
    Version,
}

/// A number of a part among its request's.
pub(super) type PartNumber = u32;

#[derive(Debug)]
struct Part {
    /// Numbers of keys, in order.
    keys: Vec<u32>,
    /// Where it goes when it has no keys that say so.
    node: Option<NodeId>,
}

/// An answer that a part failed with.
#[derive(Debug)]
struct Failure {
    line: Vec<u8>,
    /// The part may have been executed.
    unknown: bool,
    /// Whose words they are, where they do not say it themselves.
    node: Option<NodeId>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Gather {
    merge: Merge,
    frame: Box<[u8]>,
    /// Its name; of memcached all words in front of the keys.
    head: ArgSpan,
    /// Each key with what belongs to it (the value of `MSET`), as places in `frame`.
    keys: Vec<(ArgSpan, Option<ArgSpan>)>,
    parts: Vec<Part>,
    missing: usize,
    succeeded: usize,
    sum: i64,
    // Invariant: below 4 GiB, so that a place in it fits the two numbers of a value.
    answers: Vec<u8>,
    /// For each key the place of its value in `answers`.
    values: Vec<(u32, u32)>,
    failure: Option<Failure>,
}

impl Gather {
    /// A request whose keys are at `positions`, to be spread by `scatter`.
    pub(super) fn over_keys(scatter: Scatter, request: &Request<'_>, positions: &[usize]) -> Self {
        let merge = match scatter {
            Scatter::Mget => Merge::Values,
            Scatter::Mset => Merge::Acknowledged,
            Scatter::Count => Merge::Sum,
        };
        let mut gather = Self::new(merge, request.frame(), request.span(0));
        let value = |at: &usize| (scatter == Scatter::Mset).then(|| request.span(at + 1));
        gather.keys = positions
            .iter()
            .map(|at| (request.span(*at), value(at)))
            .collect();
        if scatter == Scatter::Mget {
            gather.values = vec![(0, 0); positions.len()];
        }
        gather
    }

    /// A request that goes whole to several nodes.
    pub(super) fn over_nodes(merge: Merge, request: &Request<'_>) -> Self {
        Self::new(merge, request.frame(), request.span(0))
    }

    /// A request of memcached for several keys.
    pub(super) fn over_items(request: &memcached::Request<'_>) -> Self {
        let mut gather = Self::new(Merge::Items, request.frame(), request.head());
        gather.keys = request.keys().iter().map(|key| (*key, None)).collect();
        gather.values = vec![(0, 0); gather.keys.len()];
        gather
    }

    /// A request of memcached that goes whole to several nodes.
    pub(super) fn over_memcached(merge: Merge, request: &memcached::Request<'_>) -> Self {
        Self::new(merge, request.frame(), request.head())
    }

    fn new(merge: Merge, frame: &[u8], head: ArgSpan) -> Self {
        Self {
            merge,
            frame: frame.into(),
            head,
            keys: Vec::new(),
            parts: Vec::new(),
            missing: 0,
            succeeded: 0,
            sum: 0,
            answers: Vec::new(),
            values: Vec::new(),
            failure: None,
        }
    }

    pub(super) fn key_count(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn key(&self, number: u32) -> &[u8] {
        self.bytes(self.keys[number as usize].0)
    }

    fn bytes(&self, place: ArgSpan) -> &[u8] {
        &self.frame[place.range()]
    }

    /// A part of these keys.
    pub(super) fn add_keys(&mut self, keys: Vec<u32>) -> PartNumber {
        self.add(Part { keys, node: None })
    }

    /// The whole request for one node.
    pub(super) fn add_node(&mut self, node: NodeId) -> PartNumber {
        self.add(Part {
            keys: Vec::new(),
            node: Some(node),
        })
    }

    fn add(&mut self, part: Part) -> PartNumber {
        self.missing += 1;
        self.parts.push(part);
        self.parts.len() as PartNumber - 1
    }

    /// The node a part is meant for, if its keys do not say so.
    pub(super) fn node(&self, part: PartNumber) -> Option<&NodeId> {
        self.parts[part as usize].node.as_ref()
    }

    /// Takes the keys of a part back that has not left, to be split anew.
    pub(super) fn take_back(&mut self, part: PartNumber) -> Vec<u32> {
        self.missing -= 1;
        std::mem::take(&mut self.parts[part as usize].keys)
    }

    /// Writes a part as a request of its own.
    pub(super) fn write_part(&self, part: PartNumber, out: &mut Vec<u8>) {
        let part = &self.parts[part as usize];
        if let Merge::Page(page) = &self.merge {
            page.write_request(&self.frame, out);
            return;
        }
        if part.node.is_some() {
            out.extend_from_slice(&self.frame);
            return;
        }
        if matches!(self.merge, Merge::Items) {
            let keys = part.keys.iter().map(|key| self.key(*key));
            return parts::write_line(self.bytes(self.head), keys, out);
        }
        let with_value = matches!(self.merge, Merge::Acknowledged);
        write_array(out, 1 + part.keys.len() * if with_value { 2 } else { 1 });
        write_bulk(out, self.bytes(self.head));
        for key in &part.keys {
            let (key, value) = self.keys[*key as usize];
            write_bulk(out, self.bytes(key));
            if let Some(value) = value {
                write_bulk(out, self.bytes(value));
            }
        }
    }

    /// About how many bytes [`write_part`](Self::write_part) writes.
    pub(super) fn part_bytes(&self, part: PartNumber) -> usize {
        let of_key = |key: &u32| {
            let (key, value) = self.keys[*key as usize];
            key.len() + value.map_or(0, ArgSpan::len) + 32
        };
        let part = &self.parts[part as usize];
        if part.node.is_some() {
            self.frame.len()
        } else {
            part.keys.iter().map(of_key).sum::<usize>() + 32
        }
    }

    /// Bytes of the answers kept so far.
    pub(super) fn answer_bytes(&self) -> usize {
        self.answers.len()
    }

    /// Bytes kept of the request.
    pub(super) fn frame_bytes(&self) -> usize {
        self.frame.len()
    }

    /// The answer of `node` to a part. Says whether it was the last one missing.
    pub(super) fn absorb(&mut self, part: PartNumber, reply: &[u8], node: &NodeId) -> bool {
        self.missing -= 1;
        let refused = match self.is_of_memcached() {
            true => memcached::is_error(reply),
            false => matches!(reply.first(), Some(b'-' | b'!')),
        };
        if refused {
            self.note(Failure {
                line: reply.to_vec(),
                unknown: false,
                node: Some(node.clone()),
            });
            return self.missing == 0;
        }
        let understood = match self.merge {
            // Nobody will read the values of a request that has failed.
            Merge::Values | Merge::Items if self.failure.is_some() => true,
            Merge::Values => self.absorb_values(part, reply),
            Merge::Acknowledged => reply == b"+OK\r\n",
            Merge::Sum => self.absorb_number(reply),
            Merge::Same | Merge::Page(_) | Merge::Version => {
                self.answers = reply.to_vec();
                true
            }
            Merge::Items => self.absorb_items(part, reply),
            Merge::Confirmed => reply == b"OK\r\n",
            Merge::Statistics(_) => {
                self.answers.extend_from_slice(reply);
                true
            }
        };
        if understood {
            self.succeeded += 1;
        } else {
            let name = String::from_utf8_lossy(self.bytes(self.head)).to_uppercase();
            let line = refusal::line(self.spoken(), &refusal::unexpected(&name, node.as_str()));
            self.note(Failure {
                line,
                unknown: false,
                node: None,
            });
        }
        self.missing == 0
    }

    /// Whether it is a request of memcached.
    fn is_of_memcached(&self) -> bool {
        self.spoken() == Protocol::Memcached
    }

    fn spoken(&self) -> Protocol {
        match self.merge {
            Merge::Items | Merge::Confirmed | Merge::Statistics(_) | Merge::Version => {
                Protocol::Memcached
            }
            _ => Protocol::Redis,
        }
    }

    /// Notes where the items of a part lie, each with its key; they come in the order of the keys.
    fn absorb_items(&mut self, part: PartNumber, reply: &[u8]) -> bool {
        let Ok(mut at) = u32::try_from(self.answers.len()) else {
            return false;
        };
        let keys = std::mem::take(&mut self.parts[part as usize].keys);
        let mut keys = keys.into_iter();
        for item in memcached::Items::of(reply) {
            let Some(key) = keys.find(|key| self.key(*key) == item.key) else {
                return false;
            };
            let Ok(bytes) = u32::try_from(item.bytes.len()) else {
                return false;
            };
            let Some(end) = at.checked_add(bytes) else {
                return false;
            };
            self.answers.extend_from_slice(item.bytes);
            self.values[key as usize] = (at, bytes);
            at = end;
        }
        true
    }

    fn absorb_number(&mut self, reply: &[u8]) -> bool {
        let number = match Value::parse(reply) {
            Ok(Some((Value::Integer(number), _))) => number,
            _ => return false,
        };
        self.sum = self.sum.saturating_add(number);
        true
    }

    fn absorb_values(&mut self, part: PartNumber, reply: &[u8]) -> bool {
        let keys = &self.parts[part as usize].keys;
        let Some(mut rest) = elements(reply, keys.len()) else {
            return false;
        };
        if u32::try_from(self.answers.len() + reply.len()).is_err() {
            return false;
        }
        let mut at = (self.answers.len() + (reply.len() - rest.len())) as u32;
        self.answers.extend_from_slice(reply);
        let mut scanner = ReplyScanner::new(usize::MAX);
        for key in keys {
            let Ok(Some(value)) = scanner.scan(rest) else {
                return false;
            };
            let bytes = value.bytes as u32;
            self.values[*key as usize] = (at, bytes);
            at += bytes;
            rest = &rest[value.bytes..];
        }
        rest.is_empty()
    }

    /// A part ended without an answer, with this error line. Says whether it was the last one missing.
    pub(super) fn fail(&mut self, line: Vec<u8>, unknown: bool) -> bool {
        self.missing -= 1;
        self.note(Failure {
            line,
            unknown,
            node: None,
        });
        self.missing == 0
    }

    /// Keeps the first failure, or the first after which nobody knows what was done.
    fn note(&mut self, failure: Failure) {
        if self
            .failure
            .as_ref()
            .is_none_or(|known| failure.unknown && !known.unknown)
        {
            self.failure = Some(failure);
        }
        self.answers = Vec::new();
    }

    /// The page of a scan that was asked for, and its node's reply.
    pub(super) fn page(&self) -> Option<(&Page, &[u8])> {
        match &self.merge {
            Merge::Page(page) if self.failure.is_none() => Some((page, &self.answers)),
            _ => None,
        }
    }

    /// Writes the answer made of all parts.
    pub(super) fn write_answer(&self, out: &mut Vec<u8>) {
        if let Some(failure) = &self.failure {
            return self.write_failure(failure, out);
        }
        match &self.merge {
            Merge::Values => {
                write_array(out, self.values.len());
                self.write_values(out);
            }
            Merge::Acknowledged => write_simple(out, "OK"),
            Merge::Sum => write_integer(out, self.sum),
            Merge::Same | Merge::Page(_) => out.extend_from_slice(&self.answers),
            Merge::Items => {
                self.write_values(out);
                out.extend_from_slice(b"END\r\n");
            }
            Merge::Confirmed => out.extend_from_slice(b"OK\r\n"),
            Merge::Statistics(epoch) => parts::write_statistics(&self.answers, *epoch, out),
            Merge::Version => parts::write_version(&self.answers, out),
        }
    }

    fn write_values(&self, out: &mut Vec<u8>) {
        for (start, len) in &self.values {
            out.extend_from_slice(&self.answers[*start as usize..*start as usize + *len as usize]);
        }
    }

    fn write_failure(&self, failure: &Failure, out: &mut Vec<u8>) {
        let changes = match self.merge {
            Merge::Acknowledged | Merge::Sum => !self.keys.is_empty(),
            Merge::Confirmed => true,
            _ => false,
        };
        if !changes || self.succeeded == 0 {
            out.extend_from_slice(&failure.line);
            return;
        }
        let (done, all) = (
            self.succeeded,
            self.parts
                .iter()
                .filter(|part| !part.keys.is_empty() || part.node.is_some())
                .count(),
        );
        let first: &[u8] = match self.is_of_memcached() {
            true => b"SERVER_ERROR ",
            false => b"-ERR ",
        };
        out.extend_from_slice(first);
        out.extend_from_slice(
            format!("clockwise: done on {done} of {all} nodes only: ").as_bytes(),
        );
        if let Some(node) = &failure.node {
            out.extend_from_slice(format!("node {node}: ").as_bytes());
        }
        let words = failure.line.strip_prefix(b"-").unwrap_or(&failure.line);
        out.extend_from_slice(words.strip_prefix(first).unwrap_or(words));
    }
}

/// What is behind the header of an array of `count` elements.
fn elements(reply: &[u8], count: usize) -> Option<&[u8]> {
    let mut header = Vec::with_capacity(16);
    write_array(&mut header, count);
    reply.strip_prefix(header.as_slice())
}
