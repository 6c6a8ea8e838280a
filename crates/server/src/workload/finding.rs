//! The first thing that was wrong with a key, and what later reads of it told.

use super::fault::FaultKind;
use super::history::Anomaly;

#[derive(Debug)]
pub(super) struct Finding {
    anomaly: Anomaly,
    pub(super) detail: String,
    pub(super) at_ms: u64,
    /// No later read can tell more: what was wrong has been written over.
    closed: bool,
    /// Whether the right value was there when it was last read after this. `None`: no read told.
    right_later: Option<bool>,
}

impl Finding {
    pub(super) fn new(anomaly: Anomaly, detail: String, at_ms: u64) -> Finding {
        Finding {
            anomaly,
            detail,
            at_ms,
            closed: false,
            right_later: None,
        }
    }

    /// What was found came with the answer to a write, which has replaced what was wrong.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// A read that was sent afterwards saw the right value, or again a wrong one.
    pub(super) fn looked_again(&mut self, right: bool) {
        self.right_later = Some(right);
    }

    /// Whether this anomaly is the reason of the one found: an older version has an older expiry.
    pub(super) fn is_explained_by(&self, anomaly: Anomaly) -> bool {
        self.anomaly == Anomaly::WrongTtl && anomaly != Anomaly::WrongTtl
    }

    pub(super) fn kind(&self) -> FaultKind {
        match self.anomaly {
            Anomaly::Behind | Anomaly::Missing => {
                if self.closed || self.right_later == Some(false) {
                    FaultKind::Lost
                } else {
                    FaultKind::Stale
                }
            }
            Anomaly::Resurrected => FaultKind::Resurrected,
            Anomaly::WrongTtl => FaultKind::WrongTtl,
            Anomaly::NeverSent => FaultKind::Corrupt,
            Anomaly::TooHigh => FaultKind::Duplicated,
            Anomaly::Refused => FaultKind::Phantom,
        }
    }
}
