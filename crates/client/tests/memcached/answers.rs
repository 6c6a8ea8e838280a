//! Which answer belongs to which request, and what of it a client reads.

use clockwise_client::memcached::{Items, Quiet, answers};

#[test]
fn an_answer_fits_its_request_or_the_order_was_lost() {
    let fits: [(&[u8], &[u8]); 20] = [
        (b"get a\r\n", b"END\r\n"),
        (
            b"get a b c\r\n",
            b"VALUE a 0 1\r\nx\r\nVALUE c 0 0\r\n\r\nEND\r\n",
        ),
        (
            b"gets a a\r\n",
            b"VALUE a 0 1 7\r\nx\r\nVALUE a 0 1 7\r\nx\r\nEND\r\n",
        ),
        (b"gat 60 60\r\n", b"VALUE 60 0 1\r\nx\r\nEND\r\n"),
        (b"set a 0 0 1\r\nx\r\n", b"STORED\r\n"),
        (
            b"set a 0 0 1\r\nx\r\n",
            b"SERVER_ERROR out of memory storing object\r\n",
        ),
        (b"cas a 0 0 1 7\r\nx\r\n", b"EXISTS\r\n"),
        (b"incr a 1\r\n", b"2\r\n"),
        (b"decr a 1\r\n", b"9 \r\n"),
        (b"touch a 1\r\n", b"TOUCHED\r\n"),
        (b"delete a\r\n", b"NOT_FOUND\r\n"),
        (b"flush_all\r\n", b"OK\r\n"),
        (b"version\r\n", b"VERSION 1.6.18\r\n"),
        (b"stats\r\n", b"STAT pid 1\r\nEND\r\n"),
        (b"mg a v O12\r\n", b"VA 1 O12\r\nx\r\n"),
        (b"mg Oa v\r\n", b"VA 1\r\nx\r\n"),
        (b"mg a O1\r\n", b"EN\r\n"),
        (b"ms a 1 O1\r\nx\r\n", b"HD O1\r\n"),
        (b"ma a\r\n", b"NF\r\n"),
        (b"me a\r\n", b"ME a exp=-1\r\n"),
    ];
    for (request, answer) in fits {
        let (request_text, answer_text) = (request.escape_ascii(), answer.escape_ascii());
        assert!(answers(request, answer), "{request_text}: {answer_text}");
    }
    let unfit: [(&[u8], &[u8]); 14] = [
        (b"get a\r\n", b"STORED\r\n"),
        (b"get a\r\n", b"VALUE b 0 1\r\nx\r\nEND\r\n"),
        (
            b"get a b\r\n",
            b"VALUE b 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
        ),
        (
            b"get a\r\n",
            b"VALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
        ),
        (b"gat 60 a\r\n", b"VALUE 60 0 1\r\nx\r\nEND\r\n"),
        (b"set a 0 0 1\r\nx\r\n", b"END\r\n"),
        (b"set a 0 0 1\r\nx\r\n", b"EXISTS\r\n"),
        (b"incr a 1\r\n", b"STORED\r\n"),
        (b"delete a\r\n", b"OK\r\n"),
        (b"mg a O1\r\n", b"HD O2\r\n"),
        (b"mg a v\r\n", b"VA 1 O2\r\nx\r\n"),
        (b"ms a 1\r\nx\r\n", b"EN\r\n"),
        (b"me a\r\n", b"HD\r\n"),
        (b"unknown\r\n", b"OK\r\n"),
    ];
    for (request, answer) in unfit {
        let (request_text, answer_text) = (request.escape_ascii(), answer.escape_ascii());
        assert!(!answers(request, answer), "{request_text}: {answer_text}");
    }
}

#[test]
fn silence_hides_what_servers_do_not_say() {
    let check = |quiet: Quiet, hidden: &[&str], read: &[&str]| {
        for answer in hidden {
            assert!(quiet.hides(answer.as_bytes()), "{quiet:?}: {answer}");
        }
        for answer in read {
            assert!(!quiet.hides(answer.as_bytes()), "{quiet:?}: {answer}");
        }
    };
    check(Quiet::Nothing, &[], &["STORED\r\n", "EN\r\n"]);
    check(
        Quiet::Everything,
        &["STORED\r\n", "CLIENT_ERROR x\r\n"],
        &[],
    );
    check(
        Quiet::Miss,
        &["EN\r\n", "EN O1\r\n"],
        &["HD\r\n", "VA 0\r\n\r\n", "CLIENT_ERROR x\r\n"],
    );
    check(
        Quiet::Done,
        &["HD\r\n", "HD O1\r\n"],
        &["NS\r\n", "NF\r\n", "EX\r\n", "SERVER_ERROR x\r\n"],
    );
    check(
        Quiet::Counted,
        &["HD\r\n", "VA 1\r\n5\r\n"],
        &["NF\r\n", "NS\r\n"],
    );
}

#[test]
fn the_items_of_an_answer_are_told_apart() {
    let answer = b"VALUE a 0 5\r\nEND\r\n\r\nVALUE b 1 0 9\r\n\r\nEND\r\n";
    let mut items = Items::of(answer);
    let first = items.next().unwrap();
    assert_eq!((first.key, first.bytes), (&b"a"[..], &answer[..20]));
    let second = items.next().unwrap();
    assert_eq!((second.key, second.bytes), (&b"b"[..], &answer[20..37]));
    assert_eq!(items.next(), None);
    assert_eq!(items.rest(), b"END\r\n");
}
