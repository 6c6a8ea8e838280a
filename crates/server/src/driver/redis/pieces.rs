//! Large values, a piece at a time.
//!
//! A piece is a list of byte strings with a letter for its kind in front, in a form that only this
//! module reads. At the target pieces gather in a staging key under the reserved prefix. It has the
//! value's own expiry from the first piece on, since renaming a key takes its expiry along; and
//! every later piece first looks whether the staging key is still there, since appending to nothing
//! would make a value of the last pieces alone.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use clockwise_client::resp::Value;

use super::acl::RESERVED_PREFIX;
use super::copy::{read_scan, remove, written};
use super::elements::{self, Place, with_field_expiries};
use super::expiries::Expiry;
use super::frame::{Frame, Pipeline};
use super::link::Link;
use super::stream_pieces;
use super::streams::{self, After};
use super::survey::{Kind, Shape, clock_ms, lengths, push_weight, survey, unless_changed, weight};
use crate::driver::{DriverError, Key, OfKeys, Piece, PieceCursor, PieceRead, WriteRefused};

/// About this many bytes a piece.
pub(super) const PIECE_BYTES: u64 = 512 << 10;
/// And never more elements.
const PIECE_ELEMENTS_MAX: u64 = 1000;

/// One piece from `cursor`.
pub(super) async fn read(
    link: &Link,
    key: &Key,
    cursor: Option<PieceCursor>,
) -> Result<PieceRead, DriverError> {
    let place = match cursor {
        Some(PieceCursor(cursor)) => match Cursor::decode(&cursor) {
            Some(cursor) => cursor,
            None => {
                return Err(link
                    .peer()
                    .refused("read_piece", "a cursor of another driver"));
            }
        },
        None => match start(link, key).await? {
            Some(cursor) => cursor,
            None => return Ok(PieceRead::Gone),
        },
    };
    match place {
        Cursor::Elements(place) => read_elements(link, key, place).await,
        Cursor::Stream(after) => read_stream(link, key, after).await,
    }
}

/// Where the next piece starts.
enum Cursor {
    Elements(Place),
    Stream(After),
}

impl Cursor {
    fn encode(&self) -> PieceCursor {
        let mut bytes = BytesMut::new();
        match self {
            Self::Elements(place) => {
                bytes.put_u8(Kind::Elements(place.shape).letter());
                bytes.put_u64(place.at);
                bytes.put_u64(place.count);
            }
            Self::Stream(after) => {
                bytes.put_u8(Kind::Stream.letter());
                bytes.extend_from_slice(&after.encode());
            }
        }
        PieceCursor(bytes.freeze())
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match Kind::of_letter(*kind)? {
            Kind::Stream => After::decode(rest).map(Self::Stream),
            Kind::Other => None,
            Kind::Elements(shape) => {
                let (at, count) = rest.split_first_chunk::<8>()?;
                let count: [u8; 8] = count.try_into().ok()?;
                Some(Self::Elements(Place {
                    shape,
                    at: u64::from_be_bytes(*at),
                    count: u64::from_be_bytes(count),
                }))
            }
        }
    }
}

async fn start(link: &Link, key: &Key) -> Result<Option<Cursor>, DriverError> {
    let Some(found) = survey(link, std::slice::from_ref(key))
        .await?
        .into_iter()
        .next()
        .flatten()
    else {
        return Ok(None);
    };
    match found.kind {
        Kind::Other => Err(link.peer().refused(
            "read_piece",
            "a value of a module's own type cannot go in pieces",
        )),
        Kind::Stream => {
            let count = elements_a_piece(link, key, Kind::Stream).await?;
            Ok(count.map(|count| Cursor::Stream(After::start(count))))
        }
        Kind::Elements(shape) => {
            let count = elements_a_piece(link, key, found.kind).await?;
            Ok(count.map(|count| {
                Cursor::Elements(Place {
                    shape,
                    at: 0,
                    count,
                })
            }))
        }
    }
}

/// How many elements (bytes of a string) of a value make a piece of some [`PIECE_BYTES`]; `None` when
/// it is gone.
pub(super) async fn elements_a_piece(
    link: &Link,
    key: &Key,
    kind: Kind,
) -> Result<Option<u64>, DriverError> {
    if kind == Kind::TEXT {
        return Ok(Some(PIECE_BYTES));
    }
    let mut pipeline = Pipeline::default();
    push_weight(&mut pipeline, key);
    let frames = link.call("MEMORY USAGE", pipeline).await?;
    let Some(bytes) = frames
        .first()
        .map(|frame| weight(link, frame))
        .transpose()?
        .flatten()
    else {
        return Ok(None);
    };
    let length = lengths(link, &[(key, kind)])
        .await?
        .first()
        .copied()
        .unwrap_or(0);
    let element_bytes = (bytes / length.max(1)).max(1);
    Ok(Some(
        (PIECE_BYTES / element_bytes).clamp(1, PIECE_ELEMENTS_MAX),
    ))
}

