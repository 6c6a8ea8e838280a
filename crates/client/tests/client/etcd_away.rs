//! A client whose record is in etcd, while etcd comes and goes.

use std::sync::Arc;
use std::time::Duration;

use clockwise_client::store::{EtcdOptions, EtcdStore, Registry, Store};
use clockwise_client::{Access, Client};
use clockwise_cluster::Revision;
use clockwise_testkit::{EtcdOptions as ServerOptions, EtcdServer};
use tokio::time::Instant;

use crate::pool::{Pool, pool_key, wait_until};

/// A store of the pool's record and a client of it, which the store lists.
async fn registered(pool: &Pool, options: EtcdOptions) -> (EtcdStore, Client) {
    let name = || "main".parse().unwrap();
    let writer = EtcdStore::open(&name(), options.clone()).unwrap();
    let first = (*pool.record().await).clone();
    writer.commit(Revision::new(0), first, None).await.unwrap();
    let client = Client::builder()
        .etcd(name(), options)
        .access(Access::PoolKey(pool_key()))
        .build()
        .await
        .unwrap();
    client.set("k", "v").await.unwrap();
    wait_until("it is registered", async || {
        listed(&writer).await == Some(1)
    })
    .await;
    (writer, client)
}

async fn listed(store: &EtcdStore) -> Option<usize> {
    let registered = store.registered().await.ok()?;
    Some(registered.entries.len())
}

/// sensu/sensu-go#3101, etcd-io/etcd#17529: the record's store is away, and what was committed while
/// nobody could hear it is heard afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_view_serves_while_etcd_is_away_and_the_newest_afterwards() {
    let pool = Pool::start(&["a", "b"]).await;
    let mut etcd = EtcdServer::start(ServerOptions::default());
    let options = EtcdOptions {
        endpoints: vec![etcd.endpoint()],
        registration_ttl: Duration::from_secs(2),
        call_timeout: Duration::from_secs(2),
        ..EtcdOptions::default()
    };
    let (writer, client) = registered(&pool, options).await;

    etcd.kill9();
    wait_until("it is said", async || client.trouble().is_some()).await;
    for number in 0..100 {
        client.set(format!("key:{number}"), "served").await.unwrap();
    }
    assert_eq!(client.epoch().get(), 1);

    etcd.restart();
    let current = loop {
        if let Ok(Some(current)) = writer.read().await {
            break current;
        }
    };
    let old = pool.node("a").await;
    let next = pool.next_generation("a").await;
    pool.admit(next.node(&old.id).unwrap());
    let next: Arc<_> = writer.commit(current.revision(), next, None).await.unwrap();
    pool.fence(&old);
    wait_until("it has heard", async || client.epoch() == next.epoch()).await;
    wait_until("all is well", async || client.trouble().is_none()).await;
    wait_until("it goes on", async || {
        client.set("k", "after").await.is_ok()
    })
    .await;
    client.close().await;
    wait_until("it is not listed any more", async || {
        listed(&writer).await == Some(0)
    })
    .await;
}

/// Nodes are not made to wait for a store that does not hear of the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_end_with_the_client_also_while_etcd_says_nothing() {
    let pool = Pool::start(&["a"]).await;
    let etcd = EtcdServer::start(ServerOptions::default());
    let call_timeout = Duration::from_secs(20);
    let options = EtcdOptions {
        endpoints: vec![etcd.endpoint()],
        call_timeout,
        ..EtcdOptions::default()
    };
    let (_writer, client) = registered(&pool, options).await;

    etcd.pause();
    drop(client);
    let began = Instant::now();
    wait_until("its connection is closed", async || {
        !pool.servers["a"]
            .cli(&["CLIENT", "LIST"])
            .contains("user=cw-g")
    })
    .await;
    let took = began.elapsed();
    etcd.resume();
    assert!(took < call_timeout / 2, "{took:?}");
}
