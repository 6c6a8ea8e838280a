//! Streams: entries, consumer groups, and what each group has delivered and not seen acknowledged.
//!
//! A stream as a whole is described in one form, whether the server told it in one reply (for small
//! ones, to compare them) or in pieces (for large ones, to copy and to compare them). Left out is
//! when a consumer was last seen: no command sets it, and every read changes it.
//!
//! Pieces go by ranges of entry ids. A range brings its entries, and for every group the deliveries
//! pending in it. A delivery may outlive its entry; a server takes over a pending delivery only while
//! the entry exists, so for those an entry is put in and taken out again. Entries trimmed off the
//! front and entries deleted leave different traces (`max-deleted-entry-id`), hence two ways of
//! taking out.
//!
//! When a delivery happened is told only as "so long ago". It is read between two looks at the
//! server's clock, again until both show the same millisecond.

use bytes::Bytes;
use clockwise_client::resp::Value;

use super::expiries::Expiry;
use super::frame::{Frame, Pipeline};
use super::link::Link;
use super::survey::{read_clock, unless_changed};
use crate::driver::{DriverError, Key};

/// Entries, and pending deliveries of one group, in one piece.
pub(super) const PIECE_ENTRIES: usize = 500;
/// Looks at the clock before a delivery's time is taken as it is.
const CLOCK_TRIES: usize = 50;

/// An entry's id, ordered as servers order them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryId {
    ms: u64,
    seq: u64,
}

impl EntryId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (ms, seq) = text.split_once('-')?;
        Some(Self {
            ms: ms.parse().ok()?,
            seq: seq.parse().ok()?,
        })
    }

    fn of(value: &Value) -> Option<Self> {
        Self::parse(value.as_text()?)
    }
}

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// An entry: its fields and values in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: EntryId,
    pub(super) fields: Vec<Bytes>,
}

/// A delivery that was not acknowledged yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) group: Bytes,
    pub(super) id: EntryId,
    pub(super) consumer: Bytes,
    pub(super) at_ms: u64,
    pub(super) times: u64,
}

/// A consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: Bytes,
    pub(super) last_id: EntryId,
    /// `None` where the server has lost count.
    pub(super) entries_read: Option<u64>,
    pub(super) consumers: Vec<Bytes>,
}

/// What a stream remembers beside its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) last_id: EntryId,
    pub(super) max_deleted_id: EntryId,
    pub(super) entries_added: u64,
}

/// A range of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    /// Whether the stream has no entry before this range.
    pub(super) leads: bool,
    pub(super) entries: Vec<Entry>,
    pub(super) deliveries: Vec<Delivery>,
    /// In the first and the last range.
    pub(super) groups: Vec<Group>,
    /// In the last range.
    pub(super) head: Option<Head>,
}

/// Where the next range starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct After {
    /// The last id of the range before.
    id: Option<EntryId>,
    leads: bool,
    /// Entries a range.
    count: u64,
}

impl After {
    /// The start of a stream, with ranges of so many entries at most.
    pub(super) fn start(count: u64) -> Self {
        Self {
            id: None,
            leads: true,
            count: count.clamp(1, PIECE_ENTRIES as u64),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let id = self.id.unwrap_or_default();
        let flags = u8::from(self.id.is_some()) | u8::from(self.leads) << 1;
        let mut bytes = vec![flags];
        for number in [id.ms, id.seq, self.count] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (flags, rest) = bytes.split_first()?;
        let rest: &[u8; 24] = rest.try_into().ok()?;
        let (numbers, _) = rest.as_chunks::<8>();
        let [ms, seq, count] = <[_; 3]>::try_from(numbers).ok()?.map(u64::from_be_bytes);
        Some(Self {
            id: (flags & 1 != 0).then_some(EntryId { ms, seq }),
            leads: flags & 2 != 0,
            count,
        })
    }
}

/// Reads the reply of `XINFO STREAM … FULL COUNT 0`: a whole stream as its first and last range.
pub(super) fn read_full(full: &Value) -> Option<Range> {
    let mut range = Range {
        leads: true,
        head: Some(read_head(full)?),
        ..Range::default()
    };
    range.entries = read_entries(field(full, "entries")?)?;
    for group in field(full, "groups")?.as_array()? {
        let (name, last_id, entries_read) = read_group(group)?;
        let pending = field(group, "pending").or_else(|| field(group, "pel"))?;
        for delivery in pending.as_array()? {
            let [id, consumer, at, times] = delivery.as_array()? else {
                return None;
            };
            range.deliveries.push(Delivery {
                group: name.clone(),
                id: EntryId::of(id)?,
                consumer: bytes_of(consumer)?,
                at_ms: number_of(at)?,
                times: number_of(times)?,
            });
        }
        let consumers = read_consumers(field(group, "consumers")?)?;
        range.groups.push(Group {
            name,
            last_id,
            entries_read,
            consumers,
        });
    }
    Some(range)
}

fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    map.pairs()
        .into_iter()
        .find(|(key, _)| key.as_text() == Some(name))
        .map(|(_, value)| value)
}

