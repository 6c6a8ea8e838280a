//! Registrations under leases that are renewed, taken away and run out.

use std::time::Duration;

use clockwise_client::store::{
    EtcdStore, Listing, Registrant, RegistrantKind, Registration, Registry,
};
use clockwise_testkit::{EtcdOptions as ServerOptions, EtcdServer};
use tokio::time::timeout;

use super::{PATIENCE, open};

const ENTRIES: &str = "/clockwise/main/clients/";

fn register(store: &EtcdStore) -> Registration {
    store.register(Registrant::here(RegistrantKind::Router))
}

/// Asks again and again; each look is a round trip.
async fn wait_until(store: &EtcdStore, so: impl Fn(&Listing) -> bool) {
    let looks = async {
        while !store.registered().await.is_ok_and(|listing| so(&listing)) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, looks).await.expect("it comes to be so");
}

fn has(registration: &Registration) -> impl Fn(&Listing) -> bool {
    let id = registration.id().to_owned();
    move |listing| listing.entries.iter().any(|entry| entry.id == id)
}

/// The leases there are, in hexadecimal digits.
fn leases(server: &EtcdServer) -> Vec<String> {
    let listed = server.ctl(&["lease", "list"]);
    listed.lines().skip(1).map(str::to_owned).collect()
}

/// rabbitmq/rabbitmq-server#17404: a lease that is never renewed. A lease of the same length that
/// nobody renews runs out three times meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lives_stays_registered_under_one_lease() {
    let server = EtcdServer::start(ServerOptions::default());
    let store = open(vec![server.endpoint()]);
    let registration = register(&store);
    wait_until(&store, has(&registration)).await;
    let own = leases(&server);
    assert_eq!(own.len(), 1);
    for _ in 0..3 {
        let granted = server.ctl(&["lease", "grant", "2"]);
        let lease = granted.split(' ').nth(1).unwrap().to_owned();
        server.ctl(&["put", "/clock", "runs", "--lease", &lease]);
        let over = || server.ctl(&["get", "/clock"]).is_empty();
        let running_out = async {
            while !over() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, running_out).await.unwrap();
    }
    assert!(has(&registration)(&store.registered().await.unwrap()));
    assert_eq!(leases(&server), own, "renewed, and not granted anew");
}

/// smallnest/rpcx#420: whoever lost a lease asks for it for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lost_the_lease_registers_again_under_another() {
    let server = EtcdServer::start(ServerOptions::default());
    let store = open(vec![server.endpoint()]);
    let registration = register(&store);
    wait_until(&store, has(&registration)).await;
    let lost = leases(&server).remove(0);
    server.ctl(&["lease", "revoke", &lost]);
    assert!(store.registered().await.unwrap().entries.is_empty());
    wait_until(&store, has(&registration)).await;
    assert!(!leases(&server).contains(&lost));

    // Somebody may remove the key alone.
    server.ctl(&["del", "--prefix", ENTRIES]);
    wait_until(&store, has(&registration)).await;
    registration.end().await;
    assert!(store.registered().await.unwrap().entries.is_empty());
    wait_until(&store, |_| leases(&server).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_etcd_is_away_it_is_said_and_afterwards_mended() {
    let mut server = EtcdServer::start(ServerOptions::default());
    let store = open(vec![server.endpoint()]);
    let registration = register(&store);
    wait_until(&store, has(&registration)).await;
    server.kill9();
    let mut trouble = registration.trouble();
    let said = timeout(PATIENCE, trouble.wait_for(Option::is_some)).await;
    said.expect("it is said").unwrap();
    server.restart();
    let mended = timeout(PATIENCE, trouble.wait_for(Option::is_none)).await;
    mended.expect("it is mended").unwrap();
    wait_until(&store, has(&registration)).await;
    let gone = timeout(Duration::from_secs(20), registration.end()).await;
    assert!(gone.is_ok(), "an end waits for etcd no longer than a call");
}

/// More entries than one answer holds, and some that are none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_goes_over_many_answers() {
    let server = EtcdServer::start(ServerOptions::default());
    let store = open(vec![server.endpoint()]);
    let mut registrations = Vec::new();
    for _ in 0..1_100 {
        registrations.push(register(&store));
    }
    server.ctl(&["put", "/clockwise/main/clients/strange", "{}"]);
    server.ctl(&["put", "/clockwise/main/clients0", "another prefix"]);
    wait_until(&store, |listing| listing.entries.len() == 1_100).await;
    let listing = store.registered().await.unwrap();
    assert!(listing.entries.is_sorted_by_key(|entry| entry.id.clone()));
    assert_eq!((listing.left_out, listing.unreadable.len()), (0, 1));
}
