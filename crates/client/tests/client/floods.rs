//! Nodes that say more than the client can read.

use std::sync::Arc;
use std::time::Duration;

use clockwise_client::{Client, ClientLimits, Error};
use clockwise_cluster::{NewNode, NewPool};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::pool::Pool;

/// Nodes. One look at all of them is more than a task of tokio may do at a time without being told.
const NODES: usize = 80;
/// After which a silent one is given up. On a busy machine all of them take a while to begin.
const SILENT_MS_MAX: u64 = 3_000;
/// How long they speak.
const FLOOD: Duration = Duration::from_millis(2 * SILENT_MS_MAX);

/// Lets the client in, takes one request and, instead of answering it, says what nobody asked for, as
/// fast as it is read. Then nothing.
async fn flood(mut stream: TcpStream, all: Arc<Barrier>) -> std::io::Result<()> {
    let mut hello = *b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n";
    stream.read_exact(&mut hello).await?;
    stream.write_all(b"%1\r\n+proto\r\n:3\r\n").await?;
    let _request = stream.read_u8().await?;
    all.wait().await;
    let began = Instant::now();
    let news = [b">1\r\n+", &[b'x'; 64 << 10][..], b"\r\n"].concat();
    while began.elapsed() < FLOOD {
        stream.write_all(&news).await?;
    }
    stream.read_to_end(&mut Vec::new()).await?;
    Ok(())
}

/// Who speaks is heard, however many others do, and who falls silent behind a flood is noticed. All is
/// on one thread, so that every connection is full whenever the client looks.
#[tokio::test]
async fn nodes_that_flood_are_all_heard_and_late_once_they_are_silent() {
    let all = Arc::new(Barrier::new(NODES));
    let (mut nodes, mut floods) = (Vec::new(), JoinSet::new());
    for node in 0..NODES {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let id = format!("n{node}").parse().unwrap();
        nodes.push(NewNode::new(id, address.parse().unwrap()));
        let all = Arc::clone(&all);
        floods.spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            // It ends with the client's side of the connection, however that ends.
            let _ended = flood(stream, all).await;
        });
    }
    let mut limits = ClientLimits::default();
    limits.conversation.reply_ms_max = SILENT_MS_MAX;
    let client = Client::builder()
        .fixed(NewPool::new("main".parse().unwrap(), nodes))
        .limits(limits)
        .timeout(Duration::from_secs(30))
        .build()
        .await
        .unwrap();
    let began = Instant::now();
    let mut writes = JoinSet::new();
    for node in 0..NODES {
        let key = Pool::keys_of(&client, &format!("n{node}"), 1).remove(0);
        let client = client.clone();
        writes.spawn(async move { client.set(&key, "v").await });
    }
    while let Some(written) = writes.join_next().await {
        let (error, took) = (written.unwrap().unwrap_err(), began.elapsed());
        assert!(matches!(error, Error::Unknown { .. }), "{error}");
        assert!(took >= FLOOD, "given up after {took:?}, while it spoke");
    }
}
