//! Expiries are told rightly, and without a question for each key where the server has none.

use clockwise::driver::{Item, Payload, Read, Session};

use crate::setup::{Client, key, session, start};

/// Far enough for any test, and not a round number.
const LATER_MS: u64 = 4_102_444_800_123;

/// How often the server was asked for the expiry of one key.
fn questions(client: &mut Client) -> u64 {
    let stats = client.run("INFO commandstats");
    let stats = stats.as_text().expect("a text").to_owned();
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_pexpiretime:calls="));
    line.map_or(0, |rest| {
        let (calls, _) = rest.split_once(',').expect("more fields");
        calls.parse().expect("a number")
    })
}

fn text(text: &str, expires_at_ms: Option<u64>) -> Read {
    Read::Item(Item {
        payload: Payload::Text(key(text)),
        expires_at_ms,
        untracked: false,
    })
}

/// What both ways of reading give, and that they agree.
async fn read(session: &dyn Session, names: &[&str]) -> Vec<Read> {
    let keys: Vec<_> = names.iter().map(key).collect();
    let reads = session.read(&keys).await.expect("a read");
    let small = session
        .read_small(&keys)
        .await
        .expect("a read of small ones");
    assert_eq!(small, reads);
    reads
}

#[tokio::test]
async fn one_key_with_an_expiry_anywhere_makes_each_key_be_asked_and_none_spares_that() {
    let source = start();
    let mut client = Client::admin(&source);
    let session = session(&source).await;
    let names = ["plain", "empty", "nobody", "number"];
    for line in ["SET plain value", "SET number 12"] {
        client.run(line);
    }
    client.ask(&[b"SET", b"empty", b""]);
    // The first read of a session looks at the types, and asks for that.
    read(session.as_ref(), &names).await;
    let before = questions(&mut client);
    let mut expected = [
        text("value", None),
        text("", None),
        Read::Gone,
        text("12", None),
    ];
    let full = ["plain", "number"];
    let found = read(session.as_ref(), &full).await;
    assert_eq!(found, [expected[0].clone(), expected[3].clone()]);
    assert_eq!(questions(&mut client), before, "no key has an expiry");
    assert_eq!(read(session.as_ref(), &names).await, expected);

    client.run(&format!("SET elsewhere x PXAT {LATER_MS}"));
    assert_eq!(read(session.as_ref(), &names).await, expected);
    client.run(&format!("PEXPIREAT number {LATER_MS}"));
    client.run(&format!("PEXPIREAT empty {}", LATER_MS + 1));
    expected[1] = text("", Some(LATER_MS + 1));
    expected[3] = text("12", Some(LATER_MS));
    assert_eq!(read(session.as_ref(), &names).await, expected);

    for name in ["elsewhere", "number", "empty"] {
        client.run(&format!("PERSIST {name}"));
    }
    expected[1] = text("", None);
    expected[3] = text("12", None);
    // The first of these learns that there are none any more.
    assert_eq!(read(session.as_ref(), &names).await, expected);
    let before = questions(&mut client);
    let found = read(session.as_ref(), &full).await;
    assert_eq!(found, [expected[0].clone(), expected[3].clone()]);
    assert_eq!(
        questions(&mut client),
        before,
        "no key has an expiry any more"
    );
}

#[tokio::test]
async fn a_key_of_another_type_or_gone_is_seen_among_strings_without_expiries() {
    let source = start();
    let mut client = Client::admin(&source);
    let session = session(&source).await;
    for line in ["SET a 1", "SET b 2", "SET c 3"] {
        client.run(line);
    }
    let names = ["a", "b", "c"];
    read(session.as_ref(), &names).await;
    client.run("DEL b c");
    client.run("RPUSH c x");
    let keys: Vec<_> = names.iter().map(key).collect();
    for small in [false, true] {
        let reads = match small {
            true => session.read_small(&keys).await.expect("a read"),
            false => session.read(&keys).await.expect("a read"),
        };
        assert_eq!(reads[..2], [text("1", None), Read::Gone]);
        assert!(
            matches!(
                &reads[2],
                Read::Item(Item {
                    payload: Payload::Dump(_),
                    ..
                })
            ),
            "{:?}",
            reads[2]
        );
    }
}
