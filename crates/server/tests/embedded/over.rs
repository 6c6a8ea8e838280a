//! Keys that are given an expiry in the past go at once, whichever command gives it.

use clockwise::driver::{Dirty, Generation};
use clockwise::embedded::{ConnectionId, Model};

const NOW_MS: u64 = 1_000_000;

struct Connected {
    model: Model,
    id: ConnectionId,
}

impl Connected {
    fn new() -> Self {
        let mut model = Model::new("run", None);
        model.make_client_user(Generation(1), "secret");
        let id = model.connect("somebody");
        let mut connected = Self { model, id };
        assert_eq!(connected.ask("AUTH cw-g1 secret"), "+OK\r\n");
        connected
    }

    fn ask(&mut self, line: &str) -> String {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut out = Vec::new();
        assert!(self.model.execute(self.id, &args, NOW_MS, &mut out));
        String::from_utf8(out).unwrap()
    }
}

#[test]
fn a_key_whose_time_is_over_already_goes_at_once() {
    for (line, reply) in [
        ("SET k v2 PXAT 1", "+OK\r\n"),
        ("SET k v2 EXAT 1", "+OK\r\n"),
        ("SET k v2 PXAT 1000000", "+OK\r\n"),
        ("SET k v2 XX GET PXAT 1", "$1\r\nv\r\n"),
        ("GETEX k PXAT 1", "$1\r\nv\r\n"),
        ("GETEX k EXAT 1", "$1\r\nv\r\n"),
        ("EXPIREAT k 1", ":1\r\n"),
        ("EXPIREAT k -1", ":1\r\n"),
        ("PEXPIREAT k 1", ":1\r\n"),
        ("EXPIRE k 0", ":1\r\n"),
        ("PEXPIRE k -5", ":1\r\n"),
    ] {
        let mut node = Connected::new();
        node.ask("SET k v");
        let stream = node.model.track();
        assert_eq!(node.ask(line), reply, "{line}");
        // Not merely unseen: it takes no place either.
        assert_eq!(
            (node.model.len(), node.model.memory_bytes()),
            (0, 0),
            "{line}"
        );
        let told = node.model.take_dirty(stream);
        assert_eq!(told, Some(Dirty::Keys(vec!["k".into()])), "{line}");
    }
    let mut node = Connected::new();
    assert_eq!(node.ask("SET new v PXAT 1"), "+OK\r\n");
    assert_eq!(node.model.len(), 0, "and what was not there does not come");
}

#[test]
fn a_time_that_can_never_come_is_an_error_and_changes_nothing() {
    for line in [
        "SET k v2 EX 0",
        "SET k v2 PX -1",
        "SET k v2 PXAT 0",
        "SET k v2 EXAT -5",
        "SETEX k 0 v2",
        "PSETEX k -1 v2",
        "GETEX k EX 0",
        "GETEX k PXAT -1",
        "SET k v2 EX 9223372036854775807",
        "EXPIRE k 9223372036854775807",
    ] {
        let mut node = Connected::new();
        node.ask("SET k v");
        let name = line.split(' ').next().unwrap().to_lowercase();
        let refused = format!("-ERR invalid expire time in '{name}' command\r\n");
        assert_eq!(node.ask(line), refused, "{line}");
        assert_eq!(node.ask("GET k"), "$1\r\nv\r\n", "{line}");
        assert_eq!(node.ask("TTL k"), ":-1\r\n", "{line}");
    }
}
