//! The newest good record of a store and what is wrong with newer ones, as its readers see them.

use std::sync::Arc;

use clockwise_cluster::Record;
use tokio::sync::watch;

use super::ReadError;
use super::transition::check_adopt;

/// The sending halves of `Store::watch` and `Store::trouble`.
#[derive(Debug)]
pub(super) struct Published {
    // Invariant: from `None` to a record, then only to records of higher revisions and no lower epochs.
    record: watch::Sender<Option<Arc<Record>>>,
    trouble: watch::Sender<Option<ReadError>>,
}

impl Published {
    pub(super) fn new() -> Published {
        Published {
            record: watch::Sender::new(None),
            trouble: watch::Sender::new(None),
        }
    }

    pub(super) fn record(&self) -> Option<Arc<Record>> {
        self.record.borrow().clone()
    }

    pub(super) fn watch(&self) -> watch::Receiver<Option<Arc<Record>>> {
        self.record.subscribe()
    }

    pub(super) fn trouble(&self) -> watch::Receiver<Option<ReadError>> {
        self.trouble.subscribe()
    }

    /// Adopts what was read, if it goes forward, and says what is to be told to the reader.
    pub(super) fn settle(
        &self,
        read: Result<Option<Arc<Record>>, ReadError>,
    ) -> Result<Option<Arc<Record>>, ReadError> {
        let checked = read.and_then(|found| match found {
            Some(found) => self.adopt(found).map(Some),
            None => Ok(None),
        });
        let trouble = checked.as_ref().err();
        self.trouble.send_if_modified(|shown| {
            let changed = shown.as_ref() != trouble;
            if changed {
                *shown = trouble.cloned();
            }
            changed
        });
        checked
    }

    /// One that is equal to the known one stays the known one: its address identifies it.
    fn adopt(&self, found: Arc<Record>) -> Result<Arc<Record>, ReadError> {
        let mut outcome = Ok(Arc::clone(&found));
        self.record.send_if_modified(|known| {
            if let Err(error) = check_adopt(known.as_deref(), &found) {
                outcome = Err(error);
                return false;
            }
            match known {
                Some(known) if **known == *found => {
                    outcome = Ok(Arc::clone(known));
                    false
                }
                _ => {
                    *known = Some(found);
                    true
                }
            }
        });
        outcome
    }
}
