//! What happens to a client's own connection: answers, its end, a later view, time.

use std::sync::atomic::Ordering;

use clockwise_client::routing::{Effect, Obstacle};
use mio::event::Event;

use super::{Stage, Watch};
use crate::router::client::Pause;
use crate::router::limits::OWN_LINK_REST_MS;
use crate::router::node_link::{Answered, Login, NodeLink};
use crate::router::nodes::LinkError;
use crate::router::refusal;
use crate::router::worker::{Turn, Worker, place_of};

/// How many reads from it before others get their turn.
const READS_PER_TURN: usize = 8;

impl Worker {
    /// Something happened at the socket.
    pub(in crate::router) fn own_event(&mut self, turn: &Turn, event: &Event) {
        let place = place_of(event.token());
        let own = self
            .clients
            .get(place)
            .and_then(|client| client.own.as_mut());
        let Some(link) = own.and_then(|own| own.link.as_mut()) else {
            return;
        };
        link.peer_done |= event.is_read_closed();
        if (event.is_writable() || event.is_error())
            && let Err(error) = link.now_writable()
        {
            return self.end_own_link(turn, place, &error.into());
        }
        if event.is_readable() || event.is_read_closed() {
            self.own_readable(turn, place);
        }
    }

    /// Reads what the node has sent.
    pub(in crate::router) fn own_readable(&mut self, turn: &Turn, place: usize) {
        let own = self
            .clients
            .get(place)
            .and_then(|client| client.own.as_mut());
        let Some(mut link) = own.and_then(|own| own.link.take()) else {
            return;
        };
        let mut scratch = std::mem::take(&mut self.node_scratch);
        let read = read(&mut link, &mut scratch);
        self.keep_node_scratch(scratch);
        let slot = link.slot;
        let Some(own) = self
            .clients
            .get(place)
            .and_then(|client| client.own.as_mut())
        else {
            return;
        };
        own.link = Some(link);
        match read.news {
            Some(News::Open) => own.stage = Stage::Idle { since: turn.now },
            Some(News::Answer(answer)) => own.stage = Stage::Answered(answer),
            None => {}
        }
        let stale = own.stale;
        let settled = !matches!(own.stage, Stage::Asked { .. } | Stage::Connecting { .. });
        if let Some(error) = read.error {
            if let Some(stats) = self.counters.node(slot.0) {
                stats.errors += u64::from(!settled);
            }
            self.end_own_link(turn, place, &error);
        } else if settled && stale {
            self.close_own_link(place);
        } else if read.more {
            self.ready_own.push(place);
        }
        if settled {
            self.queue(place);
        }
        self.list_client(place);
    }

    /// The connection is over: what was asked gets an answer that says what is known.
    pub(super) fn end_own_link(&mut self, turn: &Turn, place: usize, error: &LinkError) {
        let epoch = turn.view.epoch();
        let Some(own) = self
            .clients
            .get(place)
            .and_then(|client| client.own.as_mut())
        else {
            return;
        };
        let name = own.target.as_ref().map_or("?", |target| target.id.as_str());
        tracing::debug!(node = name, %error, "a client's own connection ended");
        let lost = own.link.as_ref().and_then(|link| link.lost().next());
        let text = match own.stage {
            Stage::Connecting { .. } => {
                let obstacle = match error {
                    LinkError::Denied => Obstacle::Denied,
                    _ => Obstacle::Connecting,
                };
                Some(refusal::not_sent(obstacle, name, epoch))
            }
            Stage::Asked { .. } => Some(match lost {
                Some(lost) if lost.sent && lost.request.effect == Effect::Write => {
                    refusal::unknown(name, epoch)
                }
                _ => refusal::lost_read(name, epoch),
            }),
            _ => None,
        };
        if let Some(text) = text {
            own.stage = Stage::Failed(text);
            self.queue(place);
        }
        self.close_own_link(place);
    }

