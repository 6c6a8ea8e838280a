//! What a stream holds beside its entries, apart from them: consumer groups, what is pending in them, and
//! the stream's own counters.
//!
//! No tracking tells of their changes, so that they have to be brought over once more when nobody can write
//! any more. A large stream is not copied again for that. Its groups are read on both sides, and what
//! differs is changed at the target. An entry that is deleted or added is tracked, and then the stream is
//! copied as a whole; so whatever is pending here for an entry that is gone was copied with it, and can
//! only be acknowledged since.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::copy::written;
use super::frame::Pipeline;
use super::link::Link;
use super::pieces::{pack, unpack};
use super::stream_pieces::{
    push_consumers, push_deliveries, push_head, push_position, read_back, write_down,
};
use super::streams::{self, Delivery, EntryId, Group, PIECE_ENTRIES, Range};
use super::survey::Kind;
use crate::driver::{DriverError, Key, Untracked, WriteRefused};

/// Everything of a stream but its entries; `None` when there is no stream.
pub(super) async fn read(link: &Link, key: &Key) -> Result<Option<Untracked>, DriverError> {
    let Some(sight) = streams::look_at(link, key, "+", 1).await? else {
        return Ok(None);
    };
    let mut range = Range {
        head: Some(sight.head),
        groups: streams::with_consumers(link, key, sight.groups).await?,
        ..Range::default()
    };
    for group in &range.groups {
        let mut from = "-".to_owned();
        loop {
            let page = streams::pending(link, key, &group.name, &from, None).await?;
            let last = page.last().map(|delivery| delivery.id);
            let is_full = page.len() == PIECE_ENTRIES;
            range.deliveries.extend(page);
            match last.filter(|_| is_full) {
                Some(id) => from = format!("({id}"),
                None => break,
            }
        }
    }
    Ok(Some(encode(&range)))
}

/// Changes what is `here` into what is `new`.
pub(super) async fn write(
    link: &Link,
    key: &Key,
    here: &Untracked,
    new: &Untracked,
) -> Result<Result<(), WriteRefused>, DriverError> {
    let (Some(here), Some(new)) = (decode(here), decode(new)) else {
        return Ok(Err(WriteRefused::BadPayload(
            "groups of another driver".to_owned(),
        )));
    };
    let mut pipeline = Pipeline::default();
    push_change(&mut pipeline, key, &here, new);
    for frame in link.call("XCLAIM", pipeline).await? {
        if let Err(refused) = written(link, &frame)? {
            return Ok(Err(refused));
        }
    }
    Ok(Ok(()))
}

fn encode(range: &Range) -> Untracked {
    let strings = write_down(range);
    Untracked(pack(Kind::Stream, strings.iter().map(Bytes::as_ref)))
}

fn decode(Untracked(bytes): &Untracked) -> Option<Range> {
    match unpack(bytes)? {
        (Kind::Stream, strings) => read_back(&strings),
        _ => None,
    }
}

/// Adds the commands that make one of the other: groups, then who is new, what is pending, what is not any
/// more, who is gone, and at the end the positions that all this has moved.
fn push_change(pipeline: &mut Pipeline, key: &[u8], here: &Range, new: Range) {
    let before: BTreeMap<&Bytes, &Group> = here
        .groups
        .iter()
        .map(|group| (&group.name, group))
        .collect();
    let after: BTreeSet<&Bytes> = new.groups.iter().map(|group| &group.name).collect();
    for name in before.keys().filter(|name| !after.contains(*name)) {
        pipeline.push(&[b"XGROUP", b"DESTROY", key, name]);
    }
    let moved = |group: &&Group| before.get(&group.name).is_none_or(|known| known != group);
    for group in new.groups.iter().filter(moved) {
        let known: &[Bytes] = match before.get(&group.name) {
            Some(known) => &known.consumers,
            None => {
                pipeline.push(&[b"XGROUP", b"CREATE", key, &group.name, b"0"]);
                &[]
            }
        };
        push_consumers(pipeline, key, group, |name| !known.contains(name));
    }
    push_pending(pipeline, key, here, &new, &after);
    for group in new.groups.iter().filter(moved) {
        let known = before
            .get(&group.name)
            .map_or(&[][..], |known| &known.consumers);
        for gone in known.iter().filter(|name| !group.consumers.contains(name)) {
            pipeline.push(&[b"XGROUP", b"DELCONSUMER", key, &group.name, gone]);
        }
    }
    if let Some(head) = new.head.filter(|head| here.head != Some(*head)) {
        push_head(pipeline, key, &head);
    }
    for group in new.groups.iter().filter(moved) {
        push_position(pipeline, key, group);
    }
}

/// Takes over what is pending in another way than here, and acknowledges what is not pending any more.
fn push_pending(
    pipeline: &mut Pipeline,
    key: &[u8],
    here: &Range,
    new: &Range,
    groups: &BTreeSet<&Bytes>,
) {
    let by_id = |range: &'_ Range| -> BTreeMap<(Bytes, EntryId), Delivery> {
        let deliveries = range.deliveries.iter();
        deliveries
            .map(|delivery| ((delivery.group.clone(), delivery.id), delivery.clone()))
            .collect()
    };
    let (pending_here, pending) = (by_id(here), by_id(new));
    let differs = |delivery: &Delivery| {
        pending_here.get(&(delivery.group.clone(), delivery.id)) != Some(delivery)
    };
    push_deliveries(pipeline, key, new, differs);
    for (place, delivery) in &pending_here {
        if !pending.contains_key(place) && groups.contains(&delivery.group) {
            let id = delivery.id.to_string();
            pipeline.push(&[b"XACK", key, &delivery.group, id.as_bytes()]);
        }
    }
}
