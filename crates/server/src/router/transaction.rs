//! `MULTI` to `EXEC`: kept here, and sent as one request to one node.
//!
//! Commands of a transaction are checked as they come, answered `QUEUED`, and kept. At `EXEC` all of
//! them leave together, with their `MULTI` and `EXEC` around them, over the connection that all clients
//! share: nobody else's request can come between. The node answers each; only what it answers to
//! `EXEC` is the client's.
//!
//! *One owner.* All keys must be on one node. That is asked as each command comes, and again at
//! `EXEC`, since keys may have moved since.
//!
//! *Handovers.* A transaction is one request: held as a whole while any of its keys is handed over,
//! and sent as a whole to whoever owns them then. A node that has not received `EXEC` executes
//! nothing, so a connection that breaks leaves it done whole or not at all.

use clockwise_client::commands::{Action, Command, Local, Reason, Script};
use clockwise_client::resp::{
    Request, RequestScanner, Scan, write_array, write_command, write_simple,
};
use clockwise_client::routing::Effect;
use clockwise_cluster::{Epoch, Route};

use super::client::Client;
use super::dispatch::Sending;
use super::limits::TAKEN;
use super::refusal;
use super::serve::Flow;
use super::worker::{Turn, Worker};

/// What begins each frame of a transaction, and no other frame.
const BEGIN: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";

/// Whether the bytes of a request are those of a transaction.
pub(super) fn is_transaction(frame: &[u8]) -> bool {
    frame.starts_with(BEGIN)
}

/// A transaction whose `EXEC` has not come.
#[derive(Debug)]
pub(super) struct Transaction {
    /// `MULTI` and the commands so far; nothing once it is spoiled.
    frame: Vec<u8>,
    commands: u32,
    effect: Effect,
    /// Where its keys are, as of an epoch; none has come yet.
    route: Option<(Epoch, Route)>,
    /// A key of it, for messages.
    first_key: Box<[u8]>,
    /// A command was refused: `EXEC` will do nothing.
    spoiled: bool,
}

impl Transaction {
    fn new() -> Self {
        Self {
            frame: BEGIN.to_vec(),
            commands: 0,
            effect: Effect::Read,
            route: None,
            first_key: Box::default(),
            spoiled: false,
        }
    }

    /// Bytes kept of it.
    pub(super) fn bytes(&self) -> usize {
        self.frame.capacity()
    }

    /// Commands that have come.
    pub(super) fn commands(&self) -> u32 {
        self.commands
    }

    /// Whether a command was refused.
    pub(super) fn is_spoiled(&self) -> bool {
        self.spoiled
    }

    /// `MULTI` and the commands so far.
    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// What it may do.
    pub(super) fn effect(&self) -> Effect {
        self.effect
    }

    fn spoil(&mut self) {
        self.spoiled = true;
        self.frame = Vec::new();
    }
}

/// How a command takes part in a transaction.
enum Part {
    /// At the node that owns its keys.
    Keyed,
    /// At whatever node the others are for.
    Anywhere,
    Not(Reason),
}

fn part(turn: &Turn, action: Action) -> Part {
    match action {
        // Within a transaction servers do not block.
        Action::Forward | Action::ForwardUnlessBlocking | Action::Block(_) | Action::Scatter(_) => {
            Part::Keyed
        }
        Action::Script(_) if !turn.view.scripts() => Part::Not(Reason::Scripts),
        Action::Script(Script::Keyed) => Part::Keyed,
        Action::Local(Local::Ping | Local::Echo | Local::Time | Local::Unwatch) => Part::Anywhere,
        Action::Refuse(reason) => Part::Not(reason),
        _ => Part::Not(Reason::NotInTransaction),
    }
}

/// Whether a command is obeyed at once also within a transaction.
fn stands_outside(action: Action) -> bool {
    matches!(
        action,
        Action::Local(
            Local::Multi | Local::Exec | Local::Discard | Local::Quit | Local::Reset | Local::Http
        ) | Action::Watch
    )
}

