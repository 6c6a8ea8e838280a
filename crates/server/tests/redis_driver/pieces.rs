//! Large values go in pieces, and arrive as they left.

use std::time::{Duration, Instant};

use clockwise::driver::redis::RESERVED_PREFIX;
use clockwise::driver::{Key, PieceRead, Read, Session, WriteRefused};
use clockwise_client::resp::Value;
use clockwise_testkit::RedisServer;

use crate::digests::fill_with_large_values;
use crate::setup::{Client, Random, all_keys, copy, copy_in_pieces, key, session, start};

const LATER_MS: &str = "4102444800123";

#[tokio::test]
async fn every_type_arrives_in_pieces_as_it_left_with_its_expiry() {
    let (source, target) = (start(), start());
    fill_with_large_values(&source);
    let mut client = Client::admin(&source);
    for name in ["hash", "set", "zset", "list", "text"] {
        client.run(&format!("COPY {name} expiring:{name}"));
        client.run(&format!("PEXPIREAT expiring:{name} {LATER_MS}"));
    }
    let (from, to) = (session(&source).await, session(&target).await);
    let keys = all_keys(from.as_ref()).await;
    let mut there = Client::admin(&target);
    for key in &keys {
        // What is there is replaced, whatever it is.
        there.ask(&[b"SET", key, b"old"]);
        assert!(
            matches!(
                from.read(std::slice::from_ref(key)).await.unwrap()[..],
                [Read::Big { .. }]
            ),
            "{key:?}"
        );
    }
    assert_eq!(copy(from.as_ref(), to.as_ref(), &keys).await, keys.len());
    assert_eq!(
        to.digests(&keys).await.unwrap(),
        from.digests(&keys).await.unwrap()
    );
    assert_eq!(
        there.run("PEXPIRETIME expiring:hash").as_integer(),
        Some(4_102_444_800_123)
    );
    assert_eq!(to.purge_staging(&|_| true).await.unwrap(), 0);
}

/// Processor time that a server has used. Unlike the time on the wall it is its own doing alone.
fn busy(server: &RedisServer) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks: u64 = fields
        .split(' ')
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().unwrap())
        .sum();
    // A tick is a hundredth of a second on Linux.
    Duration::from_millis(ticks * 10)
}

#[tokio::test]
async fn a_hash_of_a_hundred_thousand_fields_keeps_neither_server_busy_for_long() {
    let (source, target) = (start(), start());
    fill_with_large_values(&source);
    let (from, to) = (session(&source).await, session(&target).await);
    let mut longest = Duration::ZERO;
    for name in ["hash", "zset", "set", "list", "text"] {
        let key = key(name);
        let (mut cursor, mut first) = (None, true);
        loop {
            let before = (busy(&source), busy(&target));
            let PieceRead::Piece(piece, next) = from.read_piece(&key, cursor).await.unwrap() else {
                panic!("{name} is gone");
            };
            to.write_piece(&key, piece, first).await.unwrap().unwrap();
            longest = longest
                .max(busy(&source) - before.0)
                .max(busy(&target) - before.1);
            (cursor, first) = (next, false);
            if cursor.is_none() {
                break;
            }
        }
        let before = busy(&target);
        to.finish_pieces(&key).await.unwrap().unwrap();
        longest = longest.max(busy(&target) - before);
    }
    assert!(longest < Duration::from_millis(100), "{longest:?}");
}

