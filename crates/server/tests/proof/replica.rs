//! A source with a replica of its own: users are not replicated, so the replica is fenced like its primary.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use clockwise_client::resp::Value;
use clockwise_placement::NodeId;
use clockwise_testkit::RedisServer;

use crate::client::Client;
use crate::load::fill;
use crate::meddling::{Call, Meddler};
use crate::pool::{ADMIN, Pool, server_options, wait_until};

/// Who may enter the replica right after the fence of its primary.
#[derive(Debug, Default)]
struct LooksAtTheReplica {
    replica: OnceLock<SocketAddr>,
    users: Mutex<Option<Vec<String>>>,
}

#[async_trait]
impl Meddler for LooksAtTheReplica {
    async fn after(&self, _node: &NodeId, call: Call) {
        if call == Call::Fence {
            let mut client = Client::login(*self.replica.get().unwrap(), "default", ADMIN);
            *self.users.lock().unwrap() = Some(client_users(&mut client));
        }
    }
}

fn client_users(client: &mut Client) -> Vec<String> {
    let Value::Array(users) = client.run("ACL USERS") else {
        panic!("ACL USERS gives an array")
    };
    let names = users.iter().filter_map(Value::as_text);
    let ours = names.filter(|name| name.starts_with("cw-g"));
    ours.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fence_stands_on_the_replica_of_a_source_too() {
    let looks = Arc::new(LooksAtTheReplica::default());
    let mut pool = Pool::start_meddled(&["a"], Arc::clone(&looks) as _).await;
    let primary = pool.servers["a"].socket_addr();
    let mut options = server_options();
    options.config.extend([
        format!("replicaof {} {}", primary.ip(), primary.port()),
        format!("masterauth {ADMIN}"),
    ]);
    let replica = RedisServer::start(options);
    let mut client = Client::login(replica.socket_addr(), "default", ADMIN);
    wait_until("the replica follows", || {
        let mut client = Client::login(replica.socket_addr(), "default", ADMIN);
        let info = client.run("INFO replication");
        info.as_text()
            .is_some_and(|info| info.contains("master_link_status:up"))
    })
    .await;
    // Somebody of the present generation has found it.
    client.run("ACL SETUSER cw-g1 on >secret ~* +@all");
    looks.replica.set(replica.socket_addr()).unwrap();
    fill(&pool, 1_000).await;
    pool.stage_join("b").await;
    pool.apply().await;
    pool.settle().await;
    let users = looks.users.lock().unwrap().clone();
    assert_eq!(users, Some(vec!["cw-g2".to_owned()]), "after the fence");
    assert_eq!(pool.check_places().await, 1_000);
}