impl Worker {
    /// Puts a command into the client's transaction, if it has one. Says whether it did.
    pub(super) fn queued(
        &mut self,
        turn: &Turn,
        place: usize,
        command: &Command,
        request: &Request<'_>,
    ) -> bool {
        let open = self
            .clients
            .get(place)
            .and_then(|client| client.transaction.as_ref());
        let Some(transaction) = open else {
            return false;
        };
        if stands_outside(command.action) {
            return false;
        }
        let bytes_max = self.settings.limits.request.request_bytes_max as usize;
        let route = match part(turn, command.action) {
            Part::Not(reason) => Err(refusal::refused(&command.name, reason)),
            _ if transaction.frame.len() + request.frame().len() > bytes_max => {
                Err(refusal::transaction_too_large(bytes_max))
            }
            Part::Anywhere => Ok(None),
            Part::Keyed => self.route_of(turn, command, request).map(Some),
        };
        let key = command.keys.positions(request);
        let key = key
            .ok()
            .and_then(|positions| request.get(*positions.first()?));
        if let Err(text) =
            route.and_then(|route| self.add(turn, place, command, request, (route, key)))
        {
            self.spoil(place);
            self.refuse_now(place, &text);
            return true;
        }
        self.answer(place, |out| write_simple(out, "QUEUED"));
        self.list_client(place);
        true
    }

    fn add(
        &mut self,
        turn: &Turn,
        place: usize,
        command: &Command,
        request: &Request<'_>,
        (route, key): (Option<Route>, Option<&[u8]>),
    ) -> Result<(), String> {
        let epoch = turn.view.epoch();
        let Some(client) = self.clients.get(place) else {
            return Ok(());
        };
        let Some(transaction) = client.transaction.as_mut().filter(|open| !open.spoiled) else {
            return Ok(());
        };
        if let Some(route) = route {
            let key = key.unwrap_or_default();
            let known = match transaction.route {
                None => {
                    transaction.first_key = key.into();
                    route
                }
                Some((at, known)) if at == epoch => known,
                // Asked again at its end; here only the keys that have come are compared.
                Some(_) => turn.view.route(turn.view.position(&transaction.first_key)),
            };
            if known.node != route.node {
                let name = |node| turn.view.node(node).id.as_str();
                let (one, other) = (
                    (&*transaction.first_key, name(known.node)),
                    (key, name(route.node)),
                );
                return Err(refusal::transaction_apart(one, other, epoch));
            }
            let hold = known.hold || route.hold;
            transaction.route = match transaction.route {
                Some((at, _)) if at != epoch => transaction.route,
                _ => Some((epoch, Route { hold, ..route })),
            };
        }
        if command.effect == Effect::Write && route.is_some() {
            transaction.effect = Effect::Write;
        }
        transaction.commands += 1;
        transaction.frame.extend_from_slice(request.frame());
        Ok(())
    }

    /// A command was refused before it could take part.
    pub(super) fn spoil(&mut self, place: usize) {
        let client = self.clients.get(place);
        if let Some(transaction) = client.and_then(|client| client.transaction.as_mut()) {
            transaction.spoil();
        }
    }

    /// `MULTI`
    pub(super) fn multi(&mut self, place: usize) {
        let Some(client) = self.clients.get(place) else {
            return;
        };
        if client.transaction.is_some() {
            return self.refuse_now(place, "ERR MULTI calls can not be nested");
        }
        client.transaction = Some(Box::new(Transaction::new()));
        self.answer(place, |out| write_simple(out, "OK"));
    }

    /// `DISCARD`
    pub(super) fn discard(&mut self, place: usize) {
        let client = self.clients.get(place);
        match client.and_then(|client| client.transaction.take()) {
            Some(_) => self.unwatch_all(place),
            None => self.refuse_now(place, "ERR DISCARD without MULTI"),
        }
    }

