//! From a client's bytes to what is done with each request.

use std::sync::Arc;

use clockwise_client::commands::{
    Action, Command, KeySpec, Local, NoKeys, Reason, Script, TimeoutAt,
};
use clockwise_client::memcached::Quiet;
use clockwise_client::resp::{Request, RequestLimits, RequestScanner, Scan};
use clockwise_client::routing::Waiting;
use clockwise_cluster::{Protocol as PoolProtocol, Route};

use super::blocking::blocks;
use super::client::{Pause, Phase, Scanner};
use super::dispatch::Sending;
use super::gather::Merge;
use super::limits::{Limits, TAKEN};
use super::node_link::Origin;
use super::refusal;
use super::transaction::is_transaction;
use super::worker::{Parked, Turn, Worker};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It is on its way or answered: on to the next.
    Next,
    /// It is not looked at now; the same bytes come again later.
    Later(Pause),
}

/// What was done with the bytes at the front of a client's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing: they are no whole request.
    More,
    /// So many are done with, and were no request that is on its way.
    Passed(usize),
    /// So many were a request.
    Served(usize),
    /// Nothing for now; the same bytes come again later.
    Later(Pause),
    /// Nobody can say where the next request begins.
    Lost,
}

impl Step {
    /// Of a request of so many bytes.
    pub(super) fn of(flow: Flow, bytes: usize) -> Self {
        match flow {
            Flow::Next => Self::Served(bytes),
            Flow::Later(reason) => Self::Later(reason),
        }
    }
}

impl Worker {
    /// Serves the requests at the front of `input`, and says how many bytes of it are done with.
    pub(super) fn serve(&mut self, turn: &Turn, place: usize, input: &[u8]) -> usize {
        let Some(client) = self.clients.get(place) else {
            return input.len();
        };
        let mut scanner = std::mem::take(&mut client.scanner);
        let settings = Arc::clone(&self.settings);
        let mut served = 0;
        while let Some(client) = self.clients.get(place) {
            if !client.may_go_on(&settings.limits) {
                if matches!(client.phase, Phase::LoggingIn | Phase::Serving) {
                    client.pause = Some(Pause::Window);
                }
                break;
            }
            let rest = &input[served..];
            let step = match &mut scanner {
                Scanner::Resp(scanner) => {
                    self.resp_step(turn, place, (scanner, &settings.limits), rest)
                }
                Scanner::Memcached(scanner) => {
                    self.memcached_step(turn, place, (scanner, &settings.limits), rest)
                }
            };
            match step {
                Step::More => break,
                Step::Passed(bytes) => served += bytes,
                Step::Served(bytes) => {
                    served += bytes;
                    self.counters.requests += 1;
                }
                Step::Later(reason) => {
                    if let Some(client) = self.clients.get(place) {
                        client.pause = Some(reason);
                    }
                    break;
                }
                Step::Lost => {
                    self.counters.clients_dropped += 1;
                    if let Some(client) = self.clients.get(place) {
                        client.phase = Phase::Leaving;
                    }
                    served = input.len();
                    break;
                }
            }
        }
        if let Some(client) = self.clients.get(place) {
            client.scanner = scanner;
        }
        served
    }

    fn resp_step(
        &mut self,
        turn: &Turn,
        place: usize,
        (scanner, limits): (&mut RequestScanner, &Limits),
        input: &[u8],
    ) -> Step {
        let limits = if self.is_logging_in(place) {
            const { &RequestLimits::UNAUTHENTICATED }
        } else {
            &limits.request
        };
        match scanner.scan(limits, input) {
            Ok(Scan::More) => Step::More,
            Ok(Scan::Skip(bytes)) => Step::Passed(bytes),
            Ok(Scan::Request { consumed, request }) => {
                Step::of(self.request(turn, place, &request), consumed)
            }
            Ok(Scan::Refused { consumed, refusal }) => {
                self.refuse_now(place, &format!("ERR clockwise: {refusal}"));
                Step::Passed(consumed)
            }
            Err(error) => {
                self.refuse_now(place, &format!("ERR {error}"));
                Step::Lost
            }
        }
    }

