//! What every registry does, whatever it keeps entries in. Each fact is checked on each store.

use std::sync::Arc;
use std::time::Duration;

use clockwise_cluster::{Epoch, FORMAT};
use clockwise_placement::Fingerprint;
use tokio::time::{sleep, timeout};

use super::{Listing, Registrant, RegistrantKind, Registry, RoutesBy};

/// For what should take a moment.
const PATIENCE: Duration = Duration::from_secs(30);

fn who(kind: RegistrantKind, place: &str) -> Registrant {
    Registrant {
        place: place.to_owned(),
        ..Registrant::here(kind)
    }
}

fn by(epoch: u64, fingerprint: u64) -> RoutesBy {
    RoutesBy {
        epoch: Epoch::new(epoch),
        fingerprint: Fingerprint(fingerprint),
    }
}

async fn wait_until(registry: &dyn Registry, so: impl Fn(&Listing) -> bool) -> Listing {
    let looks = async {
        loop {
            let listing = registry.registered().await.unwrap();
            if so(&listing) {
                return listing;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, looks).await.expect("it comes to be so")
}

async fn who_registers_is_listed_with_what_they_said(registry: Arc<dyn Registry>) {
    assert_eq!(registry.registered().await.unwrap(), Listing::default());
    let router = registry.register(who(RegistrantKind::Router, "10.0.0.7:7379"));
    let client = registry.register(who(RegistrantKind::Client, "app:17"));
    client.show(by(7, 0xfeed));
    let listing = wait_until(&*registry, |listing| {
        let shows = |id: &str, shown| {
            let mut entries = listing.entries.iter();
            entries.any(|entry| entry.id == id && entry.routes_by == shown)
        };
        shows(router.id(), None) && shows(client.id(), Some(by(7, 0xfeed)))
    })
    .await;
    assert_eq!((listing.entries.len(), listing.left_out), (2, 0));
    assert!(listing.entries.is_sorted_by_key(|entry| entry.id.clone()));
    let entry = listing
        .entries
        .iter()
        .find(|entry| entry.id == router.id())
        .unwrap();
    assert_eq!(
        (
            entry.kind,
            &*entry.place,
            &*entry.version,
            entry.record_format
        ),
        (
            RegistrantKind::Router,
            "10.0.0.7:7379",
            env!("CARGO_PKG_VERSION"),
            FORMAT
        )
    );
    assert!(entry.since_ms > 1_600_000_000_000);
    assert_eq!(*router.trouble().borrow(), None);
}

async fn what_is_shown_follows_and_an_end_removes_it(registry: Arc<dyn Registry>) {
    let one = registry.register(who(RegistrantKind::Client, "one"));
    let other = registry.register(who(RegistrantKind::Client, "other"));
    for epoch in 1..=20 {
        one.show(by(epoch, epoch));
    }
    other.show(by(3, 3));
    wait_until(&*registry, |listing| {
        let mut shown: Vec<_> = listing
            .entries
            .iter()
            .filter_map(|entry| entry.routes_by)
            .collect();
        shown.sort_by_key(|shown| shown.epoch);
        shown == [by(3, 3), by(20, 20)]
    })
    .await;
    one.end().await;
    let left = registry.registered().await.unwrap();
    let ids: Vec<_> = left.entries.iter().map(|entry| &*entry.id).collect();
    assert_eq!(ids, [other.id()], "an end that returned is seen at once");
    drop(other);
    wait_until(&*registry, |listing| listing.entries.is_empty()).await;
}

macro_rules! each_registry {
    ($($fact:ident)*) => {
        mod memory {
            use super::super::super::MemoryStore;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    super::$fact(std::sync::Arc::new(MemoryStore::new())).await;
                }
            )*
        }

        mod file {
            use super::super::super::{FileOptions, FileStore};
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    let dir = tempfile::tempdir().unwrap();
                    let store = FileStore::open(dir.path(), FileOptions::default()).unwrap();
                    super::$fact(std::sync::Arc::new(store)).await;
                }
            )*
        }

        mod follower_of_a_file {
            use super::super::super::{FileOptions, FileStore};
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    let dir = tempfile::tempdir().unwrap();
                    let store = FileStore::open_read_only(dir.path(), FileOptions::default());
                    super::$fact(std::sync::Arc::new(store)).await;
                }
            )*
        }

        #[cfg(feature = "etcd")]
        mod etcd {
            use clockwise_testkit::{EtcdOptions as ServerOptions, EtcdServer};

            use super::super::super::{EtcdOptions, EtcdStore};
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $fact() {
                    let server = EtcdServer::start(ServerOptions::default());
                    let options = EtcdOptions {
                        endpoints: vec![server.endpoint()],
                        ..EtcdOptions::default()
                    };
                    let store = EtcdStore::open(&"main".parse().unwrap(), options).unwrap();
                    super::$fact(std::sync::Arc::new(store)).await;
                }
            )*
        }
    };
}

each_registry! {
    who_registers_is_listed_with_what_they_said
    what_is_shown_follows_and_an_end_removes_it
}
