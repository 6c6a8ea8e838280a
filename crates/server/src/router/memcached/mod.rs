//! What becomes of memcached's requests.
//!
//! Each goes to the node that owns its key, without `noreply` or `q`: over a connection that many clients
//! share every request has its answer, and the client's place in line knows what of it not to pass on.
//! `get` and its like with keys on several nodes are split and put together in the order of the keys.
//! `mn` is answered here, in its turn, and so only behind everything that was asked before it.
//!
//! | what becomes of it | requests |
//! |---|---|
//! | to the owner of the key | `set` `add` `replace` `append` `prepend` `cas` `incr` `decr` `touch` `delete` `mg` `ms` `md` `ma` `me` |
//! | split over the owners of the keys | `get` `gets` `gat` `gats` |
//! | to every node | `flush_all` where the pool allows it, `stats` |
//! | to any node | `version` |
//! | answered here | `mn` `quit` `verbosity` |

pub(super) mod parts;

use clockwise_client::memcached::{
    Quiet, Refusal, Request, RequestLimits, RequestScanner, Scan, Verb,
};
use clockwise_client::resp::Protocol;
use clockwise_client::routing::Effect;
use clockwise_cluster::Route;

use super::client::Phase;
use super::dispatch::Sending;
use super::gather::{Gather, Merge};
use super::limits::Limits;
use super::node_link::Origin;
use super::refusal;
use super::serve::{Flow, Step};
use super::worker::{Turn, Worker};

/// Connections are kept by version of the protocol; memcached has one, which takes the place of the first.
pub(super) const LANE: Protocol = Protocol::Resp2;

impl Worker {
    /// Looks at the request at the front of `input`.
    pub(super) fn memcached_step(
        &mut self,
        turn: &Turn,
        place: usize,
        (scanner, limits): (&mut RequestScanner, &Limits),
        input: &[u8],
    ) -> Step {
        let logging_in = self.is_logging_in(place);
        let limits = if logging_in {
            const { &RequestLimits::UNAUTHENTICATED }
        } else {
            &limits.memcached
        };
        match scanner.scan(limits, input) {
            Ok(Scan::More) => Step::More,
            Ok(Scan::Skip(bytes)) => Step::Passed(bytes),
            Ok(Scan::Request { consumed, request }) if logging_in => {
                self.memcached_login(place, &request);
                Step::of(Flow::Next, consumed)
            }
            Ok(Scan::Request { consumed, request }) => {
                self.memcached_request(turn, place, &request);
                Step::of(Flow::Next, consumed)
            }
            Ok(Scan::Refused {
                consumed,
                refusal,
                quiet,
                instead,
            }) => {
                self.refuse_unless_hidden(place, quiet, &format!("{refusal}\r\n"));
                if let Some(instead) = instead.filter(|_| !logging_in && self.halted.is_none()) {
                    let route = turn.view.route(turn.view.position(instead.key(0)));
                    self.dispatch_unasked(turn, (route.node, LANE), instead.frame());
                }
                Step::Passed(consumed)
            }
            Err(error) => {
                self.say(place, &format!("{error}\r\n"));
                Step::Lost
            }
        }
    }

    /// Answers with a refusal in a server's words.
    fn say(&mut self, place: usize, line: &str) {
        self.counters.refused += 1;
        self.answer(place, |out| out.extend_from_slice(line.as_bytes()));
    }

    /// Likewise, unless the client does not want to read it.
    fn refuse_unless_hidden(&mut self, place: usize, quiet: Quiet, line: &str) {
        if quiet.hides(line.as_bytes()) {
            self.counters.refused += 1;
        } else {
            self.say(place, line);
        }
    }

