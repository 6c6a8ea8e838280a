//! How far the moves of a change have got, as it is answered.

use clockwise_cluster::{Change, Direction, Finished, Handoff, HandoffState, Record};

use super::answer::{Move, Moves, Outcome, Throttle};
use super::look::{acceptable, direction, throttle};
use super::operator::change_name;
use crate::rebalancer::{ChangeProgress, Progress};

/// The moves of the change in flight, or of the last one that ended.
pub(super) fn moves(record: &Record, progress: &Progress, now_ms: u64) -> Moves {
    match (record.change(), record.finished()) {
        (Some(change), _) => Moves {
            next: acceptable(progress),
            ..running(change, progress, now_ms, throttle(record))
        },
        (None, Some(finished)) => ended(finished, now_ms, throttle(record)),
        (None, None) => without_moves(None, Outcome::None, throttle(record)),
    }
}

/// A change that is done the moment it is applied: no key changed its owner.
pub(super) fn settled_at_once(record: &Record) -> Moves {
    let name = change_name(record.epoch());
    Moves {
        direction: Some(direction(Direction::Forward).to_owned()),
        percent: Some(ALL),
        ..without_moves(Some(name), Outcome::Done, throttle(record))
    }
}

/// What percent is when nothing is left to move.
const ALL: f64 = 100.0;

fn without_moves(change: Option<String>, outcome: Outcome, throttle: Throttle) -> Moves {
    Moves {
        change,
        outcome,
        direction: None,
        throttle,
        edits: Vec::new(),
        keys_moved: 0,
        keys_expected: None,
        percent: None,
        keys_per_second: None,
        eta_seconds: None,
        moves: Vec::new(),
        next: None,
        unheard: None,
    }
}

fn running(change: &Change, progress: &Progress, now_ms: u64, throttle: Throttle) -> Moves {
    let known = progress.change.as_ref();
    let known = known.filter(|progress| progress.id == change.id);
    let one = |handoff: &Handoff| match known {
        Some(known) => one_move(handoff, now_ms).with(handoff, known),
        None => one_move(handoff, now_ms),
    };
    let moves: Vec<Move> = change.handoffs.iter().map(one).collect();
    let outcome = match moves.iter().any(|one| one.stopped.is_some()) {
        true => Outcome::Stopped,
        false => Outcome::Running,
    };
    let forward = change.direction == Direction::Forward;
    let course = Course::of(&moves).filter(|_| forward);
    let rate = known.and_then(|known| known.keys_per_second);
    Moves {
        direction: Some(direction(change.direction).to_owned()),
        edits: change.edits.iter().map(ToString::to_string).collect(),
        keys_moved: moves.iter().map(|one| one.keys_moved).sum(),
        keys_expected: course.map(|course| course.expected),
        percent: course.map(Course::percent),
        keys_per_second: rate,
        eta_seconds: course.and_then(|course| course.seconds_at(rate?)),
        moves,
        ..without_moves(Some(change.id.to_string()), outcome, throttle)
    }
}

fn ended(finished: &Finished, now_ms: u64, throttle: Throttle) -> Moves {
    let handoffs = finished.handoffs.iter();
    let moves: Vec<Move> = handoffs.map(|handoff| one_move(handoff, now_ms)).collect();
    let keys_moved = moves.iter().map(|one| one.keys_moved).sum();
    let outcome = match finished.direction {
        Direction::Forward => Outcome::Done,
        Direction::Back => Outcome::Undone,
    };
    let done = outcome == Outcome::Done;
    Moves {
        direction: Some(direction(finished.direction).to_owned()),
        keys_moved,
        keys_expected: done.then_some(keys_moved),
        percent: done.then_some(ALL),
        moves,
        ..without_moves(Some(finished.id.to_string()), outcome, throttle)
    }
}

/// How much of what is expected has moved.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Course {
    moved: u64,
    expected: u64,
}

