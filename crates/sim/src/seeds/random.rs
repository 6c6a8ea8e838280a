//! Random numbers that come from the seed and from nothing else.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). Not the
/// testkit's: that one belongs to tests, and a seed printed here has to mean the same for ever.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Another source of numbers, named by `what`: drawing from one does not move the other.
    pub(super) fn branch(seed: u64, what: u64) -> Self {
        let mut mixed = Self(seed ^ what.wrapping_mul(0xd6e8_feb8_6659_fd93));
        mixed.bits();
        mixed
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `from` to below `to`.
    pub(super) fn between(&mut self, from: u64, to: u64) -> u64 {
        assert!(from < to, "no number lies between them");
        from + self.bits() % (to - from)
    }

    /// An index below `end`, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("an index fits");
        usize::try_from(self.between(0, end)).expect("below an index")
    }

    /// True so many times in a thousand.
    pub(super) fn chance(&mut self, permille: u64) -> bool {
        self.between(0, 1_000) < permille
    }

    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
