//! One client's answers, in the order of its requests, whatever order they come in.
//!
//! Each request takes a place in line. The answer to the request at the front goes straight to the
//! bytes to be written; one that comes early is parked: small ones in a shared buffer, since
//! with several nodes most answers of a pipeline come early. A reply can therefore never shift: it is
//! bound to its place when the request is sent.

use std::collections::VecDeque;

use clockwise_client::memcached::Quiet;

use super::gather::Gather;
use super::limits::{BUFFER_KEPT_BYTES, FIRST_REPLY_BYTES};

/// Early answers of at most this size share a buffer.
const PARKED_BYTES_MAX: usize = 4 << 10;

/// Beyond this the shared buffer takes no more until it is empty.
const PARKING_BYTES_MAX: usize = 256 << 10;

#[derive(Debug)]
enum Place {
    /// Its answer is on the way, of which the client does not want to read this.
    Awaited(Quiet),
    /// Its answer lies in the shared buffer.
    Parked { start: u32, len: u32 },
    /// Its answer has a buffer of its own.
    Boxed(Box<[u8]>),
    /// Its answer is put together from several nodes', likewise.
    Gathering(Box<Gather>, Quiet),
}

/// The number of a request among its client's; wraps around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sequence(pub(super) u32);

#[derive(Debug)]
pub(super) struct ReplyQueue {
    places: VecDeque<Place>,
    /// The number of the place at the front.
    front: u32,
    parking: Vec<u8>,
    /// Answers in `parking`.
    parked: usize,
    /// Bytes in boxed places.
    boxed_bytes: usize,
    /// Bytes of answers that are being put together.
    gathered_bytes: usize,
    /// Bytes of the requests that these are for.
    gather_frame_bytes: usize,
    out: Vec<u8>,
    written: usize,
    /// What an answer of this client is likely to take: the largest of late, forgotten slowly.
    expected_bytes: usize,
}

impl ReplyQueue {
    pub(super) fn new() -> Self {
        Self {
            places: VecDeque::new(),
            front: 0,
            parking: Vec::new(),
            parked: 0,
            boxed_bytes: 0,
            gathered_bytes: 0,
            gather_frame_bytes: 0,
            out: Vec::new(),
            written: 0,
            expected_bytes: FIRST_REPLY_BYTES,
        }
    }

    /// Requests without an answer at the front, or behind one.
    pub(super) fn waiting(&self) -> usize {
        self.places.len()
    }

    /// Takes the next place in line, for an answer of which the client does not want to read this.
    pub(super) fn reserve(&mut self, quiet: Quiet) -> Sequence {
        let sequence = self.front.wrapping_add(self.places.len() as u32);
        self.places.push_back(Place::Awaited(quiet));
        Sequence(sequence)
    }

    /// Makes a reserved place one that is put together.
    pub(super) fn gather(&mut self, sequence: Sequence, gather: Box<Gather>) {
        let index = self.index(sequence);
        self.gather_frame_bytes += gather.frame_bytes();
        let quiet = self.quiet(index);
        self.places[index] = Place::Gathering(gather, quiet);
    }

    /// Gives what is being put together at a place to `take`, which may add to it or end it. `None`
    /// if nothing is.
    pub(super) fn gather_more<T>(
        &mut self,
        sequence: Sequence,
        take: impl FnOnce(&mut Gather) -> T,
    ) -> Option<T> {
        let gather = self.gathering(sequence)?;
        let before = gather.answer_bytes();
        let taken = take(gather);
        let after = gather.answer_bytes();
        self.gathered_bytes = self.gathered_bytes - before + after;
        Some(taken)
    }

    /// What is being put together at a place.
    pub(super) fn gathering(&mut self, sequence: Sequence) -> Option<&mut Gather> {
        let index = self.index(sequence);
        match self.places.get_mut(index) {
            Some(Place::Gathering(gather, _)) => Some(gather),
            _ => None,
        }
    }

    /// What the client does not want to read of the answer at a place.
    fn quiet(&self, index: usize) -> Quiet {
        match self.places.get(index) {
            Some(Place::Awaited(quiet) | Place::Gathering(_, quiet)) => *quiet,
            _ => Quiet::Nothing,
        }
    }