    /// Whether a client has to give the password first.
    pub(super) fn is_logging_in(&mut self, place: usize) -> bool {
        let client = self.clients.get(place);
        client.is_some_and(|client| client.phase == Phase::LoggingIn)
    }

    /// Answers a client with an error of our own, in its turn.
    pub(super) fn refuse_now(&mut self, place: usize, text: &str) {
        self.counters.refused += 1;
        let line = refusal::line(self.shared.protocol, text);
        self.answer(place, |out| out.extend_from_slice(&line));
    }

    /// Answers a client, in its turn.
    pub(super) fn answer(&mut self, place: usize, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(client) = self.clients.get(place) {
            client.replies.answer_now(write);
            self.list_client(place);
        }
    }

    fn request(&mut self, turn: &Turn, place: usize, request: &Request<'_>) -> Flow {
        let name = request.arg(0);
        let Some(command) = turn.table.find(name) else {
            return self.not_in_table(turn, place, request);
        };
        if let Some(flow) = self.before_command(turn, place, command) {
            return flow;
        }
        let command = match command.action {
            Action::Container => match request.get(1).map(|name| command.subcommand(name)) {
                Some(Some(subcommand)) => subcommand,
                Some(None) => return self.not_in_table(turn, place, request),
                None => {
                    self.wrong_arity(place, command);
                    return Flow::Next;
                }
            },
            _ => command,
        };
        if !command.takes(request.count()) {
            self.wrong_arity(place, command);
            return Flow::Next;
        }
        if self.halted(place, command) {
            return Flow::Next;
        }
        if self.queued(turn, place, command, request) {
            return Flow::Next;
        }
        self.perform(turn, place, command, request)
    }

    /// Refuses what would be routed while nothing may be. A transaction is not executed either.
    fn halted(&mut self, place: usize, command: &Command) -> bool {
        let Some(why) = &self.halted else {
            return false;
        };
        match command.action {
            Action::Local(Local::Exec) => {
                self.spoil(place);
                false
            }
            Action::Local(_) => false,
            _ => {
                let text = format!("ERR clockwise: {why}");
                self.spoil(place);
                self.refuse_now(place, &text);
                true
            }
        }
    }

    /// Too few or too many arguments. An `EXEC` ends its transaction all the same, as with servers.
    fn wrong_arity(&mut self, place: usize, command: &Command) {
        let mut text = refusal::wrong_arity(&command.name);
        if command.action == Action::Local(Local::Exec) {
            text = refusal::aborted(text.trim_start_matches("ERR "));
            if let Some(client) = self.clients.get(place) {
                client.transaction = None;
            }
            self.unwatch(place);
        }
        self.spoil(place);
        self.refuse_now(place, &text);
    }

    fn not_in_table(&mut self, turn: &Turn, place: usize, request: &Request<'_>) -> Flow {
        if turn.table.is_complete() {
            let text = match turn.table.find(request.arg(0)) {
                Some(container) => refusal::unknown_subcommand(&container.name, request.arg(1)),
                None => refusal::unknown_command(request.arg(0), request.args().skip(1)),
            };
            self.spoil(place);
            self.refuse_now(place, &text);
        } else if self.table_is_late(turn) {
            self.spoil(place);
            self.refuse_now(place, &refusal::no_table(&turn.view));
        } else {
            return Flow::Later(Pause::Table);
        }
        Flow::Next
    }

