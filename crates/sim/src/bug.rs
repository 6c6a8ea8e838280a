//! Planted bugs: rules of the world and of the rebalancer's driver, each broken alone.

use crate::bounds::Bounds;
use crate::invariant::Invariant;

/// A rule that is broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bug {
    /// The fence removes nobody.
    NoFence,
    /// The fence removes only the generation before, not all of them.
    FencePreviousOnly,
    /// The barrier does not wait for the stream of touched keys.
    NoBarrier,
    /// The stream begins once the listing has been copied.
    TrackedAfterListing,
    /// A touch that comes while its key is being copied is taken for seen.
    TouchInFlightForgotten,
    /// Nothing is copied under the fence.
    LastCopiesSkipped,
    /// Copies are taken for durable at once.
    CleanedBeforeDurable,
    /// What is given back is taken for durable at its source at once.
    GivenBackBeforeDurable,
    /// Every reader of the record believes that it leads.
    LeadershipNotRead,
    /// Entering a node leaves the users of lower terms there.
    LowerTermsStay,
    /// A commit does not compare the leadership.
    TermNotCompared,
    /// A commit does not compare the revision.
    RevisionNotCompared,
    /// Requests are not held during a handover.
    NotHeld,
    /// A node that restarts has the users again that it once had.
    UsersPersisted,
    /// A node is opened whatever run of its data it is.
    AnyRunAdmitted,
    /// What a cancelled task still had on its way may land at any time.
    CancelledCopiesLandLate,
    /// Copies that were aborted are left where they are.
    NotPurged,
    /// Users are brought up to date beside a fence, from a record read before it.
    UsersFromAnOldRead,
    /// A key that is gone at the source is left as it is at the target.
    DeletionsNotCopied,
    /// A copy begins on top of what an earlier one left.
    StraysNotSwept,
    /// A busy server's answer is taken for a fence.
    BusyTakenForFence,
}

/// A bug, the least that has to happen for it to show, and the invariant that breaks first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Planted {
    /// The rule that is broken.
    pub bug: Bug,
    /// The world in which it shows.
    pub bounds: Bounds,
    /// What notices it.
    pub breaks: Invariant,
}

/// Nothing but two writes.
const QUIET: Bounds = Bounds::QUIET;
/// A second leader.
const DEPOSED: Bounds = Bounds {
    writes: 1,
    terms: 2,
    ..QUIET
};
/// A node that restarts.
const RESTARTED: Bounds = Bounds {
    writes: 1,
    restarts: 1,
    ..QUIET
};
/// A handover that is rolled back by another.
const RESCUED: Bounds = Bounds {
    rescues: 1,
    ..QUIET
};
/// A stream that breaks.
const TORN: Bounds = Bounds {
    stream_breaks: 1,
    ..QUIET
};
/// A change that is taken back.
const ABORTED: Bounds = Bounds { aborts: 1, ..QUIET };
/// The same, and a node that restarts.
const GIVEN_BACK: Bounds = Bounds {
    writes: 0,
    aborts: 1,
    restarts: 1,
    ..QUIET
};
/// A server too busy to fence.
const BUSY: Bounds = Bounds {
    busy_fences: 1,
    ..QUIET
};

const fn planted(bug: Bug, bounds: Bounds, breaks: Invariant) -> Planted {
    Planted {
        bug,
        bounds,
        breaks,
    }
}

/// Every planted bug.
pub const PLANTED: [Planted; 21] = {
    use Invariant::{
        EpochsOnlyGrow, NoCopyLeftBehind, NoValueResurrected, NoWriteLost, NothingDiffers,
        NothingServedIsRemoved, OneNodeServes, OnlyTheLeaderCommits,
    };
    [
        planted(Bug::NoFence, QUIET, OneNodeServes),
        planted(Bug::FencePreviousOnly, BUSY, OneNodeServes),
        planted(Bug::BusyTakenForFence, BUSY, OneNodeServes),
        planted(Bug::NoBarrier, QUIET, NoWriteLost),
        planted(Bug::TrackedAfterListing, QUIET, NothingDiffers),
        planted(Bug::TouchInFlightForgotten, QUIET, NothingDiffers),
        planted(Bug::DeletionsNotCopied, QUIET, NothingDiffers),
        planted(Bug::StraysNotSwept, TORN, NothingDiffers),
        planted(Bug::LastCopiesSkipped, QUIET, NoValueResurrected),
        planted(Bug::NotHeld, QUIET, OneNodeServes),
        planted(Bug::CleanedBeforeDurable, RESTARTED, NoWriteLost),
        planted(Bug::GivenBackBeforeDurable, GIVEN_BACK, NoWriteLost),
        planted(Bug::UsersPersisted, RESTARTED, OneNodeServes),
        planted(Bug::AnyRunAdmitted, RESTARTED, NoWriteLost),
        planted(Bug::UsersFromAnOldRead, RESTARTED, OneNodeServes),
        planted(Bug::LeadershipNotRead, DEPOSED, OneNodeServes),
        planted(Bug::LowerTermsStay, DEPOSED, NothingServedIsRemoved),
        planted(Bug::TermNotCompared, DEPOSED, OnlyTheLeaderCommits),
        planted(Bug::RevisionNotCompared, RESCUED, EpochsOnlyGrow),
        planted(Bug::CancelledCopiesLandLate, TORN, NoWriteLost),
        planted(Bug::NotPurged, ABORTED, NoCopyLeftBehind),
    ]
};
