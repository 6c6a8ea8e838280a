//! A bounded queue of requests that wait for something, each since a moment of its own.

use std::collections::VecDeque;

use super::Millis;

/// What a queue may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests.
    pub requests_max: usize,
    /// Bytes of all requests together; one request alone may exceed it.
    pub bytes_max: usize,
    /// How long one request may wait, counted from its arrival.
    pub wait_ms_max: u64,
}

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting<R> {
    /// The request, whatever its owner keeps of it.
    pub request: R,
    /// What it counts for against the limit.
    pub bytes: usize,
    /// When it arrived; it keeps this wherever it waits next.
    pub since: Millis,
}

#[derive(Debug)]
pub(super) struct WaitQueue<R> {
    entries: VecDeque<Waiting<R>>,
    bytes: usize,
    /// No entry is older. Entries routed anew may be behind younger ones.
    oldest: Millis,
}

impl<R> WaitQueue<R> {
    pub(super) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            oldest: Millis(u64::MAX),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends a request, or gives it back when there is no room.
    pub(super) fn push(
        &mut self,
        limits: &QueueLimits,
        waiting: Waiting<R>,
    ) -> Result<(), Waiting<R>> {
        let too_large = !self.entries.is_empty() && self.bytes + waiting.bytes > limits.bytes_max;
        if self.entries.len() >= limits.requests_max || too_large {
            return Err(waiting);
        }
        self.account(&waiting);
        self.entries.push_back(waiting);
        Ok(())
    }

    /// Appends requests that were admitted before, so that no limit applies.
    pub(super) fn readmit(&mut self, requests: Vec<Waiting<R>>) {
        for waiting in requests {
            self.account(&waiting);
            self.entries.push_back(waiting);
        }
    }

    fn account(&mut self, waiting: &Waiting<R>) {
        self.bytes += waiting.bytes;
        self.oldest = self.oldest.min(waiting.since);
    }

    /// Takes everything, in order.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Waiting<R>> + use<R> {
        self.bytes = 0;
        self.oldest = Millis(u64::MAX);
        std::mem::take(&mut self.entries).into_iter()
    }

    /// Takes what has waited too long. Cost: nothing while no request can be that old.
    pub(super) fn take_expired(
        &mut self,
        limits: &QueueLimits,
        now: Millis,
        expired: &mut Vec<Waiting<R>>,
    ) {
        let too_old = |since: Millis| now.since(since) >= limits.wait_ms_max;
        if self.entries.is_empty() || !too_old(self.oldest) {
            return;
        }
        for waiting in self.take() {
            if too_old(waiting.since) {
                expired.push(waiting);
            } else {
                self.account(&waiting);
                self.entries.push_back(waiting);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits = QueueLimits {
        requests_max: 3,
        bytes_max: 100,
        wait_ms_max: 10,
    };

    fn waiting(request: u32, bytes: usize, since: u64) -> Waiting<u32> {
        Waiting {
            request,
            bytes,
            since: Millis(since),
        }
    }

    fn names(entries: impl Iterator<Item = Waiting<u32>>) -> Vec<u32> {
        entries.map(|waiting| waiting.request).collect()
    }

    #[test]
    fn a_full_queue_gives_the_request_back() {
        let mut queue = WaitQueue::new();
        assert!(queue.push(&LIMITS, waiting(1, 60, 0)).is_ok());
        assert_eq!(
            queue.push(&LIMITS, waiting(2, 41, 0)),
            Err(waiting(2, 41, 0))
        );
        assert!(queue.push(&LIMITS, waiting(3, 40, 0)).is_ok());
        assert!(queue.push(&LIMITS, waiting(4, 0, 0)).is_ok());
        assert_eq!(queue.push(&LIMITS, waiting(5, 0, 0)), Err(waiting(5, 0, 0)));
        assert_eq!(names(queue.take()), [1, 3, 4]);
        assert!(queue.push(&LIMITS, waiting(6, 100, 0)).is_ok());
    }

    #[test]
    fn one_request_larger_than_the_limit_waits_alone() {
        let mut queue = WaitQueue::new();
        assert!(queue.push(&LIMITS, waiting(1, 101, 0)).is_ok());
        assert_eq!(queue.push(&LIMITS, waiting(2, 1, 0)), Err(waiting(2, 1, 0)));
        assert_eq!(names(queue.take()), [1]);
        assert!(queue.push(&LIMITS, waiting(3, 1, 0)).is_ok());
        assert_eq!(
            queue.push(&LIMITS, waiting(4, 101, 0)),
            Err(waiting(4, 101, 0))
        );
    }

    #[test]
    fn what_waited_too_long_leaves_also_from_behind_younger_requests() {
        let mut queue = WaitQueue::new();
        for (request, since) in [(1, 8), (2, 3), (3, 9)] {
            queue
                .push(&LIMITS, waiting(request, 1, since))
                .expect("room");
        }
        let mut expired = Vec::new();
        queue.take_expired(&LIMITS, Millis(12), &mut expired);
        assert!(expired.is_empty());
        queue.take_expired(&LIMITS, Millis(13), &mut expired);
        assert_eq!(names(expired.drain(..)), [2]);
        queue.take_expired(&LIMITS, Millis(18), &mut expired);
        assert_eq!(names(expired.drain(..)), [1]);
        assert_eq!(names(queue.take()), [3]);
    }
}
