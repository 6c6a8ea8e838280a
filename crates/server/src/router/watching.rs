//! `WATCH`, and the `EXEC` that does nothing when a watched key was changed.
//!
//! A node watches for a connection, so the keys are watched over [one of the client's
//! own](super::own_link), and `EXEC` goes over the same; what a client reads between goes the
//! usual way. `WATCH` is answered before anything behind it is looked at: no read is ahead of it.
//!
//! When that connection ends — the node broke it, or a handover began another generation — nobody
//! knows any more whether the keys were changed. `EXEC` then does nothing and says so with a null, as
//! when they were: the client reads again and repeats.

use clockwise_client::commands::{Command, Reason};
use clockwise_client::resp::{Protocol, Request, write_command, write_simple};
use clockwise_cluster::Route;

use super::client::Pause;
use super::own_link::{Ask, Outcome, Watch};
use super::refusal;
use super::serve::Flow;
use super::worker::{Turn, Worker};

impl Worker {
    /// `WATCH key [key …]`
    pub(super) fn watch(
        &mut self,
        turn: &Turn,
        place: usize,
        command: &Command,
        request: &Request<'_>,
    ) -> Flow {
        if !turn.table.has_transactions() {
            if !turn.table.is_complete() && !self.table_is_late(turn) {
                return Flow::Later(Pause::Table);
            }
            self.refuse_now(place, &refusal::refused("watch", Reason::NoTransactions));
            return Flow::Next;
        }
        let outcome = match self.own_outcome(place) {
            Some(outcome) => outcome,
            None => match self.ask_to_watch(turn, place, command, request) {
                Ok(Some(outcome)) => outcome,
                Ok(None) => return Flow::Later(Pause::Barrier),
                Err(text) => Outcome::Failed(text),
            },
        };
        match outcome {
            Outcome::Pending => return Flow::Later(Pause::Own),
            Outcome::Failed(text) => {
                self.finish_own(turn, place);
                self.refuse_now(place, &text);
            }
            Outcome::Answered(answer) => {
                let kept = answer == b"+OK\r\n";
                if let Some(own) = self.clients.own(place)
                    && kept
                {
                    own.watches();
                }
                self.finish_own(turn, place);
                self.answer(place, |out| out.extend_from_slice(&answer));
            }
        }
        Flow::Next
    }

    /// `None` while earlier requests are not answered.
    fn ask_to_watch(
        &mut self,
        turn: &Turn,
        place: usize,
        command: &Command,
        request: &Request<'_>,
    ) -> Result<Option<Outcome>, String> {
        let route = self.route_of(turn, command, request)?;
        let Some(client) = self.clients.get(place) else {
            return Ok(Some(Outcome::Pending));
        };
        if client.transaction.is_some() {
            return Err("ERR WATCH inside MULTI is not allowed".to_owned());
        }
        if let Some(own) = &client.own {
            if own.watch == Watch::Lost {
                // Its EXEC does nothing whatever is watched now.
                return Ok(Some(Outcome::Answered(b"+OK\r\n".to_vec())));
            }
            let node = &turn.view.node(route.node).id;
            if let Some(watched) = own.watched().filter(|watched| watched.id != *node) {
                let (one, other) = (watched.id.as_str(), node.as_str());
                return Err(refusal::watches_elsewhere(one, other, turn.view.epoch()));
            }
        }
        if client.replies.waiting() > 0 {
            return Ok(None);
        }
        let ask = Ask {
            route,
            effect: command.effect,
            preamble: 0,
            reply_ms_max: self.settings.limits.reply_ms_max,
        };
        let write = |out: &mut Vec<u8>| out.extend_from_slice(request.frame());
        Ok(Some(self.ask_own(turn, place, &ask, write)))
    }

    /// `EXEC` of a client that watches keys.
    pub(super) fn exec_watched(&mut self, turn: &Turn, place: usize) -> Flow {
        let outcome = match self.own_outcome(place) {
            Some(outcome) => outcome,
            None => match self.ask_to_execute(turn, place) {
                Some(outcome) => outcome,
                None => return Flow::Later(Pause::Barrier),
            },
        };
        let answered = match outcome {
            Outcome::Pending => return Flow::Later(Pause::Own),
            Outcome::Failed(text) => Err(text),
            Outcome::Answered(answer) => Ok(answer),
        };
        self.finish_own(turn, place);
        self.unwatch(place);
        if let Some(client) = self.clients.get(place) {
            client.transaction = None;
        }
        match answered {
            Ok(answer) => self.answer(place, |out| out.extend_from_slice(&answer)),
            Err(text) => self.refuse_now(place, &text),
        }
        Flow::Next
    }

    /// `None` while earlier requests are not answered.
    fn ask_to_execute(&mut self, turn: &Turn, place: usize) -> Option<Outcome> {
        let pending = Some(Outcome::Pending);
        let Some(client) = self.clients.get(place) else {
            return pending;
        };
        let protocol = client.protocol;
        let Some(own) = client.own.as_ref() else {
            return pending;
        };
        let (watched, waiting) = (own.watched().cloned(), client.replies.waiting());
        let Some(transaction) = client.transaction.as_ref() else {
            return pending;
        };
        let local = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut answer = Vec::new();
            write(&mut answer);
            Some(Outcome::Answered(answer))
        };
        if transaction.is_spoiled() {
            return Some(Outcome::Failed(refusal::SPOILED.to_owned()));
        }
        let Some(watched) = watched else {
            return local(&|out| write_null_array(out, protocol));
        };
        if waiting > 0 {
            return None;
        }
        let (mut frame, preamble) = (transaction.frame().to_vec(), transaction.commands() + 1);
        let effect = transaction.effect();
        write_command(&mut frame, &["EXEC"]);
        // Without keys, even without commands, it is for the node that knows of the watched ones.
        let watched_route = || {
            let node = turn.view.index_of(&watched.id)?;
            Some(Route { node, hold: false })
        };
        let route = match self.keyed_route(turn, &frame) {
            Ok(Some(route)) => route,
            Ok(None) => match watched_route() {
                Some(route) => route,
                None => return local(&|out| write_null_array(out, protocol)),
            },
            Err(text) => return Some(Outcome::Failed(refusal::aborted(&text))),
        };
        let node = &turn.view.node(route.node).id;
        if *node != watched.id {
            let (one, other) = (watched.id.as_str(), node.as_str());
            let text = refusal::watches_elsewhere(one, other, turn.view.epoch());
            return Some(Outcome::Failed(refusal::aborted(&text)));
        }
        let target = self.traffic.target(self.traffic.slot(route.node.get()));
        let own = self
            .clients
            .get(place)
            .and_then(|client| client.own.as_ref());
        if route.hold || !own.is_some_and(|own| own.is_to(target)) {
            // The connection over which the node watched is of an earlier epoch.
            return local(&|out| write_null_array(out, protocol));
        }
        let ask = Ask {
            route,
            effect,
            preamble,
            reply_ms_max: self.settings.limits.reply_ms_max,
        };
        let outcome = self.ask_own(turn, place, &ask, |out| out.extend_from_slice(&frame));
        if let Some(own) = self.clients.own(place) {
            own.executes();
        }
        Some(outcome)
    }

    /// `UNWATCH`
    pub(super) fn unwatch_all(&mut self, place: usize) {
        self.unwatch(place);
        self.answer(place, |out| write_simple(out, "OK"));
    }
}

/// What a server answers to an `EXEC` that did nothing since a key was changed.
fn write_null_array(out: &mut Vec<u8>, protocol: Protocol) {
    out.extend_from_slice(match protocol {
        Protocol::Resp2 => b"*-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    });
}
