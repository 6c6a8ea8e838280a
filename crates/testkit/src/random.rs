//! Random input that can be repeated.

use std::hash::{BuildHasher, RandomState};
use std::thread;

/// Names the seed of the one run that is to be repeated.
const SEED_VARIABLE: &str = "CLOCKWISE_SEED";

/// Numbers that look random and come again with the same seed (SplitMix64: Steele, Lea and Flood,
/// "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        assert_ne!(end, 0, "no number is below 0");
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        usize::try_from(self.bits() % end).unwrap_or(0)
    }

    /// True so many times in a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of the elements, of which there is at least one.
    pub fn one<'a, T>(&mut self, elements: &'a [T]) -> &'a T {
        &elements[self.below(elements.len())]
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits().to_be_bytes()[0]).collect()
    }
}

/// Runs a test on this many new seeds, or on the one in `CLOCKWISE_SEED`. A failure prints the seed and
/// the command that repeats it: `cargo test` with these arguments.
pub fn for_seeds(count: usize, repeat: &str, test: impl Fn(&mut Random)) {
    let seeds = match std::env::var(SEED_VARIABLE) {
        Ok(seed) => match seed.parse() {
            Ok(seed) => vec![seed],
            Err(error) => panic!("{SEED_VARIABLE} is no number: {error}"),
        },
        // Each `RandomState` has keys of its own.
        Err(_) => (0..count)
            .map(|round| RandomState::new().hash_one(round))
            .collect(),
    };
    for seed in seeds {
        let _announced = Announced { seed, repeat };
        test(&mut Random::new(seed));
    }
}

struct Announced<'a> {
    seed: u64,
    repeat: &'a str,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let Self { seed, repeat } = self;
            eprintln!("seed {seed}; repeat: {SEED_VARIABLE}={seed} cargo test {repeat}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        // The reference implementation's first outputs for the state 1234567.
        let mut random = Random::new(1_234_567);
        let first = [random.bits(), random.bits(), random.bits()];
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first, published);
    }
}
