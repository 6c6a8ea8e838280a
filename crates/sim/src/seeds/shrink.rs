//! Makes a run that breaks an invariant smaller: what is not needed for the same to break is left out.

use super::settings::{Noise, Settings};
use super::{Run, Tracing, run_with};

/// Runs that a shrinking may cost.
const RUNS_MAX: u32 = 200;

/// A seed that breaks an invariant, made as small as it went.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What breaks.
    pub invariant: &'static str,
    /// How.
    pub how: String,
    /// What is left of the run, in words.
    pub settings: String,
    /// What happens in it.
    pub trace: Vec<String>,
}

/// Runs a seed again, without what it does not need; none if nothing breaks.
#[must_use]
pub fn shrunk(seed: u64) -> Option<Failure> {
    let mut settings = Settings::of(seed);
    let mut run = run_with(settings.clone(), Tracing::Off);
    let invariant = run.violation.as_ref()?.0;
    let mut runs = 0;
    loop {
        let before = settings.clone();
        for smaller in smaller_ones(&before) {
            runs += 1;
            let tried: Run = run_with(smaller.clone(), Tracing::Off);
            if tried
                .violation
                .as_ref()
                .is_some_and(|(name, _)| *name == invariant)
            {
                (settings, run) = (smaller, tried);
                break;
            }
            if runs >= RUNS_MAX {
                break;
            }
        }
        if settings == before || runs >= RUNS_MAX {
            break;
        }
    }
    let traced = run_with(settings.clone(), Tracing::On);
    let how = run.violation.map(|(_, how)| how).unwrap_or_default();
    Some(Failure {
        seed,
        invariant,
        how,
        settings: format!("{settings:#?}"),
        trace: traced.trace,
    })
}

/// The same run with one thing less, the largest first.
fn smaller_ones(settings: &Settings) -> Vec<Settings> {
    let mut all = Vec::new();
    for at in (0..settings.faults.len()).rev() {
        let mut less = settings.clone();
        less.faults.remove(at);
        all.push(less);
    }
    if settings.wishes.len() > 1 {
        let mut less = settings.clone();
        less.wishes.pop();
        all.push(less);
    }
    if settings.noise != Noise::CALM {
        all.push(Settings {
            noise: Noise::CALM,
            ..settings.clone()
        });
        let quiet = Noise {
            lost_permille: 0,
            repeated_permille: 0,
            unheard_permille: 0,
            ..settings.noise
        };
        if quiet != settings.noise {
            all.push(Settings {
                noise: quiet,
                ..settings.clone()
            });
        }
    }
    if settings.clients > 1 {
        all.push(Settings {
            clients: settings.clients - 1,
            ..settings.clone()
        });
    }
    if settings.keys > 4 {
        all.push(Settings {
            keys: settings.keys / 2,
            ..settings.clone()
        });
    }
    if settings.window > 1 {
        all.push(Settings {
            window: 1,
            ..settings.clone()
        });
    }
    if settings.throttle > 0 {
        all.push(Settings {
            throttle: 0,
            ..settings.clone()
        });
    }
    all
}
