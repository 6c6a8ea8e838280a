//! I17: over any second a process copies no more keys than the record's limit says.
//!
//! What is copied while requests are held is not counted: the throttle is there to spare clients, and they wait.

use std::collections::{BTreeMap, VecDeque};

use super::super::executor::{MS, Micros};
use super::super::fact::{Fact, Invariant};
use super::super::truth::Truth;

/// See the module.
#[derive(Default)]
pub(super) struct ThrottleIsKept {
    // The last second of each process under one limit.
    windows: BTreeMap<usize, (u64, VecDeque<(Micros, u64)>)>,
}

impl Invariant for ThrottleIsKept {
    fn name(&self) -> &'static str {
        "I17 the throttle is kept"
    }

    fn see(&mut self, fact: &Fact, _: &Truth, now: Micros) -> Result<(), String> {
        let Fact::Read {
            process,
            keys,
            limit,
        } = fact
        else {
            return Ok(());
        };
        let Some(limit) = limit else {
            self.windows.remove(process);
            return Ok(());
        };
        let window = self.windows.entry(*process).or_default();
        if window.0 != *limit {
            *window = (*limit, VecDeque::new());
        }
        window.1.push_back((now, *keys));
        while window
            .1
            .front()
            .is_some_and(|(at, _)| at + 1_000 * MS <= now)
        {
            window.1.pop_front();
        }
        let sum: u64 = window.1.iter().map(|(_, keys)| keys).sum();
        if sum > *limit {
            return Err(format!(
                "process {process} copied {sum} keys in a second, {limit} are allowed"
            ));
        }
        Ok(())
    }
}