    /// Closes the connection, if there is one; what was watched over it is lost.
    pub(in crate::router) fn close_own_link(&mut self, place: usize) {
        let Some(own) = self
            .clients
            .get(place)
            .and_then(|client| client.own.as_mut())
        else {
            return;
        };
        if own.watch == Watch::Kept {
            own.watch = Watch::Lost;
        }
        own.stale = false;
        if std::mem::take(&mut own.counted) {
            self.shared.own_links.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(link) = own.link.take() {
            link.close(self.poll.registry());
        }
    }

    /// A later view is in force: connections of earlier generations end, and what waited may go on.
    pub(in crate::router) fn review_own_links(&mut self) {
        let places: Vec<usize> = self.own_places.iter().copied().collect();
        for place in places {
            let Some(client) = self.clients.get(place) else {
                continue;
            };
            let waits = client.pause == Some(Pause::Own);
            let Some(own) = client.own.as_mut() else {
                continue;
            };
            let index = own
                .target
                .as_ref()
                .and_then(|target| self.view.index_of(&target.id));
            let current =
                index.and_then(|index| self.traffic.target(self.traffic.slot(index.get())));
            let same = current.is_some() && current == own.target.as_ref();
            match own.stage {
                Stage::Asked { .. } => own.stale = !same,
                Stage::Connecting { .. } if !same => {
                    own.stage = Stage::Idle { since: self.now };
                    self.close_own_link(place);
                    self.queue(place);
                }
                Stage::Connecting { .. } => {}
                _ => {
                    if !same {
                        self.close_own_link(place);
                    }
                    if waits {
                        self.queue(place);
                    }
                }
            }
        }
    }

    /// Lets time pass: what takes too long ends, and what nobody needs.
    pub(in crate::router) fn tick_own_links(&mut self, turn: &Turn) {
        let places: Vec<usize> = self.own_places.iter().copied().collect();
        let (connect_ms_max, hold_ms_max) = (
            self.shared.limits.traffic.connect_ms_max,
            self.shared.limits.traffic.hold.wait_ms_max,
        );
        for place in places {
            let Some(client) = self.clients.get(place) else {
                self.own_places.remove(&place);
                continue;
            };
            let waits = client.pause == Some(Pause::Own);
            let Some(own) = client.own.as_mut() else {
                self.own_places.remove(&place);
                continue;
            };
            match own.stage {
                Stage::Connecting { since } if turn.now.since(since) >= connect_ms_max => {
                    self.end_own_link(turn, place, &LinkError::Late(connect_ms_max));
                }
                Stage::Asked { until } if until <= turn.now => {
                    let ms_max = self.shared.limits.reply_ms_max;
                    self.end_own_link(turn, place, &LinkError::Late(ms_max));
                }
                Stage::Idle { .. } if waits => {
                    let since = own.waiting_since.unwrap_or(turn.now);
                    if turn.now.since(since) >= hold_ms_max {
                        self.queue(place);
                    }
                }
                Stage::Idle { since }
                    if own.watch == Watch::Nothing && turn.now.since(since) >= OWN_LINK_REST_MS =>
                {
                    self.close_own_link(place);
                    if let Some(client) = self.clients.get(place) {
                        client.own = None;
                    }
                    self.own_places.remove(&place);
                }
                _ => {}
            }
        }
    }

    /// Whether time passing can end anything of them.
    pub(in crate::router) fn own_links_need_ticks(&self) -> bool {
        !self.own_places.is_empty()
    }
}

enum News {
    /// The node has let us in.
    Open,
    Answer(Vec<u8>),
}

/// What came, in this order.
#[derive(Default)]
struct Read {
    news: Option<News>,
    /// There may be more to read.
    more: bool,
    /// The connection is over.
    error: Option<LinkError>,
}

/// Reads what there is. An answer counts also when the connection ends right behind it.
fn read(link: &mut NodeLink, scratch: &mut Vec<u8>) -> Read {
    let mut read = Read::default();
    read.error = read_into(&mut read, link, scratch).err();
    read
}

fn read_into(read: &mut Read, link: &mut NodeLink, scratch: &mut Vec<u8>) -> Result<(), LinkError> {
    for _ in 0..READS_PER_TURN {
        let Some(received) = link.receive(scratch)? else {
            return Ok(());
        };
        let mut at = 0;
        while let Some(reply) = link.next_reply(&scratch[at..])? {
            let bytes = &scratch[at..at + reply.bytes];
            at += reply.bytes;
            if reply.is_push() {
                continue;
            }
            if !link.is_open() {
                match link.log_in(bytes) {
                    Login::Done => read.news = Some(News::Open),
                    Login::Denied => return Err(LinkError::Denied),
                    Login::Refused(words) => return Err(LinkError::Refused(words)),
                }
            } else if let Answered::Whole { words, .. } = link.answered(bytes)? {
                read.news = Some(News::Answer(words.unwrap_or_else(|| bytes.to_vec())));
            }
        }
        link.keep(scratch, at);
        if !received.more {
            return Ok(());
        }
    }
    read.more = true;
    Ok(())
}
