//! Numbers that look random and come again with the same seed (SplitMix64: Steele, Lea and Flood,
//! "Fast splittable pseudorandom number generators", 2014).

#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// Streams of different numbers under one seed are independent.
    pub(super) fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed);
        let base = random.next();
        Random(base ^ Random(stream).next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0. The bias, below 2^-32 for bounds below 2^32, is of
    /// no account here.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// One of the elements, if there is one.
    pub(super) fn pick<'a, T>(&mut self, elements: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(elements.len())
            .ok()
            .filter(|count| *count > 0)?;
        let index = usize::try_from(self.below(count)).ok()?;
        elements.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        // The reference implementation's first outputs for the state 1234567.
        let mut random = Random(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first, published);
    }

    #[test]
    fn one_seed_gives_many_streams_and_each_again() {
        let first = |seed, stream| Random::new(seed, stream).next();
        assert_eq!(first(7, 1), first(7, 1));
        assert_ne!(first(7, 1), first(7, 2));
        assert_ne!(first(7, 1), first(8, 1));
    }
}