impl Course {
    /// None while something is not known of one of them. Keys that are copied once more count once.
    fn of(moves: &[Move]) -> Option<Self> {
        let expected = moves.iter().map(|one| one.keys_expected);
        let pairs = moves.iter().zip(expected.collect::<Option<Vec<_>>>()?);
        let (moved, expected) = pairs.fold((0, 0), |(moved, all), (one, expected)| {
            (moved + one.keys_moved.min(expected), all + expected)
        });
        Some(Self { moved, expected })
    }

    fn percent(self) -> f64 {
        match self.expected {
            0 => ALL,
            // With one decimal: more would only flicker.
            expected => (1_000.0 * self.moved as f64 / expected as f64).round() / 10.0,
        }
    }

    fn seconds_at(self, keys_per_second: u64) -> Option<u64> {
        let left = self.expected - self.moved;
        (keys_per_second > 0).then(|| left.div_ceil(keys_per_second))
    }
}

fn one_move(handoff: &Handoff, now_ms: u64) -> Move {
    let report = &handoff.report;
    // The report counts whole states; the one it is in has taken until now.
    let waits = handoff.state.is_over() || handoff.state == HandoffState::Planned;
    let in_state_ms = if waits {
        0
    } else {
        now_ms.saturating_sub(handoff.entered_at_ms)
    };
    Move {
        source: handoff.source.to_string(),
        targets: handoff.targets.iter().map(ToString::to_string).collect(),
        state: handoff.state.name().to_owned(),
        reverse: handoff.is_reverse(),
        keys_moved: report.keys_moved,
        // Settled once there is a report of it.
        keys_expected: (handoff.state.is_flipped() || handoff.state.is_over())
            .then_some(report.keys_moved),
        bytes: report.bytes,
        mismatches: report.mismatches,
        hold_ms_max: report.hold_ms_max,
        seconds: report.duration_ms.saturating_add(in_state_ms) as f64 / 1000.0,
        stopped: None,
        waiting: None,
    }
}

impl Move {
    /// The move as its rebalancer sees it at this moment; the record knows it as of its last step.
    fn with(self, handoff: &Handoff, change: &ChangeProgress) -> Self {
        let mut known = change.handoffs.iter();
        let Some(progress) = known.find(|progress| progress.id == handoff.id()) else {
            return self;
        };
        let unwritable = change.unwritable.clone();
        let unwritable = unwritable.filter(|_| !handoff.state.is_over());
        Self {
            keys_moved: self.keys_moved.max(progress.keys_copied),
            keys_expected: self.keys_expected.or(progress.keys_expected),
            bytes: self.bytes.max(progress.bytes_copied),
            mismatches: self.mismatches.max(progress.mismatches),
            hold_ms_max: self.hold_ms_max.max(progress.hold_ms_max),
            stopped: progress.stopped.clone(),
            waiting: unwritable.or_else(|| progress.waiting.clone()),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(keys_moved: u64, keys_expected: Option<u64>) -> Move {
        Move {
            source: "a".to_owned(),
            targets: vec!["b".to_owned()],
            state: "copying".to_owned(),
            reverse: false,
            keys_moved,
            keys_expected,
            bytes: 0,
            mismatches: 0,
            hold_ms_max: 0,
            seconds: 1.0,
            stopped: None,
            waiting: None,
        }
    }

    #[test]
    fn a_course_is_known_once_every_move_is_and_never_above_the_whole() {
        assert_eq!(Course::of(&[one(5, Some(10)), one(0, None)]), None);
        let course = Course::of(&[one(5, Some(10)), one(70, Some(20))]).unwrap();
        assert_eq!((course.moved, course.expected), (25, 30));
        assert_eq!((course.percent(), course.seconds_at(2)), (83.3, Some(3)));
        assert_eq!(course.seconds_at(0), None);
        let nothing = Course::of(&[one(0, Some(0))]).unwrap();
        assert_eq!((nothing.percent(), nothing.seconds_at(9)), (100.0, Some(0)));
    }
}