pub(crate) fn stream_with_everything(client: &mut Client, random: &mut Random, entries: usize) {
    client.run("DEL k");
    let mut ids = Vec::new();
    let (mut ms, mut seq) = (1, 0);
    for _ in 0..entries {
        match random.below(3) {
            0 => seq += 1 + random.below(5),
            _ => (ms, seq) = (ms + 1 + random.below(1000), random.below(3)),
        }
        ids.push(format!("{ms}-{seq}"));
        let value = random.bytes(20);
        client.ask(&[
            b"XADD",
            b"k",
            ids.last().unwrap().as_bytes(),
            b"f",
            &value,
            b"",
            &value,
        ]);
    }
    for group in ["g", "h", "empty"] {
        client.run(&format!("XGROUP CREATE k {group} 0"));
        client.run(&format!("XGROUP CREATECONSUMER k {group} idle"));
    }
    let (half, most) = (entries / 2, entries / 3 * 2);
    client.ask(&[
        b"XREADGROUP",
        b"GROUP",
        b"g",
        b"worker",
        b"COUNT",
        half.to_string().as_bytes(),
        b"STREAMS",
        b"k",
        b">",
    ]);
    client.ask(&[
        b"XREADGROUP",
        b"GROUP",
        b"h",
        b"one",
        b"COUNT",
        most.to_string().as_bytes(),
        b"STREAMS",
        b"k",
        b">",
    ]);
    for id in &ids {
        match random.below(8) {
            0 => client.run(&format!("XDEL k {id}")),
            1 => client.run(&format!("XACK k g {id}")),
            2 => client.run(&format!("XCLAIM k h two 0 {id} RETRYCOUNT 7")),
            _ => continue,
        };
    }
    match random.below(4) {
        // Deliveries outlive the entries trimmed away, at the front or all of them.
        0 => client.run(&format!("XTRIM k MINID {}", ids[entries / 4])),
        1 => client.run("XTRIM k MAXLEN 0"),
        2 => client.run("XSETID k 99999999-0 ENTRIESADDED 1000000 MAXDELETEDID 99999998-0"),
        _ => Value::Null,
    };
}

#[tokio::test]
async fn streams_arrive_in_pieces_with_groups_deliveries_and_what_was_deleted() {
    let (source, target) = (start(), start());
    let (from, to) = (session(&source).await, session(&target).await);
    let mut client = Client::admin(&source);
    let mut random =
        Random::seeded("streams_arrive_in_pieces_with_groups_deliveries_and_what_was_deleted");
    for round in 0..12 {
        let entries = [1, 4, 30, 500, 501, 1300][round % 6];
        stream_with_everything(&mut client, &mut random, entries);
        if round % 2 == 0 {
            client.run(&format!("PEXPIREAT k {LATER_MS}"));
        }
        let keys = [key("k")];
        let left = client.run("XLEN k").as_integer().unwrap();
        let pieces = copy_in_pieces(from.as_ref(), to.as_ref(), &keys[0]).await;
        assert!(
            pieces > usize::try_from(left).unwrap() / 501,
            "{pieces} pieces for {left} entries"
        );
        assert_eq!(
            to.digests(&keys).await.unwrap(),
            from.digests(&keys).await.unwrap(),
            "round {round}"
        );
    }
}

#[tokio::test]
async fn streams_without_entries_or_groups_arrive_too() {
    let (source, target) = (start(), start());
    let (from, to) = (session(&source).await, session(&target).await);
    let mut client = Client::admin(&source);
    for lines in [
        &["XADD k 1-1 f v"][..],
        &["XADD k 1-1 f v", "XDEL k 1-1"],
        &["XGROUP CREATE k g $ MKSTREAM"],
        &["XGROUP CREATE k cw 0 MKSTREAM"],
    ] {
        client.run("DEL k");
        lines.iter().for_each(|line| drop(client.run(line)));
        copy_in_pieces(from.as_ref(), to.as_ref(), &key("k")).await;
        let keys = [key("k")];
        assert_eq!(
            to.digests(&keys).await.unwrap(),
            from.digests(&keys).await.unwrap(),
            "{lines:?}"
        );
    }
}

