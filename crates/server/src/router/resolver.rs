//! Looks up the names of nodes, off the workers' threads: the system's resolver blocks.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use clockwise_cluster::Address;

type Answer = Box<dyn FnOnce(Vec<SocketAddr>) + Send>;

/// One thread and its queue. Attempts to connect have a deadline of their own, so a lookup that
/// takes too long delays nothing else. The thread ends with the last sender.
#[derive(Debug)]
pub(super) struct Resolver {
    requests: Sender<Request>,
}

struct Request {
    address: Address,
    answer: Answer,
}

impl Resolver {
    pub(super) fn start() -> io::Result<Self> {
        let (requests, queue) = channel::<Request>();
        thread::Builder::new().name("clockwise-names".to_owned()).spawn(move || {
            for Request { address, answer } in queue {
                let found = (address.host(), address.port()).to_socket_addrs();
                let addresses = found.map(Iterator::collect).unwrap_or_else(|error| {
                    tracing::warn!(address = address.as_str(), %error, "the name of a node does not resolve");
                    Vec::new()
                });
                answer(addresses);
            }
        })?;
        Ok(Self { requests })
    }

    /// Calls `answer` with the addresses of the name, none if there are none, from another thread.
    pub(super) fn look_up(
        &self,
        address: Address,
        answer: impl FnOnce(Vec<SocketAddr>) + Send + 'static,
    ) {
        let request = Request {
            address,
            answer: Box::new(answer),
        };
        if self.requests.send(request).is_err() {
            tracing::error!("the thread that looks up names has ended");
        }
    }
}
