//! Logical digests: what a key holds, whatever form its server keeps it in.
//!
//! Dumps cannot be compared: equal hashes and sets differ in them by the order in which their
//! elements came, by encoding, even between a value and its own restored copy. Here type and
//! absolute expiry are hashed with the content; elements in their order where the type has one, and
//! otherwise as a sum of one hash for each, which no order changes.
//!
//! The hash is XXH3 with 128 bits. It finds mistakes, not forgeries: whoever can write the values of
//! a pool gains nothing by making two of them look alike.

use std::collections::BTreeMap;

use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::elements::{Place, with_field_expiries};
use super::frame::{Frame, Pipeline};
use super::link::Link;
use super::pieces::{self, PIECE_BYTES};
use super::streams::{self, After, Group, Range};
use super::survey::{BURST_BYTES, Found, HEAD_BYTES, Kind, Look, Shape, look, unless_changed};
use crate::driver::{Digest, DriverError, Key};

/// Keys looked at together.
const KEYS_MAX: usize = 1000;
/// Values of more bytes are read in pieces.
const WHOLE_BYTES_MAX: u64 = 512 << 10;
/// Format version and checksum at the end of a dump.
const DUMP_FOOTER_BYTES: usize = 10;

/// What of a value counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    All,
    /// Not what stays out of the dirty-key stream: of a stream its entries alone.
    Tracked,
}

/// The digest of each key; `None` where there is none.
pub(super) async fn digests(
    link: &Link,
    keys: &[Key],
    content: Content,
) -> Result<Vec<Option<Digest>>, DriverError> {
    let mut digests = Vec::with_capacity(keys.len());
    for keys in keys.chunks(KEYS_MAX) {
        let looks = look(link, keys).await?;
        let mut some: Vec<Option<Digest>> = vec![None; keys.len()];
        let mut scratch = Vec::new();
        let mut whole = Vec::new();
        for (rank, looked) in looks.iter().enumerate() {
            match looked {
                Look::Gone => {}
                Look::Text { found, head } if head.len() < HEAD_BYTES => {
                    some[rank] = Some(text_digest(&mut scratch, found, head));
                }
                Look::Text { found, head } => {
                    some[rank] = long_text(link, &keys[rank], found, head).await?
                }
                Look::Other { found, .. }
                    if found.kind == Kind::Stream && content == Content::Tracked =>
                {
                    some[rank] = entries(link, &keys[rank], found).await?;
                }
                Look::Other { found, bytes }
                    if *bytes <= WHOLE_BYTES_MAX || found.kind == Kind::Other =>
                {
                    whole.push((rank, *found, *bytes));
                }
                Look::Other { found, .. } => {
                    some[rank] = piecewise(link, &keys[rank], found).await?
                }
            }
        }
        in_one_reply_each(link, keys, &whole, &mut some).await?;
        digests.append(&mut some);
    }
    Ok(digests)
}

/// Small values, many in one write, but not too many bytes.
async fn in_one_reply_each(
    link: &Link,
    keys: &[Key],
    values: &[(usize, Found, u64)],
    digests: &mut [Option<Digest>],
) -> Result<(), DriverError> {
    let mut rest = values;
    while !rest.is_empty() {
        let mut burst = 0;
        let fits = rest.iter().take_while(|(_, _, bytes)| {
            let room = burst < BURST_BYTES;
            burst += bytes;
            room
        });
        let (now, later) = rest.split_at(fits.count());
        let mut pipeline = Pipeline::with_capacity(now.len(), 64);
        for (rank, found, _) in now {
            push_whole(&mut pipeline, found.kind, &keys[*rank]);
        }
        let frames = link.call("HSCAN", pipeline).await?;
        let mut hashes = Vec::new();
        for ((rank, found, _), frame) in now.iter().zip(frames) {
            match whole(link, found, frame)? {
                Whole::Digest(digest) => digests[*rank] = digest,
                Whole::Hash(elements) => hashes.push((*rank, found, elements)),
            }
        }
        let asked = hashes
            .iter_mut()
            .map(|(rank, _, elements)| (&keys[*rank], std::mem::take(elements)));
        let complete = with_field_expiries(link, asked.collect()).await?;
        for ((rank, found, _), elements) in hashes.into_iter().zip(complete) {
            digests[rank] = Fold::all(Shape::Hash, &elements).map(|fold| fold.finish(found));
        }
        rest = later;
    }
    Ok(())
}

