//! Who is told of touched keys, and what they have not taken yet.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::driver::Dirty;

/// Bytes of names kept for one who does not take them; more and the stream is lost.
const BACKLOG_BYTES_MAX: u64 = 64 << 20;
/// Names in one message.
const KEYS_MAX: usize = 1000;
/// What a name costs beside its bytes.
const KEY_BYTES: u64 = 32;

/// One stream of dirty keys.
#[derive(Debug, Default)]
struct Stream {
    waiting: VecDeque<Dirty>,
    bytes: u64,
    lost: bool,
}

/// All streams of dirty keys.
#[derive(Debug, Default)]
pub(super) struct DirtyStreams {
    streams: BTreeMap<u64, Stream>,
    opened: u64,
}

impl DirtyStreams {
    pub(super) fn open(&mut self) -> u64 {
        self.opened += 1;
        self.streams.insert(self.opened, Stream::default());
        self.opened
    }

    pub(super) fn close(&mut self, id: u64) {
        self.streams.remove(&id);
    }

    pub(super) fn touched(&mut self, key: &Bytes) {
        for stream in self.streams.values_mut().filter(|stream| !stream.lost) {
            stream.bytes += key.len() as u64 + KEY_BYTES;
            match stream.waiting.back_mut() {
                Some(Dirty::Keys(keys)) if keys.len() < KEYS_MAX => keys.push(key.clone()),
                _ => stream.waiting.push_back(Dirty::Keys(vec![key.clone()])),
            }
            if stream.bytes > BACKLOG_BYTES_MAX {
                *stream = Stream {
                    lost: true,
                    ..Stream::default()
                };
            }
        }
    }

    pub(super) fn everything(&mut self) {
        for stream in self.streams.values_mut().filter(|stream| !stream.lost) {
            *stream = Stream::default();
            stream.waiting.push_back(Dirty::Everything);
        }
    }

    /// The next message of a stream; one that is closed is lost.
    pub(super) fn take(&mut self, id: u64) -> Option<Dirty> {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.lost) else {
            return Some(Dirty::Lost);
        };
        let dirty = stream.waiting.pop_front()?;
        if let Dirty::Keys(keys) = &dirty {
            stream.bytes -= keys
                .iter()
                .map(|key| key.len() as u64 + KEY_BYTES)
                .sum::<u64>();
        }
        Some(dirty)
    }

    /// Bytes of names that were not taken; `None` when the stream is lost.
    pub(super) fn backlog_bytes(&self, id: u64) -> Option<u64> {
        self.streams
            .get(&id)
            .filter(|stream| !stream.lost)
            .map(|stream| stream.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_touched_is_told_in_order_until_it_is_too_much() {
        let mut streams = DirtyStreams::default();
        let id = streams.open();
        streams.touched(&Bytes::from("a"));
        streams.touched(&Bytes::from("b"));
        streams.everything();
        streams.touched(&Bytes::from("c"));
        assert_eq!(streams.take(id), Some(Dirty::Everything));
        assert_eq!(streams.take(id), Some(Dirty::Keys(vec![Bytes::from("c")])));
        assert_eq!(
            (streams.take(id), streams.backlog_bytes(id)),
            (None, Some(0))
        );
        let long = Bytes::from(vec![b'k'; 1 << 20]);
        for _ in 0..63 {
            streams.touched(&long);
        }
        assert!(streams.backlog_bytes(id).is_some());
        for _ in 0..2 {
            streams.touched(&long);
        }
        assert_eq!(
            (streams.take(id), streams.backlog_bytes(id)),
            (Some(Dirty::Lost), None)
        );
        streams.close(id);
        assert_eq!(streams.take(id), Some(Dirty::Lost));
    }
}
