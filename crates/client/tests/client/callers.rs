//! Many callers of one client, callers that go away, and what they may cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clockwise_client::{ClientLimits, Error};
use clockwise_testkit::{Random, for_seeds};
use tokio::task::{JoinSet, yield_now};

use crate::pool::{PATIENCE, Pool, wait_until};

/// redis/redis-py#2665 (CVE-2023-28859), twitter/twemproxy#404: a caller that goes away leaves its
/// reply to the next. Here callers go away at every point of a call.
#[test]
fn callers_that_go_away_never_shift_a_reply() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    for_seeds(
        1,
        "-p clockwise-client --test client callers_that_go_away",
        |random| {
            runtime.block_on(storm(random));
        },
    );
}

async fn storm(random: &mut Random) {
    const CALLERS: u64 = 64;
    const CALLS: usize = 400;
    let pool = Pool::start(&["a", "b"]).await;
    let client = pool.client().await.within(PATIENCE);
    for caller in 0..CALLERS {
        let tag = caller.to_string().repeat(1 + random.below(2_000));
        client.set(format!("tag:{caller}"), tag).await.unwrap();
    }
    let (kept, dropped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (client, mut random) = (client.clone(), Random::new(random.bits()));
        let (kept, dropped) = (Arc::clone(&kept), Arc::clone(&dropped));
        callers.spawn(async move {
            let (key, own) = (format!("tag:{caller}"), caller.to_string());
            for _ in 0..CALLS {
                // Half of them stay, the others go away after some turns of everybody else.
                let turns = random.chance(50).then(|| random.below(20));
                let call = client.get(&key);
                tokio::select! {
                    biased;
                    () = turns_of_others(turns) => {
                        dropped.fetch_add(1, Ordering::Relaxed);
                    }
                    found = call => {
                        let found = String::from_utf8(found.unwrap().unwrap()).unwrap();
                        assert!(found.replace(&own, "").is_empty(), "{caller} got {found:.80}");
                        kept.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            // One that is never given up, behind all that were.
            let found = client.get(&key).await.unwrap().unwrap();
            assert!(String::from_utf8(found).unwrap().starts_with(&own));
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    let (kept, dropped) = (
        kept.load(Ordering::Relaxed),
        dropped.load(Ordering::Relaxed),
    );
    println!("{kept} calls answered, {dropped} given up");
    assert!(
        kept > 500 && dropped > 500,
        "{kept} answered, {dropped} given up"
    );
}

async fn turns_of_others(turns: Option<usize>) {
    let Some(turns) = turns else {
        return std::future::pending().await;
    };
    for _ in 0..turns {
        yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_callers_at_once_are_answered_in_a_bounded_memory() {
    let pool = Pool::start(&["a", "b", "c"]).await;
    let limits = ClientLimits {
        // Room for some hundreds of them at a time.
        requests_bytes_max: 256 << 10,
        ..ClientLimits::default()
    };
    let client = pool.builder().limits(limits).build().await.unwrap();
    let client = client.within(PATIENCE);
    let mut callers = JoinSet::new();
    for caller in 0..10_000_u32 {
        let client = client.clone();
        callers.spawn(async move {
            let (key, value) = (format!("many:{caller}"), format!("{caller:0>100}"));
            client.set(&key, &value).await.unwrap();
            assert_eq!(client.get(&key).await.unwrap(), Some(value.into_bytes()));
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    let connections = |name: &str| {
        let list = pool.servers[name].cli(&["CLIENT", "LIST"]);
        list.lines()
            .filter(|line| line.contains("user=cw-g"))
            .count()
    };
    assert_eq!(["a", "b", "c"].map(connections), [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_finds_no_room_was_not_sent_and_room_comes_back() {
    let pool = Pool::start(&["a"]).await;
    let limits = ClientLimits {
        requests_bytes_max: 20_000,
        ..ClientLimits::default()
    };
    let client = pool.builder().limits(limits).build().await.unwrap();
    client.set("k", "v").await.unwrap();
    pool.servers["a"].pause();
    let hasty = client.within(Duration::from_millis(200));
    let mut callers = JoinSet::new();
    for caller in 0..100 {
        let hasty = hasty.clone();
        callers.spawn(async move { hasty.set(format!("room:{caller}"), [b'x'; 1_000]).await });
    }
    let (mut overloaded, mut late) = (0, 0);
    while let Some(ended) = callers.join_next().await {
        match ended.unwrap().unwrap_err() {
            error @ Error::Overloaded { bytes: 20_000 } => {
                assert!(error.is_retryable() && !error.may_have_happened());
                overloaded += 1;
            }
            Error::TimedOut { .. } => late += 1,
            error => panic!("{error}"),
        }
    }
    assert!(
        overloaded >= 80 && late >= 10,
        "{overloaded} found no room, {late} were late"
    );
    pool.servers["a"].resume();
    wait_until("there is room again", async || {
        hasty.set("k", [b'x'; 10_000]).await.is_ok()
    })
    .await;
    // One request larger than all the room there is goes alone.
    client.set("large", vec![b'x'; 100_000]).await.unwrap();
    assert_eq!(
        client.get("large").await.unwrap().map(|value| value.len()),
        Some(100_000)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_over_the_limit_costs_its_own_caller_alone() {
    let pool = Pool::start(&["a"]).await;
    let mut limits = ClientLimits::default();
    limits.conversation.reply_bytes_max = 10_000;
    let client = pool.builder().limits(limits).build().await.unwrap();
    client.set("large", vec![b'x'; 50_000]).await.unwrap();
    client.set("small", "v").await.unwrap();
    let (large, small) = tokio::join!(client.get("large"), client.get("small"));
    let error = large.unwrap_err();
    assert!(
        matches!(error, Error::AnswerTooLarge { limit: 10_000, .. }),
        "{error}"
    );
    assert!(!error.may_have_happened(), "a read");
    assert_eq!(small, Ok(Some(b"v".to_vec())));
}

/// twitter/twemproxy#19: sizes around those of buffers. A value far over what a socket takes at once,
/// and one on either side of each power of two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_all_sizes_go_there_and_back() {
    let pool = Pool::start(&["a"]).await;
    let client = pool.client().await.within(PATIENCE);
    let mut sizes: Vec<usize> = (0..20)
        .flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1])
        .collect();
    sizes.push(30 << 20);
    let mut calls = JoinSet::new();
    for (number, size) in sizes.into_iter().enumerate() {
        let client = client.clone();
        calls.spawn(async move {
            let (key, byte) = (format!("size:{number}"), number as u8);
            let value: Vec<u8> = (0..size).map(|at| byte ^ (at % 251) as u8).collect();
            client.set(&key, &value).await.unwrap();
            assert!(client.get(&key).await == Ok(Some(value)), "{size} bytes");
        });
    }
    while let Some(ended) = calls.join_next().await {
        ended.unwrap();
    }
}