async fn read_elements(link: &Link, key: &Key, mut place: Place) -> Result<PieceRead, DriverError> {
    loop {
        let mut pipeline = Pipeline::of(&[b"PEXPIRETIME", key]);
        place.push_read(&mut pipeline, key);
        let frames = link.call("HSCAN", pipeline).await?;
        let [expiry, frame] = frames.as_slice() else {
            return Err(link.peer().refused("HSCAN", "no reply"));
        };
        let expires_at_ms = match Expiry::read(link, expiry)? {
            Expiry::Gone => return Ok(PieceRead::Gone),
            Expiry::Never => None,
            Expiry::At(ms) => Some(ms),
        };
        let Some(frame) = unless_changed(link, "HSCAN", frame.clone())? else {
            return Ok(PieceRead::Gone);
        };
        let (elements, next) = place
            .read(&frame)
            .ok_or_else(|| link.odd("HSCAN", &frame))?;
        let elements = match place.shape {
            Shape::Hash => with_field_expiries(link, vec![(key, elements)])
                .await?
                .concat(),
            _ => elements,
        };
        match next {
            // A server's table has stretches without elements; an empty piece would stage nothing.
            Some(next) if elements.is_empty() => place = next,
            next => {
                let payload = pack(
                    Kind::Elements(place.shape),
                    elements.iter().map(Bytes::as_ref),
                );
                let next = next.map(|place| Cursor::Elements(place).encode());
                return Ok(PieceRead::Piece(
                    Piece {
                        payload,
                        expires_at_ms,
                    },
                    next,
                ));
            }
        }
    }
}

async fn read_stream(link: &Link, key: &Key, after: After) -> Result<PieceRead, DriverError> {
    let Some((range, expires_at_ms, next)) = streams::read_range(link, key, after).await? else {
        return Ok(PieceRead::Gone);
    };
    let strings = stream_pieces::write_down(&range);
    let payload = pack(Kind::Stream, strings.iter().map(Bytes::as_ref));
    Ok(PieceRead::Piece(
        Piece {
            payload,
            expires_at_ms,
        },
        next.map(|after| Cursor::Stream(after).encode()),
    ))
}

/// Byte strings one behind the other, each with its length.
pub(super) fn pack<'a>(kind: Kind, strings: impl Iterator<Item = &'a [u8]>) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(kind.letter());
    for string in strings {
        bytes.put_u64(string.len() as u64);
        bytes.put_slice(string);
    }
    bytes.freeze()
}

/// What [`pack`] made; `None` for anything else.
pub(super) fn unpack(payload: &[u8]) -> Option<(Kind, Vec<&[u8]>)> {
    let (kind, mut rest) = payload.split_first()?;
    let mut strings = Vec::new();
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk::<8>()?;
        let (string, behind) =
            behind.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)?;
        strings.push(string);
        rest = behind;
    }
    Some((Kind::of_letter(*kind)?, strings))
}

/// The staging values of one session.
#[derive(Debug, Default)]
pub(super) struct Staging {
    /// Expiry of what is staged. A staging key that has gone is no loss once its time was over.
    expiries: Mutex<HashMap<Key, Option<u64>>>,
}

impl Staging {
    /// Appends a piece; the first starts anew.
    pub(super) async fn write(
        &self,
        link: &Link,
        key: &Key,
        piece: &Piece,
        first: bool,
    ) -> Result<Result<(), WriteRefused>, DriverError> {
        let staging = staging_key(key);
        let Some((kind, strings)) = unpack(&piece.payload) else {
            return Ok(Err(WriteRefused::BadPayload(
                "a piece of another driver".to_owned(),
            )));
        };
        let mut pipeline = Pipeline::default();
        let look: &[u8] = if first { b"UNLINK" } else { b"EXISTS" };
        pipeline.push(&[look, &staging]);
        match (kind, stream_pieces::read_back(&strings)) {
            (Kind::Elements(shape), _) => {
                elements::push_write(&mut pipeline, shape, &staging, &strings)
            }
            (Kind::Stream, Some(range)) => {
                stream_pieces::push_write(&mut pipeline, &staging, &range, first)
            }
            _ => return Ok(Err(WriteRefused::BadPayload("a damaged piece".to_owned()))),
        }
        if let Some(at) = piece.expires_at_ms {
            pipeline.push(&[b"PEXPIREAT", &staging, at.max(1).to_string().as_bytes()]);
        }
        self.remember(key, piece.expires_at_ms);
        let frames = link.call("RESTORE", pipeline).await?;
        let staged = staged(link, &frames, first)?;
        self.clear_up(link, key, staged).await
    }

