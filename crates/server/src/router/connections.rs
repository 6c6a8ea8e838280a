//! The worker's side of its clients: accepted, read from, written to, let go.

use std::io;
use std::sync::atomic::Ordering;

use clockwise_client::routing::Millis;
use mio::event::Event;

use super::client::{Client, Pause, Phase, Scanner};
use super::limits::{ACCEPTS_PER_TURN, MEMORY_SHARE_BYTES, SWEEP_MS};
use super::refusal;
use super::worker::{Turn, Worker, client_token};

impl Worker {
    /// This client is to be looked at in the next turn, whatever its socket says.
    pub(super) fn queue(&mut self, place: usize) {
        let Some(client) = self.clients.get(place) else {
            return;
        };
        if !client.queued {
            client.queued = true;
            self.ready_clients.push(place);
        }
    }

    /// A client's socket can be read or written, or is at its end.
    pub(super) fn client_event(&mut self, turn: &Turn, place: usize, event: &Event) {
        let Some(client) = self.clients.get(place) else {
            return;
        };
        if event.is_error() {
            return self.remove(place);
        }
        if event.is_writable() {
            client.now_writable();
            self.list_client(place);
        }
        let Some(client) = self.clients.get(place) else {
            return;
        };
        client.peer_done |= event.is_read_closed();
        let waits = client.own.as_ref().is_some_and(|own| own.errand.is_some());
        if event.is_read_closed() && waits {
            // As with servers: whoever has closed its half waits for nothing any more.
            return self.remove(place);
        }
        if event.is_readable() || event.is_read_closed() {
            client.readable = true;
            if client.pause.is_none() {
                self.work(turn, place);
            }
        }
    }

    /// Serves what a client has sent, as far as it may go now.
    pub(super) fn work(&mut self, turn: &Turn, place: usize) {
        let Some(client) = self.clients.get(place) else {
            return;
        };
        if matches!(client.phase, Phase::Lingering { .. }) {
            let mut scratch = std::mem::take(&mut self.client_scratch);
            let stays = client.drop_input(&mut scratch, turn.now);
            self.client_scratch = scratch;
            if !stays {
                self.remove(place);
            }
            return;
        }
        if client.pause.take().is_some() {
            self.serve_input(turn, place);
        }
        let Some(client) = self.clients.get(place) else {
            return;
        };
        if client.readable
            && client.pause.is_none()
            && matches!(client.phase, Phase::LoggingIn | Phase::Serving)
        {
            if !client.may_go_on(&self.settings.limits) {
                client.pause = Some(Pause::Window);
            } else if self.read(turn, place).is_err() {
                return self.remove(place);
            }
        }
        let Some(client) = self.clients.get(place) else {
            return;
        };
        if client.at_end
            && client.pause.is_none()
            && matches!(client.phase, Phase::LoggingIn | Phase::Serving)
        {
            client.phase = Phase::Leaving;
            self.list_client(place);
        } else if client.readable && client.pause.is_none() && client.phase != Phase::Leaving {
            self.queue(place);
        }
    }

    /// Reads once from a client and serves what came.
    fn read(&mut self, turn: &Turn, place: usize) -> io::Result<()> {
        let Some(client) = self.clients.get(place) else {
            return Ok(());
        };
        let mut scratch = std::mem::take(&mut self.client_scratch);
        let read = client.read(&mut scratch);
        let fresh = client.input.is_empty();
        if let Ok(1..) = read {
            client.active_at = turn.now;
            if fresh {
                let served = self.serve(turn, place, &scratch);
                if let Some(client) = self.clients.get(place) {
                    client.input.extend_from_slice(&scratch[served..]);
                    client.note_progress(served > 0, turn.now);
                }
            } else {
                self.serve_input(turn, place);
            }
        }
        self.client_scratch = scratch;
        if self
            .clients
            .get(place)
            .is_some_and(|client| client.input.len() > MEMORY_SHARE_BYTES)
        {
            self.list_client(place);
        }
        read.map(|_| ())
    }

    /// Serves what is left of what a client sent before.
    fn serve_input(&mut self, turn: &Turn, place: usize) {
        let Some(client) = self.clients.get(place) else {
            return;
        };
        let input = std::mem::take(&mut client.input);
        let served = self.serve(turn, place, &input);
        if let Some(client) = self.clients.get(place) {
            client.input = input;
            client.consume(served);
            client.note_progress(served > 0, turn.now);
        }
    }

    /// Something is to be written to this client at the end of the turn.
    pub(super) fn list_client(&mut self, place: usize) {
        let Some(client) = self.clients.get(place) else {
            return;
        };
        if !client.listed {
            client.listed = true;
            self.unflushed_clients.push(place);
        }
    }

    /// Writes to a client, and sees whether it may go on, must go, or is done.
    pub(super) fn flush_client(&mut self, place: usize) {
        let Some(client) = self.clients.get(place) else {
            return;
        };
        client.listed = false;
        if client.flush(self.now).is_err() {
            return self.remove(place);
        }
        if self.keeps_too_much(place) {
            self.counters.clients_dropped += 1;
            return self.remove(place);
        }
        let limits = &self.settings.limits;
        let Some(client) = self.clients.get(place) else {
            return;
        };
        let again = match client.pause {
            Some(Pause::Window) => client.has_room(limits),
            Some(Pause::Barrier) => client.replies.waiting() == 0,
            Some(Pause::Table | Pause::Own) | None => false,
        };
        if again {
            return self.queue(place);
        }
        if client.phase == Phase::Leaving && client.is_settled() {
            let done = client.at_end || client.linger(self.now).is_err();
            if done {
                self.remove(place);
            } else {
                self.queue(place);
            }
        }
    }

