//! Who leads: one at a time, also when the one before is paused or its lease was taken away.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use clockwise_client::store::{CommitError, EtcdOptions, EtcdStore, LeadError, Leadership, Store};
use clockwise_testkit::{EtcdOptions as ServerOptions, EtcdServer};
use tokio::time::timeout;

use super::{PATIENCE, at_epoch, make, open, open_with, options};

/// Names the etcd of the process that is to be paused.
const PAUSED_ENDPOINT: &str = "CLOCKWISE_TEST_PAUSED_LEADER";

/// Asks again and again, as a standby does, until nobody else leads.
async fn lead_when_free(store: &EtcdStore) -> Leadership {
    let waiting = async {
        loop {
            match store.lead("rebalancer").await {
                Ok(leadership) => return leadership,
                Err(LeadError::Held { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(PATIENCE, waiting).await.expect("it gets free")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_stores_one_leads_until_it_resigns() {
    let server = EtcdServer::start(ServerOptions::default());
    let first = open_with(EtcdOptions {
        holder: "the first".to_owned(),
        ..options(vec![server.endpoint()])
    });
    let second = open(vec![server.endpoint()]);
    let one = first.lead("rebalancer").await.unwrap();
    let held = LeadError::Held {
        name: "rebalancer".to_owned(),
        holder: "the first under term 1".to_owned(),
    };
    assert_eq!(second.lead("rebalancer").await.unwrap_err(), held);
    assert!(second.leads(one.term()).await.unwrap());
    // The refused one left no lease behind.
    let leases = server.ctl(&["lease", "list"]);
    assert!(leases.starts_with("found 1 leases"), "{leases}");

    first.resign(one.term()).await.unwrap();
    let other = second.lead("rebalancer").await.unwrap();
    assert!(other.term() > one.term() && !other.is_lost());
    assert!(!first.leads(one.term()).await.unwrap());
    second.close().await.unwrap();
    let again = first.lead("rebalancer").await.unwrap();
    assert!(again.term() > other.term() && other.is_lost());
}

/// rabbitmq/rabbitmq-server#17404: a lease that is never renewed. Held for three of its lengths.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lives_goes_on_leading() {
    let server = EtcdServer::start(ServerOptions::default());
    let store = open(vec![server.endpoint()]);
    let mut leadership = store.lead("rebalancer").await.unwrap();
    let lost = timeout(Duration::from_secs(6), leadership.lost()).await;
    assert!(lost.is_err() && store.leads(leadership.term()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_deposed_unheard_cannot_commit() {
    let server = EtcdServer::start(ServerOptions::default());
    let deposed = open_with(EtcdOptions {
        // So long that it renews nothing during this test, and believes that it leads.
        lease_ttl: Duration::from_secs(3_600),
        ..options(vec![server.endpoint()])
    });
    let made = make(&deposed).await;
    let mut old = deposed.lead("rebalancer").await.unwrap();
    let lease = server.ctl(&["lease", "list"]);
    let lease = lease.lines().last().unwrap();
    server.ctl(&["lease", "revoke", lease]);

    let next_leader = open(vec![server.endpoint()]);
    let new = next_leader.lead("rebalancer").await.unwrap();
    assert!(!old.is_lost() && new.term() > old.term());
    let guarded = |term| (made.revision(), at_epoch(&made, 2), Some(term));
    let (expected, next, guard) = guarded(old.term());
    let term = old.term();
    assert_eq!(
        deposed.commit(expected, next, guard).await,
        Err(CommitError::LeadershipLost { term })
    );
    timeout(PATIENCE, old.lost()).await.expect("known now");
    let (expected, next, guard) = guarded(new.term());
    next_leader.commit(expected, next, guard).await.unwrap();
}

/// A process that leads, stopped by SIGSTOP for longer than its lease.
struct PausedLeader {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl PausedLeader {
    fn start(endpoint: &str) -> PausedLeader {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "leaders::leads_for_another_test", "--nocapture"])
            .env(PAUSED_ENDPOINT, endpoint)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        PausedLeader {
            child,
            orders,
            answers,
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// What follows the answer's name; the test's own runner prints lines too.
    fn answer(&mut self, name: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "it ended");
            if let Some((_, answer)) = line.split_once(name) {
                return answer.trim().to_owned();
            }
        }
    }
}

impl Drop for PausedLeader {
    fn drop(&mut self) {
        // Fails only when it has ended.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_paused_for_longer_than_its_lease_knows_and_cannot_commit() {
    let server = EtcdServer::start(ServerOptions::default());
    let store = open(vec![server.endpoint()]);
    let made = make(&store).await;
    let mut paused = PausedLeader::start(&server.endpoint());
    let term: u64 = paused.answer("term=").parse().unwrap();
    paused.signal("-STOP");
    let leadership = lead_when_free(&store).await;
    assert!(leadership.term().get() > term);
    paused.signal("-CONT");
    paused.orders.write_all(b"commit\n").unwrap();
    assert_eq!(
        paused.answer("committed="),
        format!("term {term} does not lead")
    );
    assert_eq!(paused.answer("lost="), "true");
    let next = at_epoch(&made, 2);
    let guard = Some(leadership.term());
    store.commit(made.revision(), next, guard).await.unwrap();
}

/// The other process of the test above; by itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leads_for_another_test() {
    let Ok(endpoint) = std::env::var(PAUSED_ENDPOINT) else {
        return;
    };
    let store = open(vec![endpoint]);
    let mut leadership = store.lead("rebalancer").await.unwrap();
    let record = store.read().await.unwrap().unwrap();
    println!("\nterm={}", leadership.term());
    let mut order = String::new();
    std::io::stdin().read_line(&mut order).unwrap();
    let guard = Some(leadership.term());
    let commit = store.commit(record.revision(), at_epoch(&record, 99), guard);
    println!("\ncommitted={}", commit.await.unwrap_err());
    let lost = timeout(PATIENCE, leadership.lost()).await;
    println!("\nlost={}", lost.is_ok());
}

/// smallnest/rpcx#420: after an outage a client came back with its expired lease, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_longer_than_the_lease_a_new_term_begins() {
    let mut server = EtcdServer::start(ServerOptions::default());
    let store = open(vec![server.endpoint()]);
    let mut leadership = store.lead("rebalancer").await.unwrap();
    server.kill9();
    timeout(PATIENCE, leadership.lost())
        .await
        .expect("its clock says so");
    server.restart();
    let again = lead_when_free(&store).await;
    assert!(again.term() > leadership.term());
    assert!(store.leads(again.term()).await.unwrap());
}
