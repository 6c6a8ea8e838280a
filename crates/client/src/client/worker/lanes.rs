//! The worker's side of the nodes: connections made and ended, replies read, requests sent again.

use std::io;
use std::task::Context;

use clockwise_placement::NodeId;
use tokio::net::TcpStream;

use super::{Lane, Message, PROTOCOL, Parked, Worker};
use crate::client::call::Answer;
use crate::client::error::Error;
use crate::client::link::{self, Link, LinkError};
use crate::routing::{
    Answered, Command, ConnectFailure, Conversation, Flight, Front, Greeting, Login, Lost, Millis,
    NodeSlot, Verdict, Waiting, judge,
};

/// Reads from one node before everything else gets its turn.
const READS_PER_TURN: usize = 8;
/// At least between two looks at the record because a node does not let us in.
const RECORD_LOOK_MS: u64 = 100;

impl Worker {
    /// Does with the sockets what the core asks for.
    pub(super) fn obey(&mut self) {
        loop {
            let commands = self.traffic.take_commands();
            if commands.is_empty() {
                return;
            }
            for command in commands {
                match command {
                    Command::Connect(slot, _) => self.connect(slot),
                    Command::Close(slot, _) => {
                        if let Some(Lane::Connecting { task, .. }) = self.lanes.remove(&slot) {
                            task.abort();
                        }
                    }
                }
            }
        }
    }

    fn connect(&mut self, slot: NodeSlot) {
        let Some(target) = self.traffic.target(slot) else {
            return;
        };
        self.attempts += 1;
        let (attempt, address) = (self.attempts, target.address.clone());
        let sender = self.setup.sender.clone();
        let task = self.tasks.spawn(async move {
            let outcome = link::open(address.as_str()).await;
            if let Some(sender) = sender.upgrade() {
                let message = Message::Connected {
                    slot,
                    attempt,
                    outcome,
                };
                // Without a worker nobody needs the connection.
                let _unheard = sender.send(message).await;
            }
        });
        self.lanes.insert(slot, Lane::Connecting { attempt, task });
    }

    pub(super) fn connected(
        &mut self,
        slot: NodeSlot,
        attempt: u64,
        outcome: io::Result<TcpStream>,
    ) {
        match self.lanes.get(&slot) {
            Some(Lane::Connecting {
                attempt: awaited, ..
            }) if *awaited == attempt => {}
            // It was given up meanwhile.
            _ => return,
        }
        match (outcome, self.traffic.target(slot)) {
            (Ok(stream), Some(target)) => {
                let credential = self.setup.access.credential(target);
                let greeting = Greeting::Hello(PROTOCOL, credential.as_ref());
                let said = Conversation::new(greeting, self.setup.conversation);
                self.lanes
                    .insert(slot, Lane::Up(Box::new(Link::new(stream, said))));
                self.unflushed.push(slot);
            }
            (Err(error), _) => self.connect_failed(slot, &error.into()),
            (Ok(_), None) => {
                self.lanes.remove(&slot);
            }
        }
    }

    fn connect_failed(&mut self, slot: NodeSlot, error: &LinkError) {
        self.lanes.remove(&slot);
        let failure = match error {
            LinkError::Denied => ConnectFailure::Denied,
            _ => ConnectFailure::Unreachable,
        };
        if failure == ConnectFailure::Denied {
            self.look_at_record();
        }
        let known = self.traffic.is_down(slot);
        let refused = self
            .traffic
            .connect_failed(slot, PROTOCOL, failure, self.now);
        if let Some(target) = self.traffic.target(slot)
            && !known
            && self.traffic.is_down(slot)
        {
            tracing::warn!(node = %target.id, address = %target.address, %error, "a node is down");
        }
        self.refuse_all(refused);
    }

    /// A node does not know the user of our epoch: there may be a later one that we have not heard of.
    fn look_at_record(&mut self) {
        let recent = |looked: Millis| self.now.since(looked) < RECORD_LOOK_MS;
        let Some(store) = self.setup.store.clone() else {
            return;
        };
        if self.record_looked_at.is_some_and(recent) {
            return;
        }
        self.record_looked_at = Some(self.now);
        self.tasks.spawn(async move {
            // What is read is published to those who watch; what is wrong is the store's to tell.
            let _published = store.read().await;
        });
    }

    pub(super) fn read_links(&mut self, context: &mut Context<'_>) {
        let slots: Vec<NodeSlot> = self.lanes.keys().copied().collect();
        for slot in slots {
            if let Err(error) = self.read_link(slot, context) {
                self.end_link(slot, &error);
            }
            self.obey();
        }
    }

    fn read_link(&mut self, slot: NodeSlot, context: &mut Context<'_>) -> Result<(), LinkError> {
        for _ in 0..READS_PER_TURN {
            // An answer may have been the last of an earlier generation: then it is closed by now.
            let Some(Lane::Up(link)) = self.lanes.get_mut(&slot) else {
                return Ok(());
            };
            if !link.poll_read(context)? {
                return Ok(());
            }
            link.said.heard(self.now);
            self.take_replies(slot)?;
            self.obey();
        }
        context.waker().wake_by_ref();
        Ok(())
    }

    fn take_replies(&mut self, slot: NodeSlot) -> Result<(), LinkError> {
        let Some(Lane::Up(link)) = self.lanes.get_mut(&slot) else {
            return Ok(());
        };
        let input = std::mem::take(&mut link.input);
        let mut at = 0;
        let taken = self.take_each(slot, &input, &mut at);
        if let Some(Lane::Up(link)) = self.lanes.get_mut(&slot) {
            link.input = input;
            link.taken(at);
        }
        taken
    }

