//! How much may happen in one run of the model: everything else is finite by itself.

/// How often each thing may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bounds {
    /// Acknowledged writes, deletions among them.
    pub writes: u8,
    /// Leaderships, one after the other; the process of an earlier one may go on or be dead.
    pub terms: u8,
    /// Handovers that somebody else than the leader rolls back.
    pub rescues: u8,
    /// Requests to take the change back.
    pub aborts: u8,
    /// Restarts of a node.
    pub restarts: u8,
    /// Streams of touched keys that break by themselves.
    pub stream_breaks: u8,
    /// Commits whose result is not known.
    pub unknown_commits: u8,
    /// Fences that a busy server does not carry out.
    pub busy_fences: u8,
    /// Handovers that run out of time.
    pub timeouts: u8,
    /// Changes, one after the other: there, and back.
    pub changes: u8,
}

impl Bounds {
    /// One leader, one change, nothing goes wrong.
    pub const QUIET: Self = Self {
        writes: 2,
        terms: 1,
        rescues: 0,
        aborts: 0,
        restarts: 0,
        stream_breaks: 0,
        unknown_commits: 0,
        busy_fences: 0,
        timeouts: 0,
        changes: 1,
    };
}

/// A named world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// What it is about.
    pub name: &'static str,
    /// What may happen in it.
    pub bounds: Bounds,
    /// Whether it is looked at in seconds, so that every gate can.
    pub small: bool,
}

const fn small(name: &'static str, bounds: Bounds) -> Scenario {
    let small = true;
    Scenario {
        name,
        bounds,
        small,
    }
}

const fn large(name: &'static str, bounds: Bounds) -> Scenario {
    let small = false;
    Scenario {
        name,
        bounds,
        small,
    }
}

const QUIET: Bounds = Bounds::QUIET;

/// The worlds that `model` checks, the small ones first.
pub const SCENARIOS: [Scenario; 15] = [
    small("quiet", QUIET),
    small(
        "there-and-back",
        Bounds {
            changes: 3,
            ..QUIET
        },
    ),
    small(
        "crash",
        Bounds {
            writes: 1,
            terms: 2,
            ..QUIET
        },
    ),
    small(
        "rollback",
        Bounds {
            rescues: 2,
            busy_fences: 1,
            ..QUIET
        },
    ),
    small(
        "late",
        Bounds {
            timeouts: 1,
            unknown_commits: 1,
            ..QUIET
        },
    ),
    small(
        "abort",
        Bounds {
            aborts: 1,
            stream_breaks: 1,
            ..QUIET
        },
    ),
    small(
        "restart",
        Bounds {
            restarts: 1,
            ..QUIET
        },
    ),
    small(
        "given-back",
        Bounds {
            writes: 0,
            aborts: 1,
            restarts: 1,
            ..QUIET
        },
    ),
    large(
        "crash-and-rollback",
        Bounds {
            writes: 1,
            terms: 2,
            rescues: 1,
            ..QUIET
        },
    ),
    large(
        "three-leaders",
        Bounds {
            writes: 0,
            terms: 3,
            ..QUIET
        },
    ),
    large(
        "crash-and-return",
        Bounds {
            writes: 1,
            terms: 2,
            changes: 2,
            ..QUIET
        },
    ),
    large(
        "crash-and-abort",
        Bounds {
            writes: 1,
            terms: 2,
            aborts: 1,
            ..QUIET
        },
    ),
    large(
        "crash-and-restart",
        Bounds {
            writes: 1,
            terms: 2,
            restarts: 1,
            ..QUIET
        },
    ),
    large(
        "abort-and-restart",
        Bounds {
            aborts: 1,
            restarts: 1,
            ..QUIET
        },
    ),
    large(
        "two-restarts",
        Bounds {
            restarts: 2,
            rescues: 1,
            ..QUIET
        },
    ),
];