/// Large enough to be read by ranges also for its digest; the pieces must agree with the whole.
#[tokio::test]
async fn a_large_stream_has_one_digest_read_by_ranges_and_whole() {
    let server = start();
    let session = session(&server).await;
    let mut client = Client::admin(&server);
    let fill = b"for i = 1, 60000 do redis.call('XADD', 'k', i .. '-1', 'field', string.rep('x', 400)) end";
    client.ask(&[b"EVAL", fill, b"0"]);
    client.run("XGROUP CREATE k g 0");
    client.ask(&[
        b"XREADGROUP",
        b"GROUP",
        b"g",
        b"c",
        b"COUNT",
        b"20000",
        b"NOACK",
        b"STREAMS",
        b"k",
        b">",
    ]);
    let claim = b"for i = 1, 20000, 3 do redis.call('XCLAIM', 'k', 'g', 'c' .. i % 7, 0, i .. '-1', 'TIME', i, 'FORCE', 'JUSTID') end";
    client.ask(&[b"EVAL", claim, b"0"]);
    client.run("XDEL k 4-1");
    assert!(matches!(
        session.read(&[key("k")]).await.unwrap()[..],
        [Read::Big { .. }]
    ));
    let by_ranges = session.digests(&[key("k")]).await.unwrap();
    // The same stream, brought below the limit and back.
    client.run("XTRIM k MINID 59000");
    let trimmed = session.digests(&[key("k")]).await.unwrap();
    assert_ne!(by_ranges, trimmed);
    let target = start();
    let to = crate::setup::session(&target).await;
    copy_in_pieces(session.as_ref(), to.as_ref(), &key("k")).await;
    assert_eq!(to.digests(&[key("k")]).await.unwrap(), trimmed);
}

async fn pieces_of(session: &dyn Session, name: &str) -> Vec<clockwise::driver::Piece> {
    let (mut pieces, mut cursor) = (Vec::new(), None);
    loop {
        let PieceRead::Piece(piece, next) = session.read_piece(&key(name), cursor).await.unwrap()
        else {
            panic!("{name} is gone");
        };
        pieces.push(piece);
        cursor = next;
        if cursor.is_none() {
            return pieces;
        }
    }
}

#[tokio::test]
async fn a_staging_value_that_went_away_is_no_value_of_the_last_pieces() {
    let (source, target) = (start(), start());
    fill_with_large_values(&source);
    let (from, to) = (session(&source).await, session(&target).await);
    let hash = key("hash");
    let mut pieces = pieces_of(from.as_ref(), "hash").await.into_iter();
    for first in [true, false, false] {
        to.write_piece(&hash, pieces.next().unwrap(), first)
            .await
            .unwrap()
            .unwrap();
    }
    let of_others = |key: &Key| key.as_ref() != b"hash";
    assert_eq!(to.purge_staging(&of_others).await.unwrap(), 0);
    assert_eq!(to.purge_staging(&|_| true).await.unwrap(), 1);
    let lost = to
        .write_piece(&hash, pieces.next().unwrap(), false)
        .await
        .unwrap();
    assert_eq!(lost, Err(WriteRefused::StagingLost));
    let mut there = Client::admin(&target);
    assert_eq!(there.run("DBSIZE").as_integer(), Some(0));
    assert_eq!(
        to.finish_pieces(&hash).await.unwrap(),
        Err(WriteRefused::StagingLost)
    );
    assert_eq!(there.run("EXISTS hash").as_integer(), Some(0));
    // Begun again, it succeeds.
    copy_in_pieces(from.as_ref(), to.as_ref(), &hash).await;
    assert_eq!(
        to.digests(&[key("hash")]).await.unwrap(),
        from.digests(&[hash]).await.unwrap()
    );
}

#[tokio::test]
async fn the_staging_value_has_the_final_expiry_from_its_first_piece_on() {
    let (source, target) = (start(), start());
    fill_with_large_values(&source);
    Client::admin(&source).run(&format!("PEXPIREAT zset {LATER_MS}"));
    let (from, to) = (session(&source).await, session(&target).await);
    let first = pieces_of(from.as_ref(), "zset").await.remove(0);
    to.write_piece(&key("zset"), first, true)
        .await
        .unwrap()
        .unwrap();
    let staging = [RESERVED_PREFIX, b"zset"].concat();
    let mut there = Client::admin(&target);
    assert_eq!(
        there.ask(&[b"PEXPIRETIME", &staging]).as_integer(),
        Some(4_102_444_800_123)
    );
    // Listed to nobody.
    assert!(all_keys(to.as_ref()).await.is_empty());
}