fn push_whole(pipeline: &mut Pipeline, kind: Kind, key: &Key) {
    match kind {
        Kind::Stream => pipeline.push(&[b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"]),
        Kind::Other => pipeline.push(&[b"DUMP", key]),
        Kind::Elements(shape) => Place::whole(shape).push_read(pipeline, key),
    }
}

/// What one reply gives of a value.
enum Whole {
    /// All: its digest; `None` when it is gone or of another type now.
    Digest(Option<Digest>),
    /// Fields and values, without the fields' expiries.
    Hash(Vec<Bytes>),
}

fn whole(link: &Link, found: &Found, frame: Frame) -> Result<Whole, DriverError> {
    let is_gone = frame.error().is_some_and(|why| why.contains("no such key"));
    let Some(frame) = (if is_gone {
        None
    } else {
        unless_changed(link, "HSCAN", frame)?
    }) else {
        return Ok(Whole::Digest(None));
    };
    let digest = match found.kind {
        Kind::Stream => {
            let range = streams::read_full(&frame.value())
                .ok_or_else(|| link.odd("XINFO STREAM", &frame))?;
            let mut fold = StreamFold::default();
            fold.add(&range);
            Some(fold.finish(found, &range))
        }
        Kind::Other => frame.text().map(|dump| {
            let content = &dump[..dump.len().saturating_sub(DUMP_FOOTER_BYTES)];
            text_digest(&mut Vec::new(), found, content)
        }),
        Kind::Elements(shape) => {
            let read = Place::whole(shape).read(&frame);
            let (elements, _) = read.ok_or_else(|| link.odd("HSCAN", &frame))?;
            if shape == Shape::Hash {
                return Ok(Whole::Hash(elements));
            }
            Fold::all(shape, &elements).map(|fold| fold.finish(found))
        }
    };
    Ok(Whole::Digest(digest))
}

/// The rest of a string whose beginning is known.
async fn long_text(
    link: &Link,
    key: &Key,
    found: &Found,
    head: &Bytes,
) -> Result<Option<Digest>, DriverError> {
    let mut hash = Xxh3::new();
    hash.update(&header(found));
    hash.update(head);
    let start = Place {
        shape: Shape::Text,
        at: HEAD_BYTES as u64,
        count: PIECE_BYTES,
    };
    let read = each_piece(link, key, start, |elements| {
        elements.iter().for_each(|text| hash.update(text))
    })
    .await?;
    Ok(read.then(|| Digest(hash.digest128().to_be_bytes())))
}

async fn piecewise(link: &Link, key: &Key, found: &Found) -> Result<Option<Digest>, DriverError> {
    let Some(count) = pieces::elements_a_piece(link, key, found.kind).await? else {
        return Ok(None);
    };
    match found.kind {
        Kind::Elements(shape) => {
            let mut fold = Fold::new(shape);
            let start = Place {
                shape,
                at: 0,
                count,
            };
            let read = each_piece(link, key, start, |elements| fold.add(elements)).await?;
            Ok(read.then(|| fold.finish(found)))
        }
        Kind::Stream => stream_by_ranges(link, key, found, count).await,
        // Never counted as large.
        Kind::Other => Ok(None),
    }
}

/// Reads from `start` to the end; false when the key is gone or of another type now.
async fn each_piece(
    link: &Link,
    key: &Key,
    start: Place,
    mut take: impl FnMut(&[Bytes]),
) -> Result<bool, DriverError> {
    let mut next = Some(start);
    while let Some(place) = next {
        let mut pipeline = Pipeline::default();
        place.push_read(&mut pipeline, key);
        let frame = link.call("HSCAN", pipeline).await?.into_iter().next();
        let frame = frame.ok_or_else(|| link.peer().refused("HSCAN", "no reply"))?;
        let Some(frame) = unless_changed(link, "HSCAN", frame)? else {
            return Ok(false);
        };
        let (elements, behind) = place
            .read(&frame)
            .ok_or_else(|| link.odd("HSCAN", &frame))?;
        let elements = match place.shape {
            Shape::Hash => with_field_expiries(link, vec![(key, elements)])
                .await?
                .concat(),
            _ => elements,
        };
        take(&elements);
        next = behind;
    }
    Ok(true)
}

async fn stream_by_ranges(
    link: &Link,
    key: &Key,
    found: &Found,
    count: u64,
) -> Result<Option<Digest>, DriverError> {
    let mut fold = StreamFold::default();
    let mut after = After::start(count);
    loop {
        let Some((range, _, next)) = streams::read_range(link, key, after).await? else {
            return Ok(None);
        };
        fold.add(&range);
        match next {
            Some(next) => after = next,
            None => return Ok(Some(fold.finish(found, &range))),
        }
    }
}

/// The entries of a stream, whatever its groups are.
async fn entries(link: &Link, key: &Key, found: &Found) -> Result<Option<Digest>, DriverError> {
    let Some(count) = pieces::elements_a_piece(link, key, Kind::Stream).await? else {
        return Ok(None);
    };
    let mut fold = StreamFold::default();
    let mut from = "-".to_owned();
    loop {
        let Some(sight) = streams::look_at(link, key, &from, count).await? else {
            return Ok(None);
        };
        let last = sight.entries.last().map(|entry| entry.id);
        let is_full = sight.entries.len() as u64 == count;
        fold.add(&Range {
            entries: sight.entries,
            ..Range::default()
        });
        match last.filter(|_| is_full) {
            Some(id) => from = format!("({id}"),
            None => return Ok(Some(fold.finish(found, &Range::default()))),
        }
    }
}

/// What every digest begins with: type and expiry.
fn header(found: &Found) -> [u8; 10] {
    let mut header = [0; 10];
    header[0] = found.kind.letter();
    header[1] = u8::from(found.expires_at_ms.is_some());
    header[2..].copy_from_slice(&found.expires_at_ms.unwrap_or(0).to_be_bytes());
    header
}

/// One pass over a short buffer is several times cheaper than the hash's own stages.
fn text_digest(scratch: &mut Vec<u8>, found: &Found, text: &[u8]) -> Digest {
    scratch.clear();
    scratch.extend_from_slice(&header(found));
    scratch.extend_from_slice(text);
    Digest(xxh3_128(scratch).to_be_bytes())
}

fn update_with_length(hash: &mut Xxh3, bytes: &[u8]) {
    hash.update(&(bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

/// A collection, element by element.
struct Fold {
    shape: Shape,
    in_order: Xxh3,
    sum: u128,
    count: u64,
    scratch: Vec<u8>,
}

impl Fold {
    fn new(shape: Shape) -> Self {
        Self {
            shape,
            in_order: Xxh3::new(),
            sum: 0,
            count: 0,
            scratch: Vec::new(),
        }
    }

    /// A whole collection; `None` for an empty one, which does not exist.
    fn all(shape: Shape, elements: &[Bytes]) -> Option<Self> {
        let mut fold = Self::new(shape);
        fold.add(elements);
        (!elements.is_empty()).then_some(fold)
    }

    fn add(&mut self, elements: &[Bytes]) {
        match self.shape {
            Shape::Hash => elements
                .chunks_exact(3)
                .for_each(|field| self.add_unordered(field)),
            Shape::SortedSet => elements.chunks_exact(2).for_each(|pair| {
                // Servers write one score in different ways.
                let score = std::str::from_utf8(&pair[1])
                    .ok()
                    .and_then(|text| text.parse::<f64>().ok());
                let score = score.unwrap_or(f64::NAN).to_bits().to_be_bytes();
                self.add_unordered(&[&pair[0], score.as_slice()]);
            }),
            Shape::Set => elements
                .iter()
                .for_each(|member| self.add_unordered(&[member])),
            Shape::Text | Shape::List => elements.iter().for_each(|item| {
                self.count += 1;
                update_with_length(&mut self.in_order, item);
            }),
        }
    }

    fn add_unordered<T: AsRef<[u8]>>(&mut self, parts: &[T]) {
        self.scratch.clear();
        for part in parts {
            self.scratch
                .extend_from_slice(&(part.as_ref().len() as u64).to_be_bytes());
            self.scratch.extend_from_slice(part.as_ref());
        }
        self.sum = self.sum.wrapping_add(xxh3_128(&self.scratch));
        self.count += 1;
    }

    fn finish(self, found: &Found) -> Digest {
        let mut hash = Xxh3::new();
        hash.update(&header(found));
        hash.update(&self.count.to_be_bytes());
        hash.update(&self.sum.to_be_bytes());
        hash.update(&self.in_order.digest128().to_be_bytes());
        Digest(hash.digest128().to_be_bytes())
    }
}

/// A stream, range by range.
#[derive(Default)]
struct StreamFold {
    entries: Xxh3,
    deliveries: BTreeMap<Bytes, Xxh3>,
}

impl StreamFold {
    fn add(&mut self, range: &Range) {
        for entry in &range.entries {
            update_with_length(&mut self.entries, entry.id.to_string().as_bytes());
            self.entries
                .update(&(entry.fields.len() as u64).to_be_bytes());
            entry
                .fields
                .iter()
                .for_each(|field| update_with_length(&mut self.entries, field));
        }
        for delivery in &range.deliveries {
            let hash = self.deliveries.entry(delivery.group.clone()).or_default();
            update_with_length(hash, delivery.id.to_string().as_bytes());
            update_with_length(hash, &delivery.consumer);
            hash.update(&delivery.at_ms.to_be_bytes());
            hash.update(&delivery.times.to_be_bytes());
        }
    }

    fn finish(self, found: &Found, last: &Range) -> Digest {
        let mut hash = Xxh3::new();
        hash.update(&header(found));
        hash.update(&self.entries.digest128().to_be_bytes());
        if let Some(head) = &last.head {
            update_with_length(&mut hash, head.last_id.to_string().as_bytes());
            update_with_length(&mut hash, head.max_deleted_id.to_string().as_bytes());
            hash.update(&head.entries_added.to_be_bytes());
        }
        let mut groups: Vec<&Group> = last.groups.iter().collect();
        groups.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for group in groups {
            update_with_length(&mut hash, &group.name);
            update_with_length(&mut hash, group.last_id.to_string().as_bytes());
            hash.update(&[u8::from(group.entries_read.is_some())]);
            hash.update(&group.entries_read.unwrap_or(0).to_be_bytes());
            hash.update(&(group.consumers.len() as u64).to_be_bytes());
            group
                .consumers
                .iter()
                .for_each(|consumer| update_with_length(&mut hash, consumer));
            let deliveries = self.deliveries.get(&group.name).map_or(0, Xxh3::digest128);
            hash.update(&deliveries.to_be_bytes());
        }
        Digest(hash.digest128().to_be_bytes())
    }
}
