//! Random input that can be repeated.

/// Runs `test` on `rounds` random sources. A failure prints the seed and how to run it alone.
pub(crate) fn rounds(name: &str, rounds: u64, test: impl Fn(&mut Random)) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test looks, the crate does not"
    )]
    let wanted = std::env::var("CLOCKWISE_SEED");
    if let Ok(seed) = wanted {
        let seed = seed.parse().expect("CLOCKWISE_SEED is a decimal number");
        return test(&mut Random { state: seed });
    }
    for round in 0..rounds {
        // Any fixed start would do; the rounds must differ.
        let seed = 0xC10C_0000 + round;
        let report = Report { name, seed };
        test(&mut Random { state: seed });
        core::mem::forget(report);
    }
}

struct Report<'a> {
    name: &'a str,
    seed: u64,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        let Self { name, seed } = self;
        eprintln!(
            "seed {seed}; repeat: CLOCKWISE_SEED={seed} cargo nextest run -p clockwise-placement {name}"
        );
    }
}

/// SplitMix64.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}
