//! A node that died for good is given up: the others take its part without its data and lose nothing of
//! their own.

use clockwise_client::resp::Value;
use clockwise_cluster::Edit;

use crate::client::{Client, words};
use crate::load::fill;
use crate::pool::Pool;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_part_of_a_lost_node_has_new_owners_and_the_rest_stays_as_it_was() {
    let mut pool = Pool::start(&["a", "b", "c"]).await;
    fill(&pool, 3_000).await;
    let before = pool.view().await;
    let lost = pool.keys()["c"].len() as u64;
    drop(pool.servers.remove("c"));
    let edit = Edit::RemoveLost {
        id: "c".parse().unwrap(),
        keys_counted: Some(lost),
    };
    pool.change(|record| record.stage(edit.clone()).unwrap())
        .await;
    pool.apply().await;
    let took = pool.settle().await;
    println!("settled after {took:?}");

    let record = pool.record().await;
    assert!(record.node(&"c".parse().unwrap()).is_none());
    let handoffs = &record.finished().unwrap().handoffs;
    assert_eq!(handoffs[0].report.keys_lost, lost);
    assert_eq!(pool.check_places().await as u64, 3_000 - lost);
    // Through the router: what was c's is missing and can be written, the rest is there.
    let mut client = Client::connect(pool.router());
    let names: Vec<String> = (0..3_000).map(|number| format!("still:{number}")).collect();
    let get = |name: &String| words(&[b"GET", name.as_bytes()]);
    let values = client.pipeline(&names.iter().map(get).collect::<Vec<_>>());
    for (name, value) in names.iter().zip(values) {
        let was_lost = before.owner(name.as_bytes()).as_str() == "c";
        assert_eq!(value == Value::Null, was_lost, "{name}");
        if was_lost {
            client.run(&format!("SET {name} again"));
        }
    }
    assert_eq!(pool.check_places().await, 3_000);
}