    /// What stands before any command: the password, and a transaction that was refused.
    fn before_command(&mut self, turn: &Turn, place: usize, command: &Command) -> Option<Flow> {
        let client = self.clients.get(place)?;
        if client.phase == Phase::LoggingIn {
            let opens = matches!(
                command.action,
                Action::Local(Local::Auth | Local::Hello | Local::Quit | Local::Reset)
            );
            if !opens {
                self.refuse_now(place, "NOAUTH Authentication required.");
                return Some(Flow::Next);
            }
            return None;
        }
        let until = client.refused_multi?;
        let ends = matches!(
            command.action,
            Action::Local(Local::Exec | Local::Discard | Local::Reset | Local::Quit)
        );
        if ends {
            return None;
        }
        if turn.now >= until {
            client.refused_multi = None;
            return None;
        }
        self.refuse_now(place, "ERR clockwise: not executed: the MULTI before it was refused; send DISCARD to go on at once");
        Some(Flow::Next)
    }

    fn perform(
        &mut self,
        turn: &Turn,
        place: usize,
        command: &Command,
        request: &Request<'_>,
    ) -> Flow {
        match command.action {
            Action::Forward => self.forward(turn, place, command, request),
            Action::ForwardUnlessBlocking if blocks(request) => {
                return self.block(turn, place, TimeoutAt::Block, command, request);
            }
            Action::Block(at) => return self.block(turn, place, at, command, request),
            Action::Watch => return self.watch(turn, place, command, request),
            Action::ForwardUnlessBlocking => self.forward(turn, place, command, request),
            Action::Scatter(scatter) => self.scatter(turn, place, scatter, command, request),
            Action::AnyNode => self.any_node(turn, place, request),
            Action::SumOverNodes => self.every_node(turn, place, Merge::Sum, request),
            Action::Script(script) => self.script(turn, place, script, command, request),
            Action::Scan => self.scan(turn, place, request),
            Action::Local(local) => return self.local(turn, place, local, request),
            Action::Refuse(reason) => {
                self.refuse_now(place, &refusal::refused(&command.name, reason))
            }
            Action::Container => {
                self.refuse_now(place, &refusal::refused(&command.name, Reason::KeysUnknown))
            }
        }
        Flow::Next
    }

    /// A script or function, if the pool allows them as of this turn's view.
    fn script(
        &mut self,
        turn: &Turn,
        place: usize,
        script: Script,
        command: &Command,
        request: &Request<'_>,
    ) {
        let reason = match script {
            _ if !turn.view.scripts() => Reason::Scripts,
            Script::Keyed => return self.forward(turn, place, command, request),
            Script::Load => return self.every_node(turn, place, Merge::Same, request),
            Script::Manage => Reason::ScriptsOfOne,
        };
        self.refuse_now(place, &refusal::refused(&command.name, reason));
    }

    /// To the node that owns all keys of the request.
    fn forward(&mut self, turn: &Turn, place: usize, command: &Command, request: &Request<'_>) {
        match self.route_of(turn, command, request) {
            Ok(route) => {
                let Some(origin) = self.reserve(place) else {
                    return;
                };
                self.dispatch_frame(
                    turn,
                    Sending::first(origin, command.effect, turn),
                    route,
                    request.frame(),
                );
            }
            Err(text) => self.refuse_now(place, &text),
        }
    }

    /// The one node that owns all keys, and whether any of them is held.
    pub(super) fn route_of(
        &self,
        turn: &Turn,
        command: &Command,
        request: &Request<'_>,
    ) -> Result<Route, String> {
        if let KeySpec::One(at) = command.keys {
            let key = request
                .get(at)
                .ok_or_else(|| refusal::wrong_arity(&command.name))?;
            self.check_key(key)?;
            return Ok(turn.view.route(turn.view.position(key)));
        }
        let positions = self.key_positions(command, request)?;
        let route = |at: usize| turn.view.route(turn.view.position(request.arg(at)));
        let first = route(positions[0]);
        let mut hold = first.hold;
        for at in &positions[1..] {
            let next = route(*at);
            hold |= next.hold;
            if next.node != first.node {
                let name = |node| turn.view.node(node).id.as_str();
                let (one, other) = (
                    (request.arg(positions[0]), name(first.node)),
                    (request.arg(*at), name(next.node)),
                );
                return Err(refusal::apart(one, other, turn.view.epoch()));
            }
        }
        Ok(Route { hold, ..first })
    }

