//! Rounds in which contestants take turns.

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};

/// Lookups are timed over slices of so many nanoseconds, after a third of it that warms the caches up.
const SLICE_NS: f64 = 3e6;
const ROUNDS: usize = 61;

/// Something that is done once in each round, and how long the timed part took.
pub struct Contestant<'a> {
    pub name: String,
    pub run: Box<dyn FnMut() -> f64 + 'a>,
}

/// The median of so many rounds for each contestant, in their order.
pub fn medians(rounds: usize, contestants: &mut [Contestant<'_>]) -> Vec<f64> {
    let mut times = vec![Vec::with_capacity(rounds); contestants.len()];
    for _ in 0..rounds {
        for (times, contestant) in times.iter_mut().zip(contestants.iter_mut()) {
            times.push((contestant.run)());
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    times.into_iter().map(median).collect()
}

/// How long something takes, in nanoseconds of this thread's CPU time.
pub fn timed<T>(act: impl FnOnce() -> T) -> (f64, T) {
    let start = now();
    let answer = black_box(act());
    (now() - start, answer)
}

fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// A key; some crates fix the type of a key, lifetime included.
pub type Key = &'static [u8];

/// Looks all of some keys up; what it returns keeps the compiler honest.
pub type Lookup = Box<dyn Fn(&[Key]) -> usize>;

/// Nanoseconds a lookup for each of the lookups, in their order.
pub fn time_lookups(keys: &'static [Key], lookups: &[(String, Lookup)]) -> Vec<f64> {
    let contestants = lookups
        .iter()
        .map(|(name, lookup)| repeated(keys, name, lookup));
    medians(ROUNDS, &mut contestants.collect::<Vec<_>>())
}

/// A lookup that goes through the keys, one slice of time in each round.
fn repeated<'a>(keys: &'static [Key], name: &str, lookup: &'a Lookup) -> Contestant<'a> {
    let count = slice_length(keys, lookup);
    let warm = count / 3;
    let mut at = 0;
    let run = move || {
        if at + warm + count > keys.len() {
            at = 0;
        }
        black_box(lookup(&keys[at..at + warm]));
        let (time, _) = timed(|| lookup(&keys[at + warm..at + warm + count]));
        at += warm + count;
        time / count as f64
    };
    Contestant {
        name: name.to_owned(),
        run: Box::new(run),
    }
}

/// How many lookups fill a slice of time.
fn slice_length(keys: &'static [Key], lookup: &Lookup) -> usize {
    let mut count = 64;
    loop {
        let (time, _) = timed(|| lookup(&keys[..count]));
        if time >= SLICE_NS || count * 4 > keys.len() {
            return count;
        }
        count *= 2;
    }
}