    /// Counts what is kept for a client, and says whether that is more than its share when the worker
    /// has no more. (What one client may have is kept by [`deliver`](Self::deliver).)
    fn keeps_too_much(&mut self, place: usize) -> bool {
        let Some(client) = self.clients.get(place) else {
            return false;
        };
        let limits = &self.settings.limits;
        let unread = client.replies.kept_bytes();
        let transaction = client.transaction.as_ref();
        let kept = unread
            + client.replies.gather_frame_bytes()
            + client.input.capacity()
            + transaction.map_or(0, |transaction| transaction.bytes())
            + client.own.as_ref().map_or(0, |own| own.bytes());
        self.kept_bytes = self.kept_bytes - client.counted_bytes + kept;
        client.counted_bytes = kept;
        let readable = client.replies.unwritten().len();
        self.unread_bytes = self.unread_bytes - client.counted_unread + readable;
        client.counted_unread = readable;
        let too_much = self.kept_bytes > limits.memory_bytes_max && kept > MEMORY_SHARE_BYTES;
        if too_much {
            let (client, all) = (client.addr(), self.kept_bytes);
            tracing::info!(
                client,
                unread,
                kept,
                all,
                "dropped: too much is kept for it"
            );
        }
        too_much
    }

    /// Closes a client's connection. What it has in flight is answered into nothing.
    pub(super) fn remove(&mut self, place: usize) {
        self.close_own_link(place);
        self.own_places.remove(&place);
        if let Some(client) = self.clients.remove(place) {
            self.kept_bytes -= client.counted_bytes;
            self.unread_bytes -= client.counted_unread;
            client.close(self.poll.registry());
            self.shared.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether connections may wait to be accepted.
    pub(super) fn accepts_more(&self) -> bool {
        self.acceptable && self.listener.is_some()
    }

    /// Takes up new connections, some at a time.
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            if !self.acceptable {
                return;
            }
            let Some(listener) = &self.listener else {
                return;
            };
            match listener.accept() {
                Ok((stream, _)) => self.admit_client(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.acceptable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Out of files, mostly. The next tick tries again.
                    tracing::warn!(%error, worker = self.number, "a connection could not be accepted");
                    self.acceptable = false;
                    return;
                }
            }
        }
    }

    /// Makes a connection a client, or tells it that there are too many.
    fn admit_client(&mut self, stream: mio::net::TcpStream) {
        let login = self.settings.secrets.password.is_some();
        let place = self.clients.next_place();
        let token = client_token(place);
        let client = Client::new(
            stream,
            self.next_serial,
            Scanner::of(self.shared.protocol),
            login,
            self.now,
            (self.poll.registry(), token),
        );
        let mut client = match client {
            Ok(client) => client,
            Err(error) => {
                tracing::debug!(%error, "a client left before it was served");
                return;
            }
        };
        self.next_serial = self.next_serial.wrapping_add(1);
        let others = self.shared.clients.fetch_add(1, Ordering::Relaxed);
        if others >= self.settings.limits.clients_max {
            self.counters.clients_refused += 1;
            let line = refusal::line(self.shared.protocol, "ERR max number of clients reached");
            client
                .replies
                .answer_now(|out| out.extend_from_slice(&line));
            client.phase = Phase::Leaving;
        }
        self.clients.insert(client);
        self.list_client(place);
        self.queue(place);
    }

    /// Accepts nobody any more and lets every client go as soon as it has its answers.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        if let Some(mut listener) = self.listener.take()
            && let Err(error) = self.poll.registry().deregister(&mut listener)
        {
            tracing::debug!(%error, "the listener was not registered");
        }
        for place in self.clients.taken() {
            let Some(client) = self.clients.get(place) else {
                continue;
            };
            // What is under way over a connection of its own is answered first.
            let asking = client.pause == Some(Pause::Own);
            if matches!(client.phase, Phase::LoggingIn | Phase::Serving) && !asking {
                client.phase = Phase::Leaving;
            }
            self.list_client(place);
        }
        self.next_tick = self.now;
    }

    /// Once a second: clients that take too long, memory that is not needed, rates.
    pub(super) fn sweep(&mut self, turn: &Turn) {
        for place in self.clients.taken() {
            let Some(client) = self.clients.get(place) else {
                continue;
            };
            match client.overdue(&self.settings.limits, self.now) {
                None if client.has_lingered(self.now) => self.remove(place),
                None => {
                    if self.now.since(client.active_at) >= SWEEP_MS {
                        client.shrink();
                    }
                }
                Some(complaint) => {
                    tracing::info!(client = %client.addr(), complaint, "dropped");
                    self.counters.clients_dropped += 1;
                    let text = format!("ERR clockwise: {complaint}");
                    let line = refusal::line(self.shared.protocol, &text);
                    client
                        .replies
                        .answer_now(|out| out.extend_from_slice(&line));
                    // One attempt to tell it; it is not waited for.
                    if client.flush(turn.now).is_err()
                        || client.unread_since.is_some()
                        || client.linger(turn.now).is_err()
                    {
                        self.remove(place);
                    }
                }
            }
        }
        let since_last = SWEEP_MS + self.now.since(self.next_sweep);
        self.counters.end_second(if self.next_sweep == Millis(0) {
            SWEEP_MS
        } else {
            since_last
        });
        self.next_sweep = self.now.after(SWEEP_MS);
    }
}
