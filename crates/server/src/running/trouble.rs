//! Saying in the log that the record's store has trouble, and that it has none any more.

use std::sync::Arc;

use clockwise_client::store::ReadError;
use clockwise_cluster::Record;
use tokio::sync::watch;

/// Says it once for each kind of trouble, until the store is gone.
pub(super) async fn tell(
    records: watch::Receiver<Option<Arc<Record>>>,
    mut troubles: watch::Receiver<Option<ReadError>>,
) {
    let mut troubled = false;
    loop {
        let trouble = troubles.borrow_and_update().clone();
        let epoch = records.borrow().as_ref().map(|record| record.epoch().get());
        match trouble {
            Some(error) => {
                if !troubled {
                    tracing::warn!(epoch, %error, "the record cannot be read; the last view goes on, and nothing is changed");
                } else {
                    tracing::debug!(epoch, %error, "the record still cannot be read");
                }
                troubled = true;
            }
            None if troubled => {
                troubled = false;
                tracing::info!(epoch, "the record can be read again");
            }
            None => {}
        }
        if troubles.changed().await.is_err() {
            return;
        }
    }
}
