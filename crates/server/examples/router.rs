//! A router in front of nodes that are given on the command line and let everybody in.
//!
//! ```text
//! cargo run --release --example router -- 127.0.0.1:7379 1 127.0.0.1:7001 127.0.0.1:7002
//! ```
//!
//! The first argument is where it listens, the second the number of workers. It prints `ready ADDR`
//! and serves until its standard input ends.

use std::io::{Read, Write};
use std::sync::Arc;

use anyhow::Context;
use clockwise::router::{Limits, Router, RouterConfig, Secrets};
use clockwise_cluster::{NewNode, NewPool, Nonce, Record, View};
use tokio::sync::watch;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, workers, nodes @ ..] = arguments.as_slice() else {
        anyhow::bail!("usage: router LISTEN WORKERS NODE…");
    };
    let named = nodes.iter().enumerate().map(|(at, address)| {
        let id = format!("node-{at}").parse().context("a node's name")?;
        Ok(NewNode::new(
            id,
            address.parse().with_context(|| format!("node {address}"))?,
        ))
    });
    let nodes = named.collect::<anyhow::Result<Vec<_>>>()?;
    // Nodes without passwords need no nonce that nobody can guess.
    let record = Record::create(NewPool::new("pool".parse()?, nodes), &mut || {
        Nonce::new([0; 16])
    })?;
    let (_keep, view) = watch::channel(Arc::new(View::from_record(&record)?));
    let router = Router::start(RouterConfig {
        listen: listen.parse().context("where to listen")?,
        workers: workers.parse().context("number of workers")?,
        limits: Limits::default(),
        scripts: false,
        secrets: Secrets::default(),
        view,
    })?;
    println!("ready {}", router.addr());
    std::io::stdout().flush()?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    router.drain(std::time::Duration::from_secs(5)).await;
    Ok(())
}
