//! What happens to a client's own connection: answers, its end, a later view, time.

use std::sync::atomic::Ordering;

use clockwise_client::resp::{Protocol, write_command};
use clockwise_client::routing::{Effect, Millis, Obstacle, Target};
use mio::event::Event;

use super::{OwnLink, Stage, Watch};
use crate::router::client::Pause;
use crate::router::limits::OWN_LINK_REST_MS;
use crate::router::node_link::NodeLink;
use crate::router::nodes::{Heard, LinkError, hear};
use crate::router::refusal;
use crate::router::worker::{Turn, Worker, place_of};

/// How many reads from it before others get their turn.
const READS_PER_TURN: usize = 8;

impl Worker {
    /// Something happened at the socket.
    pub(in crate::router) fn own_event(&mut self, turn: &Turn, event: &Event) {
        let place = place_of(event.token());
        let own = self.clients.own(place);
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
        let own = self.clients.own(place);
        let Some(mut link) = own.and_then(|own| own.link.take()) else {
            return;
        };
        let mut scratch = std::mem::take(&mut self.node_scratch);
        let read = read(&mut link, &mut scratch, turn.now);
        self.keep_node_scratch(scratch);
        let (slot, reply_ms_max) = (link.slot, self.settings.limits.reply_ms_max);
        let Some(own) = self.clients.own(place) else {
            return;
        };
        own.link = Some(link);
        if let Stage::Asked { until, at_last } = &mut own.stage
            && read.heard
        {
            *until = turn.now.after(reply_ms_max).max(*until).min(*at_last);
        }
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
        let Some(own) = self.clients.own(place) else {
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
        let Some(own) = self.clients.own(place) else {
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
    pub(in crate::router) fn review_own_links(&mut self, turn: &Turn) {
        let places: Vec<usize> = self.own_places.iter().copied().collect();
        let mut blocked = Vec::new();
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
                Stage::Asked { .. } => {
                    own.stale = !same;
                    if let Some((index, current)) = index.zip(current)
                        && let Some((protocol, id)) = own.blocked_at(current)
                    {
                        blocked.push((index, protocol, id));
                    }
                }
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
        for (node, protocol, id) in blocked {
            let mut frame = Vec::new();
            write_command(&mut frame, &["CLIENT", "UNBLOCK", &id.to_string()]);
            self.dispatch_unasked(turn, (node, protocol), &frame);
        }
    }

    /// Lets time pass: what takes too long ends, and what nobody needs.
    pub(in crate::router) fn tick_own_links(&mut self, turn: &Turn) {
        let places: Vec<usize> = self.own_places.iter().copied().collect();
        let (connect_ms_max, hold_ms_max) = (
            self.settings.limits.traffic.connect_ms_max,
            self.settings.limits.traffic.hold.wait_ms_max,
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
                Stage::Asked { until, .. } if until <= turn.now => {
                    let ms_max = self.settings.limits.reply_ms_max;
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

impl OwnLink {
    /// By what number the node at this target knows a connection of an earlier generation over which a
    /// client waits.
    fn blocked_at(&self, target: &Target) -> Option<(Protocol, i64)> {
        let same_server = self.target.as_ref()?.address == target.address;
        let link = self.link.as_ref()?;
        let blocked = self.stale && same_server && self.errand.is_some();
        blocked.then_some((link.protocol, link.server_id?))
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
    /// Bytes came.
    heard: bool,
    /// There may be more to read.
    more: bool,
    /// The connection is over.
    error: Option<LinkError>,
}

/// Reads what there is. An answer counts also when the connection ends right behind it.
fn read(link: &mut NodeLink, scratch: &mut Vec<u8>, now: Millis) -> Read {
    let mut read = Read::default();
    read.error = read_into(&mut read, link, scratch, now).err();
    read
}

fn read_into(
    read: &mut Read,
    link: &mut NodeLink,
    scratch: &mut Vec<u8>,
    now: Millis,
) -> Result<(), LinkError> {
    for _ in 0..READS_PER_TURN {
        let Some(received) = link.receive(scratch, now)? else {
            return Ok(());
        };
        read.heard = true;
        let mut at = 0;
        while let Some(heard) = hear(link, scratch, &mut at)? {
            read.news = Some(match heard {
                Heard::Open => News::Open,
                Heard::Answer { reply, words, .. } => {
                    News::Answer(words.unwrap_or_else(|| reply.to_vec()))
                }
            });
        }
        link.keep(scratch, at);
        if !received.more {
            return Ok(());
        }
    }
    read.more = true;
    Ok(())
}
