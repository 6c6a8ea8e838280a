//! Bytes on their way to a node, kept until they are answered.
//!
//! Requests are appended and leave in whatever pieces the socket takes. They stay in the buffer
//! until their replies came, so that a read can be sent again when the connection breaks without
//! having been copied first. Offsets count from the connection's first byte and never repeat.

/// Answered bytes that are kept before what is behind them moves to the front.
const COMPACT_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct SendBuffer {
    bytes: Vec<u8>,
    /// Offset of `bytes[0]`.
    base: u64,
    // Invariant: answered <= sent <= bytes.len().
    answered: usize,
    sent: usize,
}

impl SendBuffer {
    /// Where the next bytes are appended.
    pub(super) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The offset behind the last byte.
    pub(super) fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// The offset behind the last byte handed to the system.
    pub(super) fn sent_to(&self) -> u64 {
        self.base + self.sent as u64
    }

    /// The offset behind the last byte answered.
    pub(super) fn answered_to(&self) -> u64 {
        self.base + self.answered as u64
    }

    /// Bytes not answered yet, sent or not.
    pub(super) fn unanswered(&self) -> usize {
        self.bytes.len() - self.answered
    }

    /// What has not been handed to the system yet, up to this offset.
    pub(super) fn unsent(&self, to: u64) -> &[u8] {
        &self.bytes[self.sent..index(to, self.base).max(self.sent)]
    }

    pub(super) fn mark_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        assert!(self.sent <= self.bytes.len(), "sent more than there was");
    }

    /// Everything before this offset has been answered.
    pub(super) fn mark_answered(&mut self, offset: u64) {
        let answered = index(offset, self.base);
        assert!(
            self.answered <= answered && answered <= self.sent,
            "answered before it was sent"
        );
        self.answered = answered;
        if answered == self.bytes.len() {
            self.base += answered as u64;
            (self.answered, self.sent) = (0, 0);
            self.bytes.clear();
            self.bytes.shrink_to(COMPACT_BYTES);
        } else if answered > COMPACT_BYTES && answered > self.bytes.len() / 2 {
            self.bytes.drain(..answered);
            self.base += answered as u64;
            (self.answered, self.sent) = (0, self.sent - answered);
        }
    }

    /// The bytes between two offsets that are not answered yet.
    pub(super) fn between(&self, start: u64, end: u64) -> &[u8] {
        &self.bytes[index(start, self.base)..index(end, self.base)]
    }
}

fn index(offset: u64, base: u64) -> usize {
    usize::try_from(offset - base).expect("a buffer's bytes fit in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_until_they_are_answered() {
        let mut buffer = SendBuffer::default();
        buffer.tail().extend_from_slice(b"first");
        let first = buffer.end();
        buffer.tail().extend_from_slice(b"second");
        let second = buffer.end();
        assert_eq!(buffer.unsent(first), b"first");
        assert_eq!(buffer.unsent(second), b"firstsecond");
        buffer.mark_sent(7);
        assert_eq!(buffer.unsent(first), b"", "more than that has left");
        assert_eq!((buffer.unsent(second), buffer.sent_to()), (&b"cond"[..], 7));
        buffer.mark_answered(first);
        assert_eq!(buffer.between(first, second), b"second");
        assert_eq!(buffer.unanswered(), 6);
        buffer.mark_sent(4);
        buffer.mark_answered(second);
        assert_eq!((buffer.unanswered(), buffer.end()), (0, 11));
        buffer.tail().extend_from_slice(b"third");
        assert_eq!(buffer.between(11, 16), b"third");
    }

    #[test]
    fn answered_bytes_do_not_pile_up_under_a_steady_stream() {
        let mut buffer = SendBuffer::default();
        let request = [7u8; 100];
        buffer.tail().extend_from_slice(&request);
        for _ in 0..100_000 {
            let end = buffer.end();
            buffer.tail().extend_from_slice(&request);
            let unsent = buffer.unsent(buffer.end()).len();
            buffer.mark_sent(unsent);
            buffer.mark_answered(end);
        }
        assert!(
            buffer.bytes.capacity() < 8 * COMPACT_BYTES,
            "{}",
            buffer.bytes.capacity()
        );
        assert_eq!(buffer.unanswered(), 100);
    }

    #[test]
    fn the_memory_of_a_large_request_is_given_back() {
        let mut buffer = SendBuffer::default();
        buffer.tail().extend_from_slice(&vec![1; 8 << 20]);
        buffer.mark_sent(8 << 20);
        buffer.mark_answered(8 << 20);
        assert!(buffer.bytes.capacity() <= 2 * COMPACT_BYTES);
    }
}
