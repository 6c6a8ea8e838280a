//! The simulation: nothing breaks, the same seed is the same run, and it gets where it has to.

use clockwise_sim::seeds::{Coverage, Tracing, run};

/// Seeds that every gate runs.
const SEEDS: u64 = 300;

#[test]
fn nothing_breaks_and_the_handover_is_hit_by_every_fault() {
    let mut reached = Coverage::default();
    for seed in 0..SEEDS {
        let result = run(seed, Tracing::Off);
        assert_eq!(
            result.violation, None,
            "repeat it: cargo run --release -p clockwise-sim -- seeds --seed {seed}"
        );
        reached.add(&result.coverage);
    }
    let missing = reached.missing();
    let in_handover: Vec<_> = missing
        .iter()
        .filter(|cell| cell.ends_with(" while handover"))
        .collect();
    assert!(in_handover.is_empty(), "{in_handover:?}");
    assert!(reached.changes > SEEDS, "changes came to their end");
    assert!(reached.rollbacks > SEEDS / 10, "handovers were rolled back");
    assert!(reached.held > 10 * SEEDS, "requests were held");
}

#[test]
fn the_same_seed_is_the_same_run_byte_for_byte() {
    for seed in [3, 58, 170] {
        let (first, second) = (run(seed, Tracing::On), run(seed, Tracing::On));
        assert!(first.trace.len() > 100, "much happens");
        assert!(first == second, "seed {seed} went another way");
    }
    assert_ne!(run(3, Tracing::On).trace, run(4, Tracing::On).trace);
}

#[test]
fn writing_down_what_happens_changes_nothing() {
    let (seen, unseen) = (run(17, Tracing::On), run(17, Tracing::Off));
    assert_eq!(seen.coverage, unseen.coverage);
    assert!(unseen.trace.is_empty());
}