    /// `EXEC`
    pub(super) fn exec(&mut self, turn: &Turn, place: usize) -> Flow {
        let client = self.clients.get(place);
        let watches = |client: &&mut Client| {
            let own = client.own.as_ref();
            client.transaction.is_some() && own.is_some_and(|own| own.concerns_exec())
        };
        if client.filter(watches).is_some() {
            return self.exec_watched(turn, place);
        }
        let client = self.clients.get(place);
        let Some(mut transaction) = client.and_then(|client| client.transaction.take()) else {
            self.refuse_now(place, "ERR EXEC without MULTI");
            return Flow::Next;
        };
        if transaction.spoiled {
            self.refuse_now(place, refusal::SPOILED);
            return Flow::Next;
        }
        if transaction.commands == 0 {
            self.answer(place, |out| write_array(out, 0));
            return Flow::Next;
        }
        write_command(&mut transaction.frame, &["EXEC"]);
        let route = match transaction.route {
            Some((epoch, route)) if epoch == turn.view.epoch() => Ok(route),
            _ => self.route_of_transaction(turn, &transaction.frame),
        };
        match route {
            Ok(route) => {
                let Some(origin) = self.reserve(place) else {
                    return Flow::Next;
                };
                let sending = Sending {
                    preamble: transaction.commands + 1,
                    ..Sending::first(origin, transaction.effect, turn)
                };
                self.dispatch_frame(turn, sending, route, &transaction.frame);
            }
            Err(text) => self.refuse_now(place, &refusal::aborted(&text)),
        }
        Flow::Next
    }

    /// The one node that owns all keys of a transaction, or any where it has none.
    pub(super) fn route_of_transaction(
        &mut self,
        turn: &Turn,
        frame: &[u8],
    ) -> Result<Route, String> {
        match self.keyed_route(turn, frame)? {
            Some(route) => Ok(route),
            None => self.any_route(turn).ok_or_else(refusal::no_nodes),
        }
    }

    /// The one node that owns all keys of a transaction, and whether any of them is held; `None` where
    /// it has none.
    pub(super) fn keyed_route(&self, turn: &Turn, frame: &[u8]) -> Result<Option<Route>, String> {
        let mut scanner = RequestScanner::default();
        let mut rest = frame;
        let mut found: Option<(Route, Vec<u8>)> = None;
        while !rest.is_empty() {
            let Ok(Scan::Request { consumed, request }) = scanner.scan(&TAKEN, rest) else {
                unreachable!("a transaction is of requests that were scanned before");
            };
            rest = &rest[consumed..];
            let command = turn.table.find(request.arg(0));
            let command = command.and_then(|command| match (command.action, request.get(1)) {
                (Action::Container, Some(name)) => command.subcommand(name),
                _ => Some(command),
            });
            let command = command.ok_or_else(|| refusal::no_table(&turn.view))?;
            if stands_outside(command.action) {
                continue;
            }
            match part(turn, command.action) {
                Part::Anywhere => continue,
                Part::Not(reason) => return Err(refusal::refused(&command.name, reason)),
                Part::Keyed => {}
            }
            let route = self.route_of(turn, command, &request)?;
            let positions = self.key_positions(command, &request)?;
            let key = request.arg(positions[0]);
            found = match found {
                None => Some((route, key.to_vec())),
                Some((first, first_key)) if first.node != route.node => {
                    let name = |node| turn.view.node(node).id.as_str();
                    let one = (first_key.as_slice(), name(first.node));
                    let other = (key, name(route.node));
                    return Err(refusal::transaction_apart(one, other, turn.view.epoch()));
                }
                Some((first, first_key)) => {
                    let hold = first.hold || route.hold;
                    Some((Route { hold, ..first }, first_key))
                }
            };
        }
        Ok(found.map(|(route, _)| route))
    }
}