fn bytes_of(value: &Value) -> Option<Bytes> {
    value.as_bytes().map(Bytes::copy_from_slice)
}

fn number_of(value: &Value) -> Option<u64> {
    u64::try_from(value.as_integer()?).ok()
}

fn read_head(info: &Value) -> Option<Head> {
    Some(Head {
        last_id: EntryId::of(field(info, "last-generated-id")?)?,
        max_deleted_id: EntryId::of(field(info, "max-deleted-entry-id")?)?,
        entries_added: number_of(field(info, "entries-added")?)?,
    })
}

fn read_entries(entries: &Value) -> Option<Vec<Entry>> {
    let entries = entries.as_array()?.iter().map(|entry| {
        let [id, fields] = entry.as_array()? else {
            return None;
        };
        let fields = fields
            .as_array()?
            .iter()
            .map(bytes_of)
            .collect::<Option<_>>()?;
        Some(Entry {
            id: EntryId::of(id)?,
            fields,
        })
    });
    entries.collect()
}

/// Name, last delivered id, entries read.
fn read_group(group: &Value) -> Option<(Bytes, EntryId, Option<u64>)> {
    let entries_read = field(group, "entries-read").and_then(number_of);
    Some((
        bytes_of(field(group, "name")?)?,
        EntryId::of(field(group, "last-delivered-id")?)?,
        entries_read,
    ))
}

fn read_consumers(consumers: &Value) -> Option<Vec<Bytes>> {
    let mut names = consumers
        .as_array()?
        .iter()
        .map(|consumer| bytes_of(field(consumer, "name")?))
        .collect::<Option<Vec<_>>>()?;
    names.sort_unstable();
    Some(names)
}

/// One range with the stream's expiry, and where the next one starts. `None`: the stream is gone.
pub(super) async fn read_range(
    link: &Link,
    key: &Key,
    after: After,
) -> Result<Option<(Range, Option<u64>, Option<After>)>, DriverError> {
    let from = after
        .id
        .map_or_else(|| "-".to_owned(), |id| format!("({id}"));
    let Some(sight) = look_at(link, key, &from, after.count).await? else {
        return Ok(None);
    };
    let is_last = (sight.entries.len() as u64) < after.count;
    let through = sight
        .entries
        .last()
        .filter(|_| !is_last)
        .map(|entry| entry.id);
    let mut range = Range {
        leads: after.leads,
        entries: sight.entries,
        ..Range::default()
    };
    let mut cut = through;
    for group in &sight.groups {
        let pending = pending(link, key, &group.name, &from, through).await?;
        if pending.len() == PIECE_ENTRIES {
            let last = pending.last().map(|delivery| delivery.id);
            cut = cut.into_iter().chain(last).min();
        }
        range.deliveries.extend(pending);
    }
    if let Some(cut) = cut {
        range.entries.retain(|entry| entry.id <= cut);
        range.deliveries.retain(|delivery| delivery.id <= cut);
    } else {
        range.head = Some(sight.head);
    }
    if after.id.is_none() || cut.is_none() {
        range.groups = with_consumers(link, key, sight.groups).await?;
    }
    let leads = after.leads && range.entries.is_empty();
    let next = cut.map(|id| After {
        id: Some(id),
        leads,
        ..after
    });
    Ok(Some((range, sight.expires_at_ms, next)))
}

/// A stream and some of its entries, all in one round trip.
pub(super) struct Sight {
    pub(super) expires_at_ms: Option<u64>,
    pub(super) head: Head,
    /// Without their consumers.
    pub(super) groups: Vec<Group>,
    pub(super) entries: Vec<Entry>,
}