    /// Takes what was put together at a place, which awaits its answer from now on.
    pub(super) fn take_gather(&mut self, sequence: Sequence) -> Option<Box<Gather>> {
        let index = self.index(sequence);
        let quiet = self.quiet(index);
        let place = self.places.get_mut(index)?;
        match std::mem::replace(place, Place::Awaited(quiet)) {
            Place::Gathering(gather, _) => {
                self.gathered_bytes -= gather.answer_bytes();
                self.gather_frame_bytes -= gather.frame_bytes();
                Some(gather)
            }
            other => {
                *place = other;
                None
            }
        }
    }

    /// Answers a request at once, in its turn.
    pub(super) fn answer_now(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.places.is_empty() {
            write(&mut self.out);
            return;
        }
        let mut bytes = Vec::new();
        write(&mut bytes);
        let place = self.park(&bytes);
        self.places.push_back(place);
    }

    /// The answer to a request has come.
    pub(super) fn deliver(&mut self, sequence: Sequence, answer: &[u8]) {
        let expected = self.expected_bytes;
        self.expected_bytes = if answer.len() > expected {
            answer.len()
        } else {
            expected - (expected - answer.len()) / 16
        };
        let index = self.index(sequence);
        let answer = match self.quiet(index).hides(answer) {
            true => &[],
            false => answer,
        };
        if index > 0 {
            self.places[index] = self.park(answer);
            return;
        }
        self.places.pop_front();
        self.front = self.front.wrapping_add(1);
        self.out.extend_from_slice(answer);
        self.advance();
    }

    /// Moves what is ready at the front to the output.
    fn advance(&mut self) {
        while let Some(place) = self.places.front() {
            match place {
                Place::Awaited(_) | Place::Gathering(..) => return,
                Place::Parked { start, len } => {
                    let start = *start as usize;
                    self.out
                        .extend_from_slice(&self.parking[start..start + *len as usize]);
                    self.parked -= 1;
                }
                Place::Boxed(bytes) => {
                    self.out.extend_from_slice(bytes);
                    self.boxed_bytes -= bytes.len();
                }
            }
            if self.parked == 0 {
                self.parking.clear();
            }
            self.places.pop_front();
            self.front = self.front.wrapping_add(1);
        }
    }

    fn park(&mut self, answer: &[u8]) -> Place {
        if answer.len() > PARKED_BYTES_MAX || self.parking.len() > PARKING_BYTES_MAX {
            self.boxed_bytes += answer.len();
            return Place::Boxed(answer.into());
        }
        let start = self.parking.len() as u32;
        self.parking.extend_from_slice(answer);
        self.parked += 1;
        Place::Parked {
            start,
            len: answer.len() as u32,
        }
    }

    fn index(&self, sequence: Sequence) -> usize {
        sequence.0.wrapping_sub(self.front) as usize
    }

    /// Bytes to be written to the client now.
    pub(super) fn unwritten(&self) -> &[u8] {
        &self.out[self.written..]
    }

