//! What happened to which key at a server, as it says itself: keyspace events, complete and in order.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread::{self, JoinHandle};

use clockwise::driver::redis::RESERVED_PREFIX;
use clockwise_client::resp::Value;

use crate::client::Client;
use crate::pool::ADMIN;

const END: &str = "__keyevent@0__:end";

/// Events and their keys, with how often each came.
pub(crate) type Events = BTreeMap<(String, Vec<u8>), u32>;

/// A server being listened to.
pub(crate) struct Listening {
    admin: Client,
    thread: JoinHandle<Events>,
}

impl Listening {
    /// Returns when everything from now on is heard.
    pub(crate) fn start(server: SocketAddr) -> Self {
        let mut admin = Client::login(server, "default", ADMIN);
        admin.run("CONFIG SET notify-keyspace-events AE");
        let mut listener = Client::login(server, "default", ADMIN);
        listener.run("PSUBSCRIBE __keyevent@0__:*");
        let thread = thread::spawn(move || listen(&mut listener));
        Self { admin, thread }
    }

    /// Everything heard, keys under the reserved prefix left out.
    pub(crate) fn end(mut self) -> Events {
        self.admin.run(&format!("PUBLISH {END} end"));
        self.thread.join().unwrap()
    }
}

fn listen(listener: &mut Client) -> Events {
    let mut events = Events::new();
    loop {
        let Value::Array(parts) = listener.next() else {
            panic!("no event")
        };
        let [_, _, Value::Bulk(channel), Value::Bulk(key)] = &parts[..] else {
            panic!("{parts:?}")
        };
        if *channel == END.as_bytes() {
            return events;
        }
        let channel = String::from_utf8(channel.to_vec()).unwrap();
        let (_, event) = channel.split_once(':').unwrap();
        if !key.starts_with(RESERVED_PREFIX) {
            *events.entry((event.to_owned(), key.to_vec())).or_default() += 1;
        }
    }
}
