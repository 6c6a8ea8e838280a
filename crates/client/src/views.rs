//! Views of the record, one for each epoch, for everybody in a process who routes.

use std::sync::Arc;

use clockwise_cluster::{Record, Revision, View, ViewError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::store::Store;

/// What is published of the record.
#[derive(Clone, Debug)]
pub struct Views {
    /// The newest view.
    pub newest: watch::Receiver<Arc<View>>,
    /// Why nobody may route by it, if nobody may: the record says two things of one epoch.
    pub discord: watch::Receiver<Option<Arc<str>>>,
}

/// Publishes a view whenever the record's epoch grows, until everybody who looks is gone.
///
/// A record of which no view can be made is reported, and the last view goes on. One that places keys otherwise
/// than the view of the same epoch is a discord: other processes may have read the other one, and nobody can
/// tell which of them is right. A later epoch ends it.
///
/// # Errors
/// When no view can be made of the record to begin with.
pub fn publish(record: &Record, store: &dyn Store) -> Result<(Views, JoinHandle<()>), ViewError> {
    let (sender, newest) = watch::channel(Arc::new(View::from_record(record)?));
    let (discords, discord) = watch::channel(None);
    let mut records = store.watch();
    let mut looked_at = record.revision();
    let task = tokio::spawn(async move {
        loop {
            let record = records.borrow_and_update().clone();
            if let Some(record) = record.filter(|record| record.revision() > looked_at) {
                looked_at = record.revision();
                follow(&record, &sender, &discords);
            }
            tokio::select! {
                changed = records.changed() => if changed.is_err() { return },
                () = sender.closed() => return,
            }
        }
    });
    Ok((Views { newest, discord }, task))
}

fn follow(
    record: &Record,
    sender: &watch::Sender<Arc<View>>,
    discords: &watch::Sender<Option<Arc<str>>>,
) {
    let present = Arc::clone(&sender.borrow());
    let view = match present.renewed(record) {
        Ok(view) => view,
        Err(error) => {
            tracing::error!(epoch = %record.epoch(), %error, "the record makes no view; the last one goes on");
            return;
        }
    };
    if view.epoch() > present.epoch() {
        tracing::debug!(epoch = %view.epoch(), fingerprint = %view.fingerprint(), "new view");
        discords.send_replace(None);
        sender.send_replace(Arc::new(view));
    } else if view.fingerprint() != present.fingerprint() {
        let why = disagreement(&present, &view, record.revision());
        tracing::error!(epoch = %view.epoch(), revision = %record.revision(), "{why}");
        discords.send_replace(Some(why.into()));
    } else if discords.borrow().is_some() {
        tracing::warn!(epoch = %view.epoch(), "the record agrees with its epoch again");
        discords.send_replace(None);
    }
}

fn disagreement(present: &View, other: &View, revision: Revision) -> String {
    format!(
        "stopped serving: the record of revision {revision} places keys otherwise than an earlier one of the same \
         epoch {} (fingerprint {}, not {}); look at `clockwise record history`, and put a good one in its place \
         under a higher epoch with `clockwise record import`",
        present.epoch(),
        other.fingerprint(),
        present.fingerprint(),
    )
}

#[cfg(test)]
mod tests {
    use clockwise_cluster::{NewNode, NewPool, Nonce};
    use serde_json::{Value, json};

    use super::*;
    use crate::store::MemoryStore;

    fn node(id: &str, port: u16) -> NewNode {
        NewNode::new(
            id.parse().unwrap(),
            format!("127.0.0.1:{port}").parse().unwrap(),
        )
    }

    async fn pool(store: &MemoryStore) -> Arc<Record> {
        let pool = NewPool::new("main".parse().unwrap(), vec![node("a", 1), node("b", 2)]);
        let record = Record::create(pool, &mut || Nonce::new([1; 16])).unwrap();
        store.commit(Revision::new(0), record, None).await.unwrap()
    }

    async fn commit(store: &MemoryStore, from: &Record, next: Record) -> Arc<Record> {
        store.commit(from.revision(), next, None).await.unwrap()
    }

    #[tokio::test]
    async fn a_view_follows_each_epoch_and_none_follows_a_mere_revision() {
        let store = MemoryStore::new();
        let record = pool(&store).await;
        let (mut views, _task) = publish(&record, &store).unwrap();
        assert_eq!(views.newest.borrow_and_update().epoch(), record.epoch());

        let throttled = record.with_throttle(clockwise_cluster::Throttle::default());
        let throttled = commit(&store, &record, throttled).await;
        let next = throttled.with_scripts(true);
        let next = commit(&store, &throttled, next).await;
        views.newest.changed().await.unwrap();
        assert_eq!(views.newest.borrow_and_update().epoch(), next.epoch());
        assert!(!views.newest.has_changed().unwrap());
        assert_eq!(*views.discord.borrow(), None);
    }

    #[tokio::test]
    async fn two_placements_of_one_epoch_stop_everybody_until_a_later_one() {
        let store = MemoryStore::new();
        let record = pool(&store).await;
        let (mut views, _task) = publish(&record, &store).unwrap();
        let mut stored: Value = serde_json::from_slice(&record.encode().unwrap()).unwrap();
        stored["membership"]["nodes"][0]["weight"] = json!("3");
        let other: Record = serde_json::from_value(stored).unwrap();
        let other = commit(&store, &record, other).await;
        let discord = views.discord.wait_for(Option::is_some).await.unwrap();
        let why = discord.clone().unwrap();
        drop(discord);
        assert!(
            why.contains("stopped serving") && why.contains("epoch 1"),
            "{why}"
        );

        let settled = commit(&store, &other, other.with_scripts(true)).await;
        views.discord.wait_for(Option::is_none).await.unwrap();
        assert_eq!(views.newest.borrow().epoch(), settled.epoch());
    }
}