    fn check_key(&self, key: &[u8]) -> Result<(), String> {
        let limit = self.settings.limits.key_bytes_max;
        if key.len() > limit {
            Err(refusal::key_too_long(key.len(), limit))
        } else {
            Ok(())
        }
    }

    /// The arguments that are keys, at least one.
    pub(super) fn key_positions(
        &self,
        command: &Command,
        request: &Request<'_>,
    ) -> Result<Vec<usize>, String> {
        let positions = command
            .keys
            .positions(request)
            .map_err(|error| match error {
                NoKeys::Malformed if matches!(command.keys, KeySpec::Range { .. }) => {
                    refusal::wrong_arity(&command.name)
                }
                NoKeys::Zero if matches!(command.action, Action::Script(_)) => {
                    refusal::refused(&command.name, Reason::KeylessScript)
                }
                NoKeys::Malformed | NoKeys::Zero => "ERR syntax error".to_owned(),
                NoKeys::Patterns => refusal::sort_with_patterns(&command.name),
            })?;
        if positions.is_empty() {
            return Err(refusal::refused(&command.name, Reason::Keyless));
        }
        positions
            .iter()
            .try_for_each(|at| self.check_key(request.arg(*at)))?;
        Ok(positions)
    }

    /// Takes a place in line for a request.
    pub(super) fn reserve(&mut self, place: usize) -> Option<Origin> {
        self.reserve_quiet(place, Quiet::Nothing)
    }

    /// The same, for an answer of which the client does not want to read this.
    pub(super) fn reserve_quiet(&mut self, place: usize, quiet: Quiet) -> Option<Origin> {
        let client = self.clients.get(place)?;
        let sequence = client.replies.reserve(quiet);
        Some(Origin {
            client: place,
            serial: client.serial,
            sequence,
            part: None,
        })
    }

    /// Routes requests again that could not be sent under an earlier view.
    pub(super) fn dispatch_again(&mut self, turn: &Turn, waiting: Waiting<Parked>) {
        let Waiting {
            request:
                Parked {
                    origin,
                    effect,
                    retries,
                    preamble,
                    frame,
                    ..
                },
            since,
            ..
        } = waiting;
        if self.clients.of(origin).is_none() {
            return;
        }
        let sending = Sending {
            origin,
            effect,
            retries,
            preamble,
            since,
        };
        let Some(frame) = frame else {
            return self.dispatch_part_again(turn, sending);
        };
        if self.shared.protocol == PoolProtocol::Memcached {
            return self.memcached_again(turn, sending, &frame);
        }
        if is_transaction(&frame) {
            return match self.route_of_transaction(turn, &frame) {
                Ok(route) => self.dispatch_frame(turn, sending, route, &frame),
                Err(text) => self.fail(turn, origin, &refusal::aborted(&text), false),
            };
        }
        let mut scanner = RequestScanner::default();
        let Ok(Scan::Request { request, .. }) = scanner.scan(&TAKEN, &frame) else {
            unreachable!("a frame that was scanned before is a request");
        };
        let command = turn.table.find(request.arg(0));
        let command = command.and_then(|command| match (command.action, request.get(1)) {
            (Action::Container, Some(name)) => command.subcommand(name),
            _ => Some(command),
        });
        let Some(command) = command else {
            return self.fail(turn, origin, &refusal::no_table(&turn.view), false);
        };
        let route = match command.action {
            Action::Scatter(scatter) => {
                return self.scatter_again(turn, origin, scatter, command, &request, since);
            }
            Action::AnyNode => self.any_route(turn).ok_or_else(refusal::no_nodes),
            _ => self.route_of(turn, command, &request),
        };
        match route {
            Ok(route) => self.dispatch_frame(turn, sending, route, &frame),
            Err(text) => self.fail(turn, origin, &text, false),
        }
    }
}