/// A stream with up to `count` entries from an id on; `None` when there is no stream.
pub(super) async fn look_at(
    link: &Link,
    key: &Key,
    from: &str,
    count: u64,
) -> Result<Option<Sight>, DriverError> {
    let mut pipeline = Pipeline::of(&[b"PEXPIRETIME", key]);
    pipeline.push(&[b"XINFO", b"STREAM", key]);
    pipeline.push(&[b"XINFO", b"GROUPS", key]);
    pipeline.push(&[
        b"XRANGE",
        key,
        from.as_bytes(),
        b"+",
        b"COUNT",
        count.to_string().as_bytes(),
    ]);
    let mut frames = Vec::with_capacity(pipeline.commands);
    for frame in link.call("XRANGE", pipeline).await? {
        match unless_gone(link, "XRANGE", frame)? {
            Some(frame) => frames.push(frame),
            None => return Ok(None),
        }
    }
    let [expiry, info, groups, entries] = frames.as_slice() else {
        return Err(link.peer().refused("XRANGE", "no reply"));
    };
    let expires_at_ms = match Expiry::read(link, expiry)? {
        Expiry::Gone => return Ok(None),
        Expiry::Never => None,
        Expiry::At(ms) => Some(ms),
    };
    Ok(Some(Sight {
        expires_at_ms,
        head: read_head(&info.value()).ok_or_else(|| link.odd("XINFO STREAM", info))?,
        groups: read_groups(&groups.value()).ok_or_else(|| link.odd("XINFO GROUPS", groups))?,
        entries: read_entries(&entries.value()).ok_or_else(|| link.odd("XRANGE", entries))?,
    }))
}

/// Passes a reply on; `None` when the stream or the group that it is about was there a moment ago.
fn unless_gone(
    link: &Link,
    command: &'static str,
    frame: Frame,
) -> Result<Option<Frame>, DriverError> {
    match frame.error() {
        Some(why) if why.contains("no such key") || why.starts_with("NOGROUP") => Ok(None),
        _ => unless_changed(link, command, frame),
    }
}

fn read_groups(groups: &Value) -> Option<Vec<Group>> {
    let groups = groups.as_array()?.iter().map(|group| {
        let (name, last_id, entries_read) = read_group(group)?;
        Some(Group {
            name,
            last_id,
            entries_read,
            consumers: Vec::new(),
        })
    });
    groups.collect()
}

/// Adds the consumers of each group that is still there.
pub(super) async fn with_consumers(
    link: &Link,
    key: &Key,
    mut groups: Vec<Group>,
) -> Result<Vec<Group>, DriverError> {
    let mut pipeline = Pipeline::default();
    for group in &groups {
        pipeline.push(&[b"XINFO", b"CONSUMERS", key, &group.name]);
    }
    let frames = link.call("XINFO CONSUMERS", pipeline).await?;
    for (group, frame) in groups.iter_mut().zip(frames) {
        if let Some(frame) = unless_gone(link, "XINFO CONSUMERS", frame)? {
            group.consumers = read_consumers(&frame.value())
                .ok_or_else(|| link.odd("XINFO CONSUMERS", &frame))?;
        }
    }
    Ok(groups)
}

/// Deliveries of a group that are pending from `from` on, up to `through` and to [`PIECE_ENTRIES`]; none
/// where the group is gone.
pub(super) async fn pending(
    link: &Link,
    key: &Key,
    group: &Bytes,
    from: &str,
    through: Option<EntryId>,
) -> Result<Vec<Delivery>, DriverError> {
    let through = through.map_or_else(|| "+".to_owned(), |id| id.to_string());
    let mut tries = 0;
    loop {
        tries += 1;
        let mut pipeline = Pipeline::of(&[b"TIME"]);
        let count = PIECE_ENTRIES.to_string();
        pipeline.push(&[
            b"XPENDING",
            key,
            group,
            from.as_bytes(),
            through.as_bytes(),
            count.as_bytes(),
        ]);
        pipeline.push(&[b"TIME"]);
        let frames = link.call("XPENDING", pipeline).await?;
        let [before, pending, behind] = frames.as_slice() else {
            return Err(link.peer().refused("XPENDING", "no reply"));
        };
        let Some(pending) = unless_gone(link, "XPENDING", pending.clone())? else {
            return Ok(Vec::new());
        };
        let clock_ms = |frame: &Frame| {
            read_clock(frame).and_then(|clock| u64::try_from(clock.as_millis()).ok())
        };
        let now_ms = clock_ms(before).ok_or_else(|| link.odd("TIME", before))?;
        if Some(now_ms) == clock_ms(behind) || tries == CLOCK_TRIES {
            let read = read_pending(&pending.value(), group, now_ms);
            return read.ok_or_else(|| link.odd("XPENDING", &pending));
        }
    }
}

fn read_pending(pending: &Value, group: &Bytes, now_ms: u64) -> Option<Vec<Delivery>> {
    let deliveries = pending.as_array()?.iter().map(|delivery| {
        let [id, consumer, idle, times] = delivery.as_array()? else {
            return None;
        };
        Some(Delivery {
            group: group.clone(),
            id: EntryId::of(id)?,
            consumer: bytes_of(consumer)?,
            at_ms: now_ms.saturating_sub(number_of(idle)?),
            times: number_of(times)?,
        })
    });
    deliveries.collect()
}
