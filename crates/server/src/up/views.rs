//! Views of the record, one for each epoch, for everybody in this process who routes.

use std::sync::Arc;

use clockwise_client::store::Store;
use clockwise_cluster::{Record, View, ViewError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Publishes a view whenever the record's epoch grows, until everybody who looks is gone.
///
/// A record of which no view can be made is reported, and the last view goes on.
///
/// # Errors
/// When no view can be made of the record to begin with.
pub(super) fn publish(
    record: &Record,
    store: &dyn Store,
) -> Result<(watch::Receiver<Arc<View>>, JoinHandle<()>), ViewError> {
    let (sender, views) = watch::channel(Arc::new(View::from_record(record)?));
    let mut records = store.watch();
    let task = tokio::spawn(async move {
        loop {
            let record = records.borrow_and_update().clone();
            if let Some(record) = record.filter(|record| record.epoch() > sender.borrow().epoch()) {
                let renewed = sender.borrow().renewed(&record);
                match renewed {
                    Ok(view) => {
                        tracing::debug!(epoch = %view.epoch(), fingerprint = %view.fingerprint(), "new view");
                        sender.send_replace(Arc::new(view));
                    }
                    Err(error) => {
                        tracing::error!(epoch = %record.epoch(), %error, "the record makes no view; the last one goes on");
                    }
                }
            }
            tokio::select! {
                changed = records.changed() => if changed.is_err() { return },
                () = sender.closed() => return,
            }
        }
    });
    Ok((views, task))
}

#[cfg(test)]
mod tests {
    use clockwise_client::store::MemoryStore;
    use clockwise_cluster::{NewNode, NewPool, Nonce, Revision};

    use super::*;

    #[tokio::test]
    async fn a_view_follows_each_epoch_and_none_follows_a_mere_revision() {
        let store = MemoryStore::new();
        let node = NewNode::new("a".parse().unwrap(), "127.0.0.1:1".parse().unwrap());
        let pool = NewPool::new("main".parse().unwrap(), vec![node]);
        let record = Record::create(pool, &mut || Nonce::new([1; 16])).unwrap();
        let record = store.commit(Revision::new(0), record, None).await.unwrap();
        let (mut views, _task) = publish(&record, &store).unwrap();
        assert_eq!(views.borrow_and_update().epoch(), record.epoch());

        let throttled = record.with_throttle(clockwise_cluster::Throttle::default());
        let throttled = store
            .commit(record.revision(), throttled, None)
            .await
            .unwrap();
        let next = throttled.with_scripts(true);
        let next = store
            .commit(throttled.revision(), next, None)
            .await
            .unwrap();
        views.changed().await.unwrap();
        assert_eq!(views.borrow_and_update().epoch(), next.epoch());
        assert!(!views.has_changed().unwrap());
    }
}