#[tokio::test]
async fn a_value_that_expires_on_its_way_leaves_nothing_behind() {
    let (source, target) = (start(), start());
    fill_with_large_values(&source);
    let (from, to) = (session(&source).await, session(&target).await);
    let mut there = Client::admin(&target);
    for name in ["hash", "zset", "set", "list", "text"] {
        there.run(&format!("SET {name} old"));
        let mut pieces = pieces_of(from.as_ref(), name).await;
        // Later pieces are sent after the time is over.
        let soon = std::time::SystemTime::now() + Duration::from_millis(20);
        let soon_ms = soon
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_millis();
        pieces
            .iter_mut()
            .for_each(|piece| piece.expires_at_ms = Some(u64::try_from(soon_ms).unwrap()));
        let count = pieces.len();
        let begun = Instant::now();
        for (rank, piece) in pieces.into_iter().enumerate() {
            if rank == count / 2 {
                while begun.elapsed() < Duration::from_millis(30) {}
            }
            to.write_piece(&key(name), piece, rank == 0)
                .await
                .unwrap()
                .unwrap();
        }
        to.finish_pieces(&key(name)).await.unwrap().unwrap();
        assert_eq!(to.exists(&[key(name)]).await.unwrap(), [false], "{name}");
    }
    assert_eq!(to.purge_staging(&|_| true).await.unwrap(), 0);
    assert_eq!(there.run("DBSIZE").as_integer(), Some(0));
}

#[tokio::test]
async fn a_target_without_memory_says_so_and_keeps_nothing_half_made() {
    let (source, target) = (start(), start());
    fill_with_large_values(&source);
    let (from, to) = (session(&source).await, session(&target).await);
    let mut pieces = pieces_of(from.as_ref(), "hash").await.into_iter();
    to.write_piece(&key("hash"), pieces.next().unwrap(), true)
        .await
        .unwrap()
        .unwrap();
    let mut there = Client::admin(&target);
    there.run("CONFIG SET maxmemory 1");
    let refused = to
        .write_piece(&key("hash"), pieces.next().unwrap(), false)
        .await
        .unwrap();
    assert_eq!(refused, Err(WriteRefused::OutOfMemory));
    assert_eq!(there.run("DBSIZE").as_integer(), Some(0));
}

#[tokio::test]
async fn a_key_that_is_gone_or_changes_its_type_has_no_further_piece() {
    let source = start();
    fill_with_large_values(&source);
    let from = session(&source).await;
    let mut client = Client::admin(&source);
    let PieceRead::Piece(_, next) = from.read_piece(&key("hash"), None).await.unwrap() else {
        panic!("it exists")
    };
    client.run("SET hash text");
    assert_eq!(
        from.read_piece(&key("hash"), next.clone()).await.unwrap(),
        PieceRead::Gone
    );
    client.run("DEL hash");
    assert_eq!(
        from.read_piece(&key("hash"), next).await.unwrap(),
        PieceRead::Gone
    );
    assert_eq!(
        from.read_piece(&key("hash"), None).await.unwrap(),
        PieceRead::Gone
    );
}

/// Servers from Redis 7.4 and Valkey 9 on know expiries of single fields; older ones copy without.
#[tokio::test]
async fn fields_of_a_hash_keep_expiries_of_their_own_where_the_server_knows_them() {
    let (source, target) = (start(), start());
    let (from, to) = (session(&source).await, session(&target).await);
    let mut client = Client::admin(&source);
    let fill = b"for i = 1, 20000 do redis.call('HSET', 'large', 'field' .. i, i) end";
    client.ask(&[b"EVAL", fill, b"0"]);
    client.run("HSET small f v g w");
    let keys = [key("large"), key("small")];
    let before = from.digests(&keys).await.unwrap();
    let knows = client.run("COMMAND INFO hpexpireat") != Value::Array(vec![Value::Null]);
    if knows {
        for field in ["large FIELDS 2 field7 field19999", "small FIELDS 1 g"] {
            client.run(&format!(
                "HPEXPIREAT {}",
                field.replacen(" ", &format!(" {LATER_MS} "), 1)
            ));
        }
    }
    let digests = from.digests(&keys).await.unwrap();
    for rank in 0..keys.len() {
        assert_eq!(digests[rank] != before[rank], knows, "{:?}", keys[rank]);
    }
    assert_eq!(copy(from.as_ref(), to.as_ref(), &keys).await, 1);
    assert_eq!(to.digests(&keys).await.unwrap(), digests);
    copy_in_pieces(from.as_ref(), to.as_ref(), &keys[1]).await;
    assert_eq!(to.digests(&keys).await.unwrap(), digests);
}