    /// Puts the staged value in place of `key`. What was there is removed first and on the side: a
    /// rename would free it on the spot, however large.
    pub(super) async fn finish(
        &self,
        link: &Link,
        key: &Key,
    ) -> Result<Result<(), WriteRefused>, DriverError> {
        let staging = staging_key(key);
        let mut pipeline = Pipeline::of(&[b"MULTI"]);
        pipeline.push(&[b"UNLINK", key]);
        pipeline.push(&[b"RENAME", &staging, key]);
        pipeline.push(&[b"EXEC"]);
        let frames = link.call("RENAME", pipeline).await?;
        let executed = frames
            .last()
            .ok_or_else(|| link.peer().refused("EXEC", "no reply"))?;
        let executed = link.check("EXEC", executed.clone())?;
        let renamed = match executed.value() {
            Value::Array(replies) => replies.into_iter().nth(1),
            _ => None,
        };
        let finished = match renamed {
            Some(Value::Simple(_)) => Ok(()),
            Some(Value::Error(why)) if why.contains("no such key") => {
                Err(WriteRefused::StagingLost)
            }
            Some(Value::Error(why)) => Err(WriteRefused::Other(why)),
            _ => return Err(link.odd("EXEC", &executed)),
        };
        let finished = self.clear_up(link, key, finished).await;
        self.locked().remove(key);
        finished
    }

    /// Removes the staging values of these keys, whoever left them.
    pub(super) async fn purge(&self, link: &Link, of: &OfKeys) -> Result<u64, DriverError> {
        let pattern = [RESERVED_PREFIX, b"*"].concat();
        let mut removed = 0;
        let mut cursor = 0;
        loop {
            let at = cursor.to_string();
            let frame = link
                .ask(
                    "SCAN",
                    &[
                        b"SCAN",
                        at.as_bytes(),
                        b"MATCH",
                        &pattern,
                        b"COUNT",
                        b"1000",
                    ],
                )
                .await?;
            let (next, keys) = read_scan(&frame).ok_or_else(|| link.odd("SCAN", &frame))?;
            let of_these = |staging: &Key| {
                staging.starts_with(RESERVED_PREFIX) && of(&staging.slice(RESERVED_PREFIX.len()..))
            };
            let keys: Vec<Key> = keys.into_iter().filter(of_these).collect();
            removed += remove(link, &keys).await?;
            cursor = next;
            if cursor == 0 {
                self.locked().retain(|key, _| !of(key));
                return Ok(removed);
            }
        }
    }

    /// After a failure: leaves nothing half-made behind, and forgives what has expired.
    async fn clear_up(
        &self,
        link: &Link,
        key: &Key,
        outcome: Result<(), WriteRefused>,
    ) -> Result<Result<(), WriteRefused>, DriverError> {
        let Err(refused) = outcome else {
            return Ok(Ok(()));
        };
        remove(link, &[staging_key(key).into()]).await?;
        let expires_at_ms = self.locked().get(key).copied().flatten();
        if refused == WriteRefused::StagingLost
            && let Some(at) = expires_at_ms
            && at <= clock_ms(link).await?
        {
            return Ok(Ok(()));
        }
        Ok(Err(refused))
    }

    fn remember(&self, key: &Key, expires_at_ms: Option<u64>) {
        self.locked().insert(key.clone(), expires_at_ms);
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Option<u64>>> {
        self.expiries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn staging_key(key: &Key) -> Vec<u8> {
    [RESERVED_PREFIX, key].concat()
}

/// What the replies to a piece say: the first tells whether the staging key was still there.
fn staged(
    link: &Link,
    frames: &[Frame],
    first: bool,
) -> Result<Result<(), WriteRefused>, DriverError> {
    let Some((look, rest)) = frames.split_first() else {
        return Err(link.peer().refused("EXISTS", "no reply"));
    };
    let look = link.check("EXISTS", look.clone())?;
    for frame in rest {
        if let Err(refused) = written(link, frame)? {
            return Ok(Err(refused));
        }
    }
    Ok(if !first && look.count() == Some(0) {
        Err(WriteRefused::StagingLost)
    } else {
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again_and_damage_is_refused() {
        let strings: [&[u8]; 3] = [b"", b"a\0b", &[0xff; 300]];
        let packed = pack(Kind::Stream, strings.into_iter());
        assert_eq!(unpack(&packed), Some((Kind::Stream, strings.to_vec())));
        assert_eq!(unpack(&packed[..packed.len() - 1]), None);
        assert_eq!(unpack(&packed[..5]), None);
        assert_eq!(unpack(b"?"), None);
        assert_eq!(unpack(b""), None);
        let place = Place {
            shape: Shape::List,
            at: u64::MAX,
            count: 7,
        };
        let PieceCursor(cursor) = Cursor::Elements(place).encode();
        assert!(
            matches!(Cursor::decode(&cursor), Some(Cursor::Elements(decoded)) if decoded == place)
        );
        assert!(Cursor::decode(&cursor[..9]).is_none());
    }
}