    fn take_each(&mut self, slot: NodeSlot, input: &[u8], at: &mut usize) -> Result<(), LinkError> {
        loop {
            let Some(Lane::Up(link)) = self.lanes.get_mut(&slot) else {
                return Ok(());
            };
            let (reply, whole, answered) = match link.said.front(&input[*at..])? {
                Front::Nothing => return Ok(()),
                Front::Passed(bytes) => {
                    *at += bytes;
                    continue;
                }
                Front::Reply(reply) if !link.said.is_open() => {
                    *at += reply.len();
                    match link.said.log_in(reply).0 {
                        Login::Done => self.opened(slot),
                        Login::Denied => return Err(LinkError::Denied),
                        Login::Refused(words) => return Err(LinkError::Refused(words)),
                    }
                    continue;
                }
                Front::Reply(reply) => {
                    *at += reply.len();
                    (reply, None, link.said.answered(reply)?)
                }
                Front::TooLong { rest, whole } => {
                    *at += rest;
                    (&[][..], Some(whole), link.said.answered_too_long(whole)?)
                }
            };
            let Answered::Whole { request, .. } = answered else {
                continue;
            };
            let epoch = self.view.epoch();
            let from = || Some((self.traffic.target(slot)?.id.clone(), epoch));
            let outcome = match whole {
                Some(bytes) => Err(Error::AnswerTooLarge {
                    bytes,
                    limit: self.setup.conversation.reply_bytes_max,
                    effect: request.effect,
                }),
                None => Ok(Answer {
                    from: is_error(reply).then(from).flatten(),
                    bytes: reply.into(),
                }),
            };
            if let Some(call) = self.calls.remove(&request.origin) {
                call.answer(outcome);
            }
            self.traffic.answered(slot, PROTOCOL, self.now);
            // It may have to close now, before anything else is sent over it.
            self.obey();
        }
    }

    fn opened(&mut self, slot: NodeSlot) {
        if let Some(target) = self.traffic.target(slot)
            && self.traffic.is_down(slot)
        {
            tracing::info!(node = %target.id, "a node is back");
        }
        for waiting in self.traffic.connected(slot, PROTOCOL) {
            self.send(slot, waiting.request);
        }
    }

    /// A connection or the attempt at one is over: its requests are sent again or answered with what is
    /// known of them.
    pub(super) fn end_link(&mut self, slot: NodeSlot, error: &LinkError) {
        let link = match self.lanes.remove(&slot) {
            Some(Lane::Up(link)) => link,
            Some(connecting) => {
                self.lanes.insert(slot, connecting);
                return;
            }
            None => return,
        };
        if !link.said.is_open() {
            return self.connect_failed(slot, error);
        }
        let lost: Vec<Lost<u64>> = link.said.lost().collect();
        let node = self.traffic.target(slot).map(|target| target.id.clone());
        let epoch = self.view.epoch();
        let name = node.as_ref().map_or("?", NodeId::as_str);
        tracing::warn!(node = name, %error, in_flight = lost.len(), %epoch, "a node connection ended");
        let refused = self.traffic.broken(slot, PROTOCOL, self.now);
        self.refuse_all(refused);
        // Calls have no order among each other: each is a caller of its own, and what is repeated is
        // routed anew.
        let flights: Vec<Flight> = lost.iter().map(flight).collect();
        let verdicts = judge(&flights, |_| true);
        let count = verdicts
            .iter()
            .filter(|verdict| **verdict == Verdict::Retry);
        let granted = self.traffic.grants_retries(count.count(), self.next_call);
        for (index, (lost, verdict)) in lost.iter().zip(verdicts).enumerate() {
            let Some(mut call) = self.calls.remove(&lost.request.origin) else {
                continue;
            };
            let known = node.clone().zip(Some(epoch));
            match (verdict, known) {
                (Verdict::Retry, _) if granted => {
                    call.retries += 1;
                    call.progress.take_back();
                    let frame: Box<[u8]> = link.said.frame(index).into();
                    self.dispatch(Waiting {
                        bytes: frame.len(),
                        since: self.now,
                        request: Parked { call, frame },
                    });
                }
                (Verdict::Unknown, Some((node, epoch))) => {
                    call.answer(Err(Error::Unknown { node, epoch }));
                }
                (Verdict::Retry | Verdict::Refuse, Some((node, epoch))) => {
                    call.answer(Err(Error::Lost { node, epoch }));
                }
                // A slot keeps its target while something is in flight on it.
                (_, None) => call.answer(Err(Error::Ended { sent: lost.sent })),
            }
        }
    }

    pub(super) fn flush(&mut self, context: &mut Context<'_>) {
        self.obey();
        // The window may have moved on, or a socket that was full takes more.
        for (slot, lane) in &self.lanes {
            if matches!(lane, Lane::Up(link) if !link.said.unsent().is_empty()) {
                self.unflushed.push(*slot);
            }
        }
        while let Some(slot) = self.unflushed.pop() {
            let Some(Lane::Up(link)) = self.lanes.get_mut(&slot) else {
                continue;
            };
            if let Err(error) = link.poll_flush(context) {
                self.end_link(slot, &error.into());
                self.obey();
            }
        }
    }
}

fn flight(lost: &Lost<u64>) -> Flight {
    Flight {
        caller: lost.request.origin,
        effect: lost.request.effect,
        sent: lost.sent,
        retries: lost.request.retries,
    }
}

/// Whether a node answers with an error; attributes in front of one are not sent for errors.
fn is_error(reply: &[u8]) -> bool {
    matches!(reply.first(), Some(b'-' | b'!'))
}
