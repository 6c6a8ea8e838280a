//! How many requests may be on their way over one connection to a node.
//!
//! A server executes all requests it has received before it sends an answer, and keeps the answers
//! meanwhile: a few dozen values of many megabytes make it silent for seconds and cost it gigabytes.
//! How large an answer is, is known only by those before it. So the window has two sides, and the
//! smaller one holds: answers of the size seen of late must fit a bound of bytes, and, as in the slow
//! start of TCP, there are few requests to begin with, and twice as many with each round that was
//! answered and was not enough (RFC 5681; growing only while more is wanted is RFC 7661's idea).

/// Requests that leave for a node before its first answer says how large answers are: eight of the
/// largest value a client may set take a server about a second.
const REQUESTS_FIRST: usize = 8;
/// What an answer is taken to be before there was any.
const ANSWER_BYTES_FIRST: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Window {
    /// Requests that may be on their way while nothing speaks against it.
    requests: usize,
    answers_bytes_max: usize,
    /// What an answer is likely to take: the largest of late, forgotten slowly.
    expected_bytes: usize,
}

impl Window {
    pub(super) fn new(answers_bytes_max: usize) -> Self {
        Self {
            requests: REQUESTS_FIRST,
            answers_bytes_max,
            expected_bytes: ANSWER_BYTES_FIRST,
        }
    }

    /// How many may be on their way, one at least.
    pub(super) fn requests(&self) -> usize {
        self.requests.min(self.by_bytes()).max(1)
    }

    fn by_bytes(&self) -> usize {
        self.answers_bytes_max / self.expected_bytes.max(1)
    }

    /// The first of so many requests, sent or waiting, has been answered.
    pub(super) fn answered(&mut self, bytes: usize, requests: usize) {
        if requests > self.requests && self.requests < self.by_bytes() {
            self.requests += 1;
        }
        let expected = self.expected_bytes;
        self.expected_bytes = if bytes > expected {
            bytes
        } else {
            expected - (expected - bytes) / 16
        };
    }

    /// Nothing was asked for a while: what comes may be of another kind.
    pub(super) fn forget(&mut self) {
        self.requests = REQUESTS_FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_with_each_round_that_was_not_enough() {
        let mut window = Window::new(64 << 20);
        for expected in [8, 16, 32, 64] {
            let round = window.requests();
            assert_eq!(round, expected);
            (0..round).for_each(|_| window.answered(5, 1_000));
        }
        (0..1_000).for_each(|_| window.answered(5, 128));
        assert_eq!(window.requests(), 128, "nobody waited");
        window.forget();
        assert_eq!(window.requests(), 8);
    }

    #[test]
    fn a_large_answer_narrows_it_at_once_and_small_ones_widen_it_slowly() {
        let mut window = Window::new(64 << 20);
        (0..10_000).for_each(|_| window.answered(5, 100_000));
        assert!(window.requests() > 8_000);
        window.answered(60 << 20, 100_000);
        assert_eq!(window.requests(), 1);
        (0..20).for_each(|_| window.answered(5, 100_000));
        assert!((2..8).contains(&window.requests()));
        (0..200).for_each(|_| window.answered(5, 100_000));
        assert!(window.requests() > 8_000);
        window.answered(1 << 30, 1);
        assert_eq!(window.requests(), 1, "one always goes");
    }
}
