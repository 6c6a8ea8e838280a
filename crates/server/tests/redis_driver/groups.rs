//! What no stream of dirty keys tells of: changes of a stream's consumer groups, brought over by themselves.

use clockwise::driver::Session;
use clockwise_client::resp::Value;

use crate::pieces::stream_with_everything;
use crate::setup::{Client, Random, copy, copy_in_pieces, key, session, start};

/// Changes that leave the entries alone, by chance.
fn change_groups(client: &mut Client, random: &mut Random) {
    let Value::Array(entries) = client.run("XRANGE k - + COUNT 200") else {
        panic!("XRANGE gives an array")
    };
    let ids: Vec<String> = entries
        .iter()
        .map(|entry| entry.as_array().unwrap()[0].as_text().unwrap().to_owned())
        .collect();
    let group = |random: &mut Random| ["g", "h", "empty", "new"][random.below(4)];
    for _ in 0..60 {
        let (group, id) = (group(random), ids.get(random.below(ids.len().max(1))));
        let id = id.map_or("0-1", String::as_str);
        let line = match random.below(9) {
            0 => format!("XGROUP CREATE k {group} {id} ENTRIESREAD 3"),
            1 => format!("XGROUP SETID k {group} {id}"),
            2 => format!("XGROUP CREATECONSUMER k {group} late"),
            3 if random.below(4) == 0 => format!("XGROUP DELCONSUMER k {group} worker"),
            4 if random.below(8) == 0 => format!("XGROUP DESTROY k {group}"),
            5 => format!("XREADGROUP GROUP {group} late COUNT 20 STREAMS k >"),
            6 => format!("XAUTOCLAIM k {group} second 0 - COUNT 10"),
            7 => format!("XCLAIM k {group} third 0 {id} RETRYCOUNT 9 TIME 12345 FORCE"),
            8 => "XSETID k 999999999-7".to_owned(),
            _ => format!("XACK k {group} {id}"),
        };
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        // What does not fit the groups as they are is refused.
        client.ask(&args);
    }
}

async fn bring_over(source: &dyn Session, target: &dyn Session) {
    let key = key("k");
    let (new, here) = (
        source.read_untracked(&key).await.unwrap().unwrap(),
        target.read_untracked(&key).await.unwrap().unwrap(),
    );
    let written = target.write_untracked(&key, &here, &new).await.unwrap();
    written.unwrap();
    let now = target.read_untracked(&key).await.unwrap().unwrap();
    assert_eq!(now, new);
}

#[tokio::test]
async fn groups_that_changed_after_the_copy_arrive_without_the_entries() {
    let (source, target) = (start(), start());
    let (from, to) = (session(&source).await, session(&target).await);
    let mut client = Client::admin(&source);
    let mut random =
        Random::seeded("groups_that_changed_after_the_copy_arrive_without_the_entries");
    let keys = [key("k")];
    let mut changed = 0;
    for round in 0..16 {
        stream_with_everything(&mut client, &mut random, [1, 30, 700, 1300][round % 4]);
        if round < 8 {
            copy_in_pieces(from.as_ref(), to.as_ref(), &keys[0]).await;
        } else {
            copy(from.as_ref(), to.as_ref(), &keys).await;
        }
        for _ in 0..3 {
            change_groups(&mut client, &mut random);
            let differs = from.digests(&keys).await.unwrap() != to.digests(&keys).await.unwrap();
            changed += u32::from(differs);
            assert_eq!(
                from.tracked_digests(&keys).await.unwrap(),
                to.tracked_digests(&keys).await.unwrap(),
                "entries have not changed, round {round}"
            );
            bring_over(from.as_ref(), to.as_ref()).await;
            assert_eq!(
                from.digests(&keys).await.unwrap(),
                to.digests(&keys).await.unwrap(),
                "round {round}"
            );
        }
    }
    assert!(
        changed > 30,
        "only {changed} of 48 changes made a difference"
    );
}

#[tokio::test]
async fn entries_count_although_groups_do_not() {
    let server = start();
    let session = session(&server).await;
    let mut client = Client::admin(&server);
    client.run("XADD k 1-1 f v");
    client.run("XADD k 2-1 f v");
    let keys = [key("k")];
    let mut before = session.tracked_digests(&keys).await.unwrap();
    for (line, counts) in [
        ("XGROUP CREATE k g 0", false),
        ("XREADGROUP GROUP g c STREAMS k >", false),
        ("XADD k 3-1 f v", true),
        ("XDEL k 1-1", true),
        ("PEXPIREAT k 4102444800123", true),
    ] {
        client.run(line);
        let after = session.tracked_digests(&keys).await.unwrap();
        assert_eq!(after != before, counts, "{line}");
        before = after;
    }
}

#[tokio::test]
async fn only_streams_have_something_that_nobody_tells_of() {
    let server = start();
    let session = session(&server).await;
    let mut client = Client::admin(&server);
    client.run("SET text t");
    client.run("HSET hash f v");
    client.run("XADD stream 1-1 f v");
    for (name, has) in [
        ("text", false),
        ("hash", false),
        ("none", false),
        ("stream", true),
    ] {
        let found = session.read_untracked(&key(name)).await.unwrap();
        assert_eq!(found.is_some(), has, "{name}");
    }
}
