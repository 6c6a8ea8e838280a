//! How many keys a change has to move, and how fast they do: for people who wait for it.
//!
//! Hashing spreads keys evenly over the circle. So a source gives away as large a part of its keys as of its
//! positions, and one that nobody has counted yet has as many keys to a position as those that were.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use clockwise_cluster::{Change, View};
use clockwise_placement::{NodeId, diff};
use tokio::time::Instant;

/// Over how long a rate is taken: long enough for a throttle's steps, short enough to follow a change of it.
const WINDOW: Duration = Duration::from_secs(10);
/// Before this nothing is said of a rate.
const WINDOW_MIN: Duration = Duration::from_millis(500);
/// Bounds the samples that are kept.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// What the handoffs of one change have to move.
#[derive(Debug)]
pub(super) struct Estimate {
    parts: Vec<Option<Part>>,
    counted: Vec<Option<u64>>,
    samples: VecDeque<(Instant, u64)>,
}

/// Parts of the circle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Part {
    owned: f64,
    moving: f64,
}

impl Estimate {
    /// An estimate for the handoffs of a change, in the record's order. What a reverse handoff brings back is
    /// known only once it is listed, and so is what moves where keys get another position.
    pub(super) fn new(change: &Change, view: &View) -> Self {
        let parts = parts(view);
        let part = |source: &NodeId, reverse: bool| {
            let part = parts.get(source).filter(|_| !reverse);
            part.copied()
        };
        let handoffs = &change.handoffs;
        Self {
            parts: handoffs
                .iter()
                .map(|handoff| part(&handoff.source, handoff.is_reverse()))
                .collect(),
            counted: vec![None; handoffs.len()],
            samples: VecDeque::new(),
        }
    }

    /// The source of a handoff has so many keys. The first count holds: later it has given some away.
    pub(super) fn counted(&mut self, index: usize, keys: u64) {
        self.counted[index].get_or_insert(keys);
    }

    /// Keys that a handoff is expected to move, once any source was counted.
    pub(super) fn expected(&self, index: usize) -> Option<u64> {
        let part = self.parts[index]?;
        let known = self.counted[index].filter(|_| part.owned > 0.0);
        let keys_per_circle = match known {
            Some(keys) => keys as f64 / part.owned,
            None => self.keys_per_circle()?,
        };
        Some((keys_per_circle * part.moving).round() as u64)
    }

    /// What the whole circle would hold if it were as full as what was counted.
    fn keys_per_circle(&self) -> Option<f64> {
        let known = self.parts.iter().zip(&self.counted);
        let known = known.filter_map(|(part, keys)| Some(((*part)?.owned, (*keys)?)));
        let (owned, keys) = known.fold((0.0, 0), |(owned, keys), (more, many)| {
            (owned + more, keys + many)
        });
        (owned > 0.0).then(|| keys as f64 / owned)
    }

    /// Takes in how many keys were copied by now, over all handoffs.
    pub(super) fn sample(&mut self, now: Instant, copied: u64) {
        match self.samples.back() {
            // One of them began again.
            Some((_, before)) if *before > copied => self.samples.clear(),
            Some((at, _)) if now.duration_since(*at) < SAMPLE_EVERY => return,
            _ => {}
        }
        self.samples.push_back((now, copied));
        let old = |(at, _): &(Instant, u64)| now.duration_since(*at) > WINDOW;
        while self.samples.front().is_some_and(old) {
            self.samples.pop_front();
        }
    }

    /// Keys a second of late.
    pub(super) fn keys_per_second(&self) -> Option<u64> {
        let ((began, before), (now, copied)) = (self.samples.front()?, self.samples.back()?);
        let took = now.duration_since(*began);
        let rate = (copied - before) as f64 / took.as_secs_f64();
        (took >= WINDOW_MIN).then(|| rate.round() as u64)
    }
}

/// What each node owns and gives away; nothing where the two sides cannot be compared by their intervals.
fn parts(view: &View) -> BTreeMap<NodeId, Part> {
    let mut parts: BTreeMap<NodeId, Part> = BTreeMap::new();
    let before = view.before();
    let Some(Ok(changes)) = view.after().map(|after| diff(before, after)) else {
        return parts;
    };
    for load in before.balance().loads {
        parts
            .entry(before.node(load.node).id.clone())
            .or_default()
            .owned = load.share;
    }
    for change in changes.primaries() {
        let source = before.node(change.old[0]).id.clone();
        parts.entry(source).or_default().moving += change.interval.share();
    }
    parts
}

#[cfg(test)]
mod tests {
    use clockwise_cluster::{Apply, Edit, NewNode, NewPool, Nonce, Record};

    use super::*;

    fn joining() -> (Record, View) {
        let address = |port: u16| format!("127.0.0.1:{port}").parse().unwrap();
        let node = |id: &str, port| NewNode::new(id.parse().unwrap(), address(port));
        let pool = NewPool::new("main".parse().unwrap(), vec![node("a", 1), node("b", 2)]);
        let nonces = &mut || Nonce::new([7; 16]);
        let record = Record::create(pool, nonces).unwrap();
        let edit = Edit::Add {
            id: "c".parse().unwrap(),
            address: address(3),
            weight: "1".parse().unwrap(),
            domain: "".parse().unwrap(),
        };
        let staged = record.stage(edit).unwrap();
        let apply = Apply {
            expected: staged.epoch(),
            id: "join".parse().unwrap(),
            now_ms: 0,
            nonces,
        };
        let record = staged.apply(apply).unwrap();
        let view = View::from_record(&record).unwrap();
        (record, view)
    }

    #[test]
    fn what_moves_is_estimated_from_what_was_counted_and_drawn_keys_agree() {
        const KEYS: u64 = 200_000;
        let (record, view) = joining();
        let change = record.change().unwrap();
        let mut estimate = Estimate::new(change, &view);
        assert_eq!(estimate.expected(0), None, "nothing was counted");
        let (mut owned, mut moving) = ([0, 0], [0, 0]);
        for number in 0..KEYS {
            let at = view.position(&number.to_le_bytes());
            for (index, handoff) in change.handoffs.iter().enumerate() {
                if view.node(view.route(at).node).id == handoff.source {
                    owned[index] += 1;
                }
                let set = view.moving_set(&handoff.id()).unwrap();
                moving[index] += u64::from(set.target(at).is_some());
            }
        }
        assert_eq!(owned.iter().sum::<u64>(), KEYS);
        estimate.counted(0, owned[0]);
        estimate.counted(0, 1);
        let near = |index: usize| {
            let expected = estimate.expected(index).unwrap();
            expected.abs_diff(moving[index]) * 20 < moving[index]
        };
        assert!(near(0) && near(1), "{estimate:?} {moving:?}");
    }

    #[test]
    fn a_rate_follows_what_happened_of_late() {
        let (record, view) = joining();
        let mut estimate = Estimate::new(record.change().unwrap(), &view);
        let began = Instant::now();
        let mut sample = |ms: u64, copied: u64| {
            estimate.sample(began + Duration::from_millis(ms), copied);
            estimate.keys_per_second()
        };
        assert_eq!((sample(0, 0), sample(400, 40)), (None, None));
        assert_eq!(sample(1_000, 100), Some(100));
        for second in 2..=30 {
            sample(second * 1_000, 100);
        }
        assert_eq!(sample(31_000, 100), Some(0), "nothing since long");
        assert_eq!(sample(31_100, 5), None, "it began again");
    }
}
