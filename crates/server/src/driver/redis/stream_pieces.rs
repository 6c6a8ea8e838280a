//! Ranges of a stream as pieces: written down, read back, and built again at the target.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::frame::Pipeline;
use super::streams::{Delivery, Entry, EntryId, Group, Head, Range};

/// What each part of a written range begins with.
mod mark {
    pub(super) const LEADS: &[u8] = b"L";
    pub(super) const GROUP: &[u8] = b"G";
    pub(super) const ENTRY: &[u8] = b"E";
    pub(super) const DELIVERY: &[u8] = b"D";
    pub(super) const HEAD: &[u8] = b"H";
}

/// A range as a flat list of strings.
pub(super) fn write_down(range: &Range) -> Vec<Bytes> {
    let mut out: Vec<Bytes> = Vec::new();
    let text = |text: String| Bytes::from(text);
    if range.leads {
        out.push(mark::LEADS.into());
    }
    for group in &range.groups {
        let entries_read = group
            .entries_read
            .map_or_else(String::new, |count| count.to_string());
        out.extend([
            mark::GROUP.into(),
            group.name.clone(),
            text(group.last_id.to_string()),
            text(entries_read),
        ]);
        out.push(text(group.consumers.len().to_string()));
        out.extend(group.consumers.iter().cloned());
    }
    for entry in &range.entries {
        out.extend([
            mark::ENTRY.into(),
            text(entry.id.to_string()),
            text(entry.fields.len().to_string()),
        ]);
        out.extend(entry.fields.iter().cloned());
    }
    for delivery in &range.deliveries {
        out.extend([
            mark::DELIVERY.into(),
            delivery.group.clone(),
            text(delivery.id.to_string()),
        ]);
        out.extend([
            delivery.consumer.clone(),
            text(delivery.at_ms.to_string()),
            text(delivery.times.to_string()),
        ]);
    }
    if let Some(head) = &range.head {
        out.extend([
            mark::HEAD.into(),
            text(head.last_id.to_string()),
            text(head.max_deleted_id.to_string()),
        ]);
        out.push(text(head.entries_added.to_string()));
    }
    out
}

/// What [`write_down`] made; `None` for anything else.
pub(super) fn read_back(strings: &[&[u8]]) -> Option<Range> {
    let mut range = Range::default();
    let mut rest = Strings(strings);
    while let Some(part) = rest.take() {
        match part {
            mark::LEADS => range.leads = true,
            mark::GROUP => range.groups.push(Group {
                name: rest.bytes()?,
                last_id: rest.id()?,
                entries_read: rest.number_or_none()?,
                consumers: rest.list()?,
            }),
            mark::ENTRY => range.entries.push(Entry {
                id: rest.id()?,
                fields: rest.list()?,
            }),
            mark::DELIVERY => range.deliveries.push(Delivery {
                group: rest.bytes()?,
                id: rest.id()?,
                consumer: rest.bytes()?,
                at_ms: rest.number()?,
                times: rest.number()?,
            }),
            mark::HEAD => {
                let (last_id, max_deleted_id) = (rest.id()?, rest.id()?);
                range.head = Some(Head {
                    last_id,
                    max_deleted_id,
                    entries_added: rest.number()?,
                });
            }
            _ => return None,
        }
    }
    Some(range)
}