    /// The password is the value of a `set`, behind a user's name, as servers have it.
    fn memcached_login(&mut self, place: usize, request: &Request<'_>) {
        let value = request.value().filter(|_| request.verb() == Verb::Set);
        let Some(value) = value else {
            return self.say(place, "CLIENT_ERROR unauthenticated\r\n");
        };
        let mut words = value
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty());
        let (Some(_user), Some(password)) = (words.next(), words.next()) else {
            return self.say(place, "CLIENT_ERROR bad authentication token format\r\n");
        };
        if !self.knows_password(password) {
            return self.say(place, "CLIENT_ERROR authentication failure\r\n");
        }
        if let Some(client) = self.clients.get(place) {
            client.phase = Phase::Serving;
        }
        self.answer(place, |out| out.extend_from_slice(b"STORED\r\n"));
    }

    fn memcached_request(&mut self, turn: &Turn, place: usize, request: &Request<'_>) {
        if self.memcached_halted(place, request) {
            return;
        }
        match request.verb() {
            Verb::MetaNoop => self.answer(place, |out| out.extend_from_slice(b"MN\r\n")),
            Verb::Quit => {
                if let Some(client) = self.clients.get(place) {
                    client.phase = Phase::Leaving;
                }
                self.list_client(place);
            }
            Verb::Verbosity => {
                // What nodes log is no client's business; clients only mind the answer.
                if !request.quiet().hides(b"OK\r\n") {
                    self.answer(place, |out| out.extend_from_slice(b"OK\r\n"));
                }
            }
            Verb::Version => self.version(turn, place, request),
            Verb::FlushAll => self.flush_all(turn, place, request),
            Verb::Stats => self.statistics(turn, place, request),
            _ => {
                if let Some(origin) = self.reserve_quiet(place, request.quiet()) {
                    self.forward_by_keys(turn, first(turn, origin, request), request);
                }
            }
        }
    }

    /// Refuses what would be routed while nothing may be.
    fn memcached_halted(&mut self, place: usize, request: &Request<'_>) -> bool {
        let answered_here = matches!(
            request.verb(),
            Verb::MetaNoop | Verb::Quit | Verb::Verbosity
        );
        let Some(why) = self.halted.as_ref().filter(|_| !answered_here) else {
            return false;
        };
        let line = format!("SERVER_ERROR clockwise: {why}\r\n");
        self.refuse_unless_hidden(place, request.quiet(), &line);
        true
    }

    /// To the node that owns the keys, or to each that owns some.
    fn forward_by_keys(&mut self, turn: &Turn, sending: Sending, request: &Request<'_>) {
        let route = |at: usize| turn.view.route(turn.view.position(request.key(at)));
        let first = route(0);
        let apart = |at: usize| {
            let route = route(at);
            route.hold || route.node != first.node
        };
        let together = (1..request.key_count()).all(|at| !apart(at));
        if together && (request.key_count() == 1 || !first.hold) {
            return self.dispatch_frame(turn, sending, first, request.frame());
        }
        let gather = Gather::over_items(request);
        let keys = (0..gather.key_count() as u32).collect();
        self.begin_gather(sending.origin, gather);
        self.dispatch_keys(turn, sending, keys);
    }

    /// Routes a request again that could not be sent under an earlier view.
    pub(super) fn memcached_again(&mut self, turn: &Turn, sending: Sending, frame: &[u8]) {
        // It was taken under limits that may be others by now.
        let limits = RequestLimits {
            line_bytes_max: usize::MAX,
            keys_max: usize::MAX,
            value_bytes_max: usize::MAX,
            skip_bytes_max: 0,
        };
        let mut scanner = RequestScanner::default();
        let Ok(Scan::Request { request, .. }) = scanner.scan(&limits, frame) else {
            unreachable!("a frame that was scanned before is a request");
        };
        self.forward_by_keys(turn, sending, &request);
    }

    fn version(&mut self, turn: &Turn, place: usize, request: &Request<'_>) {
        let Some(route) = self.any_route(turn) else {
            return self.refuse_now(place, &refusal::no_nodes());
        };
        let Some(origin) = self.reserve(place) else {
            return;
        };
        self.ask_nodes(turn, origin, Merge::Version, request, &[route]);
    }

    /// Empties all nodes, where the pool allows it.
    fn flush_all(&mut self, turn: &Turn, place: usize, request: &Request<'_>) {
        if !turn.view.flush_all() {
            let line = "CLIENT_ERROR flush_all not allowed\r\n";
            return self.refuse_unless_hidden(place, request.quiet(), line);
        }
        if let Some(origin) = self.reserve_quiet(place, request.quiet()) {
            let routes = self.all_routes(turn);
            self.ask_nodes(turn, origin, Merge::Confirmed, request, &routes);
        }
    }

    /// General statistics of all nodes together; the others are about one server's insides.
    fn statistics(&mut self, turn: &Turn, place: usize, request: &Request<'_>) {
        if request.words().nth(1).is_some() {
            return self.say(place, &format!("{}\r\n", Refusal::OneServer));
        }
        if let Some(origin) = self.reserve(place) {
            let routes = self.all_routes(turn);
            let merge = Merge::Statistics(turn.view.epoch());
            self.ask_nodes(turn, origin, merge, request, &routes);
        }
    }

    fn all_routes(&mut self, turn: &Turn) -> Vec<Route> {
        let owners = self.owners(turn);
        let nodes = turn.view.nodes().iter().zip(owners.iter());
        let owning = nodes.filter(|(_, owns)| **owns);
        owning
            .filter_map(|(node, _)| turn.view.index_of(&node.id))
            .map(|node| Route { node, hold: false })
            .collect()
    }

    /// The request as it is, to each of these nodes.
    fn ask_nodes(
        &mut self,
        turn: &Turn,
        origin: Origin,
        merge: Merge,
        request: &Request<'_>,
        routes: &[Route],
    ) {
        let mut gather = Gather::over_memcached(merge, request);
        let node = |route: &Route| turn.view.node(route.node).id.clone();
        let parts: Vec<_> = routes
            .iter()
            .map(|route| gather.add_node(node(route)))
            .collect();
        self.begin_gather(origin, gather);
        for part in parts {
            let origin = Origin {
                part: Some(part),
                ..origin
            };
            self.dispatch_whole(turn, first(turn, origin, request));
        }
    }
}

/// A request that is sent for the first time.
fn first(turn: &Turn, origin: Origin, request: &Request<'_>) -> Sending {
    Sending::first(origin, effect(request), turn)
}

/// Whether a request may change something. `mg` may: it makes an item, or says who is to make it anew, or
/// when it ends.
fn effect(request: &Request<'_>) -> Effect {
    match request.verb() {
        Verb::Get | Verb::Gets | Verb::Version | Verb::Stats | Verb::MetaDebug => Effect::Read,
        Verb::MetaGet => {
            let changes = |word: &[u8]| matches!(word.first(), Some(b'N' | b'R' | b'T'));
            match request.words().skip(2).any(changes) {
                true => Effect::Write,
                false => Effect::Read,
            }
        }
        _ => Effect::Write,
    }
}
