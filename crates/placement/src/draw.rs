//! Draws: mixing a hash, and its logarithm in integers, so that every machine ranks weighted nodes alike.
//!
//! A node of weight w wins a draw with probability proportional to w when each node draws −ln(u)/w from its
//! own uniform u and the smallest draw wins. The base of the logarithm cancels out. Floating-point
//! logarithms differ between platforms in the last bit; this one does not: leading zeros give the whole
//! part, and a table of 257 values with linear interpolation the fraction, off by less than 3e-6.

/// Fractional bits of the result: 64 whole ones fit above them into 32 bits.
const FRACTION: u32 = 26;

/// log2(1 + i/256) with `FRACTION` bits.
const TABLE: [u32; 257] = table();

const fn table() -> [u32; 257] {
    let mut table = [0; 257];
    let mut at = 0;
    while at < 257 {
        table[at] = log2_of(256 + at as u64);
        at += 1;
    }
    table
}

/// log2(n/256) for n of 256 through 512, bit by bit: squaring doubles the logarithm.
const fn log2_of(n: u64) -> u32 {
    if n == 512 {
        return 1 << FRACTION;
    }
    // In units of 2^-63, between 1 and 2.
    let mut x = (n as u128) << 55;
    let mut log = 0;
    let mut bit = 0;
    while bit < FRACTION {
        x = (x * x) >> 63;
        log <<= 1;
        if x >= 1 << 64 {
            log |= 1;
            x >>= 1;
        }
        bit += 1;
    }
    log
}

/// −log2(hash / 2^64) with 26 fractional bits: 1 for the greatest hash, almost 2^32 for 0. Never 0.
#[inline]
pub(crate) fn minus_log2(hash: u64) -> u32 {
    let zeros = hash.leading_zeros();
    if zeros == 64 {
        return u32::MAX;
    }
    // The leading one moves out at the top; 8 bits choose the step, the next 32 lie within it.
    let fraction = (hash << zeros) << 1;
    let step = (fraction >> 56) as usize;
    let within = (fraction >> 24) & 0xFFFF_FFFF;
    let (low, high) = (u64::from(TABLE[step]), u64::from(TABLE[step + 1]));
    let log = low + (((high - low) * within) >> 32);
    let whole = u64::from(zeros + 1) << FRACTION;
    u32::try_from(whole - log).unwrap_or(u32::MAX)
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit.
#[inline]
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_logarithm_within_three_millionths() {
        let mut hash = 0x9E37_79B9_7F4A_7C15_u64;
        for shift in 0..64 {
            for _ in 0..1000 {
                hash = hash.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let hash = hash >> shift;
                if hash > 1 << 20 {
                    let exact = 64.0 - (hash as f64).log2();
                    let ours = f64::from(minus_log2(hash)) / f64::from(1 << FRACTION);
                    assert!((exact - ours).abs() < 3e-6, "{hash}: {exact} {ours}");
                }
            }
        }
    }

    #[test]
    fn greater_hashes_never_have_greater_logarithms() {
        let edges = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        let mut edges: std::vec::Vec<u64> = edges.chain([u64::MAX - 1, u64::MAX]).collect();
        edges.sort_unstable();
        assert!(
            edges
                .windows(2)
                .all(|pair| minus_log2(pair[0]) >= minus_log2(pair[1]))
        );
        assert_eq!((minus_log2(u64::MAX), minus_log2(0)), (1, u32::MAX));
    }
}
