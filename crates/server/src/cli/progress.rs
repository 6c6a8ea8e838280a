//! How far moves have got, on stderr: lines that grow on a terminal, one line per step elsewhere.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::output::{self, bytes, count};
use crate::admin::answer::{Move, Moves};

const TEMPLATE: &str = "{prefix} {bar:24} {msg}";

/// Shows the moves of one change.
pub(super) struct Progress {
    bars: MultiProgress,
    terminal: bool,
    by_source: BTreeMap<(String, bool), Shown>,
}

struct Shown {
    bar: ProgressBar,
    state: String,
    waits: String,
}

impl Progress {
    pub(super) fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        Self {
            bars: MultiProgress::new(),
            terminal,
            by_source: BTreeMap::new(),
        }
    }

    /// Shows the moves as they are now.
    pub(super) fn show(&mut self, moves: &Moves) {
        for one in &moves.moves {
            let key = (one.source.clone(), one.reverse);
            let bars = &self.bars;
            let shown = self
                .by_source
                .entry(key)
                .or_insert_with(|| Shown::new(bars, one));
            if !self.terminal && shown.state != one.state {
                let keys = count(one.keys_moved);
                output::say(format_args!(
                    "{} → {}: {}, {keys} keys",
                    one.source,
                    one.targets.join(", "),
                    one.state
                ));
            }
            shown.state.clone_from(&one.state);
            shown
                .bar
                .set_length(one.keys_expected.unwrap_or(0).max(one.keys_moved).max(1));
            shown.bar.set_position(one.keys_moved);
            let rate = if one.seconds > 0.0 {
                one.keys_moved as f64 / one.seconds
            } else {
                0.0
            };
            let waits = one.waiting.as_ref();
            let waits = waits.map_or_else(String::new, |why| format!("  waits: {why}"));
            shown.bar.set_message(format!(
                "{:<9} {} keys, {}, {rate:.0} keys/s{waits}",
                one.state,
                count(one.keys_moved),
                bytes(one.bytes),
            ));
            if !self.terminal && shown.waits != waits && !waits.is_empty() {
                output::say(format_args!("{}{waits}", one.source));
            }
            shown.waits = waits;
        }
    }

    /// Leaves the terminal as it was found; what remains to be said goes to stdout.
    pub(super) fn end(&self) {
        for shown in self.by_source.values() {
            shown.bar.finish_and_clear();
        }
    }
}

impl Shown {
    fn new(bars: &MultiProgress, one: &Move) -> Self {
        let style =
            ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = bars.add(ProgressBar::new(1).with_style(style));
        bar.set_prefix(format!("{} → {}", one.source, one.targets.join(", ")));
        Self {
            bar,
            state: String::new(),
            waits: String::new(),
        }
    }
}
