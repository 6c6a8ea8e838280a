//! What a seed decides beforehand: how large the world is, how bad its network, what the operator does in it.

use super::executor::{MS, Micros};
use super::fault::Fault;
use super::random::Random;

/// Servers there are; the first of them are the pool's at the beginning.
pub(super) const SERVERS: usize = 5;
/// Processes of the rebalancer.
pub(super) const PROCESSES: usize = 2;

/// How bad the network is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Noise {
    pub(super) quick_min: Micros,
    pub(super) quick_max: Micros,
    pub(super) slow_permille: u64,
    pub(super) slow_max: Micros,
    /// Of questions to the store, and of its answers.
    pub(super) lost_permille: u64,
    /// Of commits, those that the transport asks for twice.
    pub(super) repeated_permille: u64,
    /// Of news of the record, those that do not arrive, and those that arrive twice.
    pub(super) unheard_permille: u64,
}

impl Noise {
    pub(super) const CALM: Self = Self {
        quick_min: 100,
        quick_max: 101,
        slow_permille: 0,
        slow_max: 6 * MS,
        lost_permille: 0,
        repeated_permille: 0,
        unheard_permille: 0,
    };

    fn of(random: &mut Random) -> Self {
        let stormy = random.chance(400);
        Self {
            quick_min: 20,
            quick_max: random.between(100, 1_500),
            slow_permille: if stormy { random.between(0, 60) } else { 2 },
            slow_max: random.between(10 * MS, 400 * MS),
            lost_permille: if stormy { random.between(0, 60) } else { 1 },
            repeated_permille: if stormy { random.between(0, 100) } else { 5 },
            unheard_permille: random.between(0, 300),
        }
    }
}

/// What the operator does to the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    Join,
    JoinTwo,
    Leave,
    Reweight,
    Replace,
    /// The change before it, the other way round.
    Back,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    pub(super) slots: bool,
    pub(super) clients: usize,
    pub(super) keys: usize,
    /// Between two requests of a client.
    pub(super) pause_max: Micros,
    pub(super) noise: Noise,
    pub(super) skews_ms: [i64; SERVERS],
    /// Whether clients' writes are on the disk before they are answered.
    pub(super) syncs_always: bool,
    /// How long a sync takes.
    pub(super) sync: Micros,
    /// Batches in flight of one copy.
    pub(super) window: usize,
    pub(super) throttle: u64,
    pub(super) wishes: Vec<Wish>,
    pub(super) faults: Vec<Fault>,
}

impl Settings {
    pub(super) fn of(seed: u64) -> Self {
        let random = &mut Random::branch(seed, 1);
        use Wish::{Back, Join, JoinTwo, Leave, Replace, Reweight};
        let wishes = (0..random.between(1, 4))
            .map(|_| random.one(&[Join, Join, JoinTwo, Leave, Reweight, Replace, Back]));
        let wishes = wishes.collect();
        let mut faults = Vec::new();
        let aborted = random.chance(400);
        if aborted {
            faults.push(Fault::abort(random));
        }
        let back_permille = if aborted { 700 } else { 50 };
        for _ in 0..random.between(0, 7) {
            faults.push(Fault::of(random, back_permille));
        }
        Self {
            seed,
            nodes: random.below(3) + 1,
            slots: random.chance(400),
            clients: random.below(3) + 3,
            keys: random.below(40) + 16,
            pause_max: random.between(5 * MS, 60 * MS),
            noise: Noise::of(random),
            skews_ms: std::array::from_fn(|_| {
                i64::try_from(random.between(0, 90)).unwrap_or(0) - 45
            }),
            syncs_always: random.chance(600),
            sync: random.between(1, 60 * MS),
            window: random.below(3) + 1,
            throttle: if random.chance(200) {
                random.between(60, 300)
            } else {
                0
            },
            wishes,
            faults,
        }
    }
}