/// Strings still to be read.
struct Strings<'a>(&'a [&'a [u8]]);

impl<'a> Strings<'a> {
    fn take(&mut self) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn bytes(&mut self) -> Option<Bytes> {
        self.take().map(Bytes::copy_from_slice)
    }

    fn number(&mut self) -> Option<u64> {
        number(self.take()?)
    }

    /// A number, or an empty string for none.
    fn number_or_none(&mut self) -> Option<Option<u64>> {
        match self.take()? {
            b"" => Some(None),
            text => number(text).map(Some),
        }
    }

    fn id(&mut self) -> Option<EntryId> {
        EntryId::parse(std::str::from_utf8(self.take()?).ok()?)
    }

    fn list(&mut self) -> Option<Vec<Bytes>> {
        let count = usize::try_from(self.number()?).ok()?;
        let (list, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(
            list.iter()
                .map(|bytes| Bytes::copy_from_slice(bytes))
                .collect(),
        )
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Adds the commands that append a range to the staging key; the first one makes the stream.
pub(super) fn push_write(pipeline: &mut Pipeline, staging: &[u8], range: &Range, first: bool) {
    if first {
        push_new_stream(pipeline, staging, &range.groups);
    }
    let kept: BTreeSet<EntryId> = range.entries.iter().map(|entry| entry.id).collect();
    let lost: BTreeSet<EntryId> = range
        .deliveries
        .iter()
        .map(|delivery| delivery.id)
        .filter(|id| !kept.contains(id))
        .collect();
    // Before the first entry only trimming takes entries away, and it leaves no trace.
    let trimmed = |id: &EntryId| range.leads && kept.first().is_none_or(|first| id < first);
    let (trimmed, deleted): (BTreeSet<EntryId>, BTreeSet<EntryId>) =
        lost.into_iter().partition(trimmed);

    for id in &trimmed {
        push_stand_in(pipeline, staging, *id);
    }
    push_deliveries(pipeline, staging, range, |of| trimmed.contains(&of.id));
    if !trimmed.is_empty() {
        pipeline.push(&[b"XTRIM", staging, b"MAXLEN", b"0"]);
    }

    let mut stand_ins = deleted.iter().peekable();
    for entry in &range.entries {
        while let Some(id) = stand_ins.next_if(|id| **id < entry.id) {
            push_stand_in(pipeline, staging, *id);
        }
        push_entry(pipeline, staging, entry);
    }
    for id in stand_ins {
        push_stand_in(pipeline, staging, *id);
    }
    push_deliveries(pipeline, staging, range, |of| !trimmed.contains(&of.id));
    for id in &deleted {
        pipeline.push(&[b"XDEL", staging, id.to_string().as_bytes()]);
    }
    if let Some(head) = &range.head {
        push_head(pipeline, staging, head);
        for group in &range.groups {
            push_position(pipeline, staging, group);
        }
    }
}

/// An empty stream, which only a group can call into being, and its groups and consumers.
fn push_new_stream(pipeline: &mut Pipeline, staging: &[u8], groups: &[Group]) {
    pipeline.push(&[b"XGROUP", b"CREATE", staging, b"cw", b"0", b"MKSTREAM"]);
    pipeline.push(&[b"XGROUP", b"DESTROY", staging, b"cw"]);
    for group in groups {
        pipeline.push(&[b"XGROUP", b"CREATE", staging, &group.name, b"0"]);
        push_consumers(pipeline, staging, group, |_| true);
    }
}

/// Consumers of a group that exists.
pub(super) fn push_consumers(
    pipeline: &mut Pipeline,
    key: &[u8],
    group: &Group,
    which: impl Fn(&Bytes) -> bool,
) {
    for consumer in group.consumers.iter().filter(|name| which(name)) {
        pipeline.push(&[b"XGROUP", b"CREATECONSUMER", key, &group.name, consumer]);
    }
}

fn push_entry(pipeline: &mut Pipeline, staging: &[u8], entry: &Entry) {
    let id = entry.id.to_string();
    let mut args: Vec<&[u8]> = vec![b"XADD", staging, id.as_bytes()];
    args.extend(entry.fields.iter().map(Bytes::as_ref));
    pipeline.push(&args);
}

/// An entry in the place of one that is no more, for as long as its deliveries are taken over.
fn push_stand_in(pipeline: &mut Pipeline, staging: &[u8], id: EntryId) {
    pipeline.push(&[b"XADD", staging, id.to_string().as_bytes(), b"", b""]);
}

/// Takes deliveries over: their entries have to exist at this moment.
pub(super) fn push_deliveries(
    pipeline: &mut Pipeline,
    staging: &[u8],
    range: &Range,
    which: impl Fn(&Delivery) -> bool,
) {
    for delivery in range.deliveries.iter().filter(|delivery| which(delivery)) {
        let (id, at, times) = (
            delivery.id.to_string(),
            delivery.at_ms.to_string(),
            delivery.times.to_string(),
        );
        let (id, at, times) = (id.as_bytes(), at.as_bytes(), times.as_bytes());
        let (group, consumer) = (&delivery.group, &delivery.consumer);
        pipeline.push(&[
            b"XCLAIM",
            staging,
            group,
            consumer,
            b"0",
            id,
            b"TIME",
            at,
            b"RETRYCOUNT",
            times,
            b"FORCE",
            b"JUSTID",
        ]);
    }
}

/// Puts right what taking entries in and out has moved. The stream comes before its groups: some
/// servers let no group have read more entries than were ever added.
pub(super) fn push_head(pipeline: &mut Pipeline, staging: &[u8], head: &Head) {
    let (last_id, added) = (head.last_id.to_string(), head.entries_added.to_string());
    let deleted = head.max_deleted_id.to_string();
    let (last_id, added, deleted) = (last_id.as_bytes(), added.as_bytes(), deleted.as_bytes());
    pipeline.push(&[
        b"XSETID",
        staging,
        last_id,
        b"ENTRIESADDED",
        added,
        b"MAXDELETEDID",
        deleted,
    ]);
}

/// How far a group has read.
pub(super) fn push_position(pipeline: &mut Pipeline, staging: &[u8], group: &Group) {
    let last_id = group.last_id.to_string();
    let entries_read = group.entries_read.map(|count| count.to_string());
    let mut args: Vec<&[u8]> = vec![
        b"XGROUP",
        b"SETID",
        staging,
        &group.name,
        last_id.as_bytes(),
    ];
    if let Some(count) = &entries_read {
        args.extend([b"ENTRIESREAD", count.as_bytes()]);
    }
    pipeline.push(&args);
}
