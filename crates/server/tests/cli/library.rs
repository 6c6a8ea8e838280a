//! An application with the library beside a real `up`, which it knows by its folder alone.

use clockwise_client::{Client, Error};

use crate::cluster::{Cluster, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_finds_its_keys_by_the_folder_while_a_node_joins() {
    let cluster = Cluster::start(&["--engine", "redis", "--nodes", "2"]);
    let client = Client::builder()
        .folder(cluster.dir())
        .name("shop-7")
        .build();
    let client = client.await.unwrap();
    for number in 0..500 {
        client
            .set(format!("user:{number}"), number.to_string())
            .await
            .unwrap();
    }
    let mut through_the_router = cluster.client();
    let seen: String = redis::cmd("GET")
        .arg("user:42")
        .query(&mut through_the_router)
        .unwrap();
    assert_eq!(seen, "42", "both know where it is");

    let writer = client.clone();
    let counting = tokio::spawn(async move {
        let mut counted = 0;
        // Until it has seen the node join, and some more.
        while writer.view().nodes().len() < 3 || counted < 2_000 {
            match writer
                .increment(format!("count:{}", counted % 100), 1)
                .await
            {
                Ok(_) => counted += 1,
                Err(error) => return Err::<i64, Error>(error),
            }
        }
        Ok(counted)
    });
    let joined = tokio::task::spawn_blocking(move || {
        let added = cluster.run(&["node", "add", "node-3"]);
        let applied = cluster.run(&["apply", "--wait"]);
        assert_eq!((added.exit, applied.exit), (0, 0), "{added:?} {applied:?}");
        wait_until("everybody has the record's epoch", || {
            cluster.run(&["clients", "--check"]).exit == 0
        });
        let list = cluster.run(&["clients", "-o", "json"]).json("Clients");
        let clients = list["clients"].as_array().unwrap();
        let own = clients.iter().find(|entry| entry["place"] == "shop-7");
        let own = own.expect("it is registered");
        assert_eq!(
            (&own["kind"], &own["epoch"]),
            (&"client".into(), &list["epoch"])
        );
        cluster
    });
    let cluster = joined.await.unwrap();
    let counted = counting.await.unwrap().unwrap();
    let mut sum = 0;
    for number in 0..100 {
        let count = client.get(format!("count:{number}")).await.unwrap();
        sum += count.map_or(0, |count| {
            String::from_utf8(count).unwrap().parse().unwrap()
        });
    }
    assert_eq!(sum, counted, "each increment once");
    for number in 0..500 {
        let value = client.get(format!("user:{number}")).await.unwrap();
        assert_eq!(value, Some(number.to_string().into_bytes()));
    }
    assert_eq!(client.view().nodes().len(), 3);
    client.close().await;
    let list = cluster.run(&["clients"]).stdout;
    assert!(!list.contains("shop-7"), "{list}");
}
