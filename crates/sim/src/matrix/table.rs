//! Runs per cell, and why some cells have none.

use std::fmt::Write as _;

use super::faults::Fault;
use super::kept::Kept;
use super::run::Cell;
use super::stage::STAGES;

/// The table of everything that is kept about a binary: clean runs for each cell, `V` and their number where
/// something was violated, `-` where a fault means nothing.
pub(super) fn text(kept: &Kept) -> String {
    let mut text = format!("{:26}", "clean runs");
    for stage in STAGES {
        let _ = write!(text, " {:>13}", stage.name());
    }
    let mut reasons: Vec<String> = Vec::new();
    let (mut clean, mut void, mut violations, mut empty) = (0, 0, 0, 0);
    for fault in Fault::all() {
        let _ = write!(text, "\n{:26}", fault.name());
        let mut stages = Vec::new();
        let mut reason = None;
        for stage in STAGES {
            if let Some(why) = fault.does_not_apply(stage) {
                let _ = write!(text, " {:>13}", "-");
                stages.push(stage.name());
                reason = Some(why);
                continue;
            }
            let counts = kept.of(&Cell { fault, stage }.name());
            let _ = match counts.violations {
                0 => write!(text, " {:>13}", counts.clean),
                many => write!(text, " {:>13}", format!("{} V{many}", counts.clean)),
            };
            clean += counts.clean;
            void += counts.void;
            violations += counts.violations;
            empty += u64::from(counts.clean == 0 && fault.known_to_break().is_none());
        }
        if let Some(why) = fault.known_to_break() {
            reasons.push(format!("- {} is run only by name: {why}", fault.name()));
        }
        if let Some(why) = reason {
            reasons.push(format!(
                "- {} in {}: {why}",
                fault.name(),
                stages.join(", ")
            ));
        }
    }
    let _ = write!(
        text,
        "\n{clean} clean runs, {violations} violations, {void} void runs, {empty} cells without a clean run"
    );
    for reason in reasons {
        let _ = write!(text, "\n{reason}");
    }
    text
}