    pub(super) fn mark_written(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        } else if self.written > 64 << 10 && self.written > self.out.len() / 2 {
            self.out.drain(..self.written);
            self.written = 0;
        }
    }

    /// Bytes of answers kept for the client: to be written, waiting for their turn, or being put together.
    pub(super) fn kept_bytes(&self) -> usize {
        self.out.len() - self.written + self.parking.len() + self.boxed_bytes + self.gathered_bytes
    }

    /// Bytes of requests kept until their answers are put together.
    pub(super) fn gather_frame_bytes(&self) -> usize {
        self.gather_frame_bytes
    }

    /// How many requests may be waiting if their answers are to fit `bytes`, at least one.
    pub(super) fn window(&self, bytes: usize) -> usize {
        (bytes / self.expected_bytes.max(1)).max(1)
    }

    /// Gives memory back that is not needed now.
    pub(super) fn shrink(&mut self, keep: usize) {
        if self.out.is_empty() {
            self.out.shrink_to(keep);
        }
        if self.places.is_empty() {
            self.places.shrink_to(keep / 64);
            self.parking.shrink_to(keep);
        }
    }

    /// Gives back what a large answer needed, right after it was written.
    pub(super) fn shrink_outsized(&mut self) {
        if self.out.is_empty() && self.out.capacity() > 16 * BUFFER_KEPT_BYTES {
            self.out.shrink_to(BUFFER_KEPT_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes what is to be written, as a socket would.
    fn written(queue: &mut ReplyQueue) -> Vec<u8> {
        let bytes = queue.unwritten().to_vec();
        queue.mark_written(bytes.len());
        bytes
    }

    #[test]
    fn answers_leave_in_the_order_of_requests_whatever_order_they_come_in() {
        // Every order in which five answers can come, one of them too large for the shared buffer.
        let answers: [Vec<u8>; 5] = [
            b"+a\r\n".to_vec(),
            vec![b'b'; PARKED_BYTES_MAX + 1],
            b"+c\r\n".to_vec(),
            b"+d\r\n".to_vec(),
            b"+e\r\n".to_vec(),
        ];
        let expected = answers.concat();
        for order in permutations(5) {
            let mut queue = ReplyQueue::new();
            // Numbers wrap around within this pipeline.
            queue.front = u32::MAX - 2;
            let sequences: Vec<Sequence> = answers
                .iter()
                .map(|_| queue.reserve(Quiet::Nothing))
                .collect();
            let mut out = Vec::new();
            for at in &order {
                queue.deliver(sequences[*at], &answers[*at]);
                out.extend(written(&mut queue));
            }
            assert!(out == expected, "{order:?}");
            assert_eq!((queue.waiting(), queue.kept_bytes()), (0, 0), "{order:?}");
        }
    }

    fn permutations(count: usize) -> Vec<Vec<usize>> {
        if count == 0 {
            return vec![Vec::new()];
        }
        let shorter = permutations(count - 1);
        let insert = |order: &Vec<usize>, at: usize| {
            let mut longer = order.clone();
            longer.insert(at, count - 1);
            longer
        };
        shorter
            .iter()
            .flat_map(|order| (0..count).map(move |at| insert(order, at)))
            .collect()
    }

    #[test]
    fn an_answer_of_our_own_waits_for_its_turn() {
        let mut queue = ReplyQueue::new();
        queue.answer_now(|out| out.extend_from_slice(b"+first\r\n"));
        let sequence = queue.reserve(Quiet::Nothing);
        queue.answer_now(|out| out.extend_from_slice(b"+third\r\n"));
        assert_eq!(written(&mut queue), b"+first\r\n");
        queue.deliver(sequence, b"+second\r\n");
        assert_eq!(written(&mut queue), b"+second\r\n+third\r\n");
    }

    #[test]
    fn the_window_follows_the_size_of_answers_down_slowly_and_up_at_once() {
        let mut queue = ReplyQueue::new();
        assert_eq!(queue.window(4 << 20), 64);
        for _ in 0..200 {
            let sequence = queue.reserve(Quiet::Nothing);
            queue.deliver(sequence, b"+OK\r\n");
            written(&mut queue);
        }
        assert!(queue.window(4 << 20) > 1_024);
        let sequence = queue.reserve(Quiet::Nothing);
        queue.deliver(sequence, &vec![0; 1 << 20]);
        assert_eq!(queue.window(4 << 20), 4);
        assert_eq!(queue.window(10), 1);
    }

    #[test]
    fn the_memory_of_a_large_answer_is_given_back() {
        let mut queue = ReplyQueue::new();
        let sequence = queue.reserve(Quiet::Nothing);
        queue.deliver(sequence, &vec![0; 8 << 20]);
        written(&mut queue);
        queue.shrink_outsized();
        assert!(queue.out.capacity() <= 2 * BUFFER_KEPT_BYTES);
    }

    #[test]
    fn what_a_client_does_not_want_to_read_takes_its_turn_and_no_bytes() {
        let mut queue = ReplyQueue::new();
        let first = queue.reserve(Quiet::Nothing);
        let silent = queue.reserve(Quiet::Everything);
        let miss = queue.reserve(Quiet::Miss);
        let hit = queue.reserve(Quiet::Miss);
        queue.deliver(hit, b"VA 1\r\nx\r\n");
        queue.deliver(miss, b"EN\r\n");
        queue.deliver(silent, b"STORED\r\n");
        queue.answer_now(|out| out.extend_from_slice(b"MN\r\n"));
        assert_eq!(written(&mut queue), b"", "the first is missing");
        queue.deliver(first, b"HD\r\n");
        assert_eq!(written(&mut queue), b"HD\r\nVA 1\r\nx\r\nMN\r\n");
        assert_eq!(queue.waiting(), 0);
    }
}
