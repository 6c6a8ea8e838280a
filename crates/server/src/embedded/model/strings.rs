//! Strings: `GET` and `SET` and what is built of them.

use super::call::{Call, Outcome, words};
use super::expiry::{self, Moment};

/// The longest string, as servers have it by default.
const STRING_BYTES_MAX: usize = 512 << 20;

pub(super) fn get(call: &mut Call<'_>) -> Outcome {
    let key = call.arg(1);
    match call.data.value(key, call.now_ms) {
        Some(value) => {
            clockwise_client::resp::write_bulk(call.out, value);
            Ok(())
        }
        None => call.reply_null(),
    }
}

/// When a command that sets something does so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Condition {
    #[default]
    Always,
    IfMissing,
    IfThere,
}

/// What becomes of a key's expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expiry {
    /// The command's own default.
    #[default]
    Default,
    Keep,
    Persist,
    At(Moment),
}

/// The options of `SET` and `GETEX`.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    condition: Condition,
    get: bool,
    expiry: Expiry,
}

impl Options {
    fn read(call: &Call<'_>, from: usize, is_set: bool) -> Result<Self, String> {
        let mut options = Self::default();
        let mut at = from;
        while at < call.args.len() {
            let (kept, persists) = (
                options.expiry == Expiry::Keep,
                options.expiry == Expiry::Persist,
            );
            let timed = match options.expiry {
                Expiry::At(moment) => Some(moment),
                _ => None,
            };
            let option = call.option(at);
            let moment = Moment::of_option(&option, at + 1).filter(|_| at + 1 < call.args.len());
            match (option.as_str(), moment) {
                ("nx", _) if is_set && options.condition != Condition::IfThere => {
                    options.condition = Condition::IfMissing
                }
                ("xx", _) if is_set && options.condition != Condition::IfMissing => {
                    options.condition = Condition::IfThere
                }
                ("get", _) if is_set => options.get = true,
                ("keepttl", _) if is_set && !persists && timed.is_none() => {
                    options.expiry = Expiry::Keep
                }
                ("persist", _) if !is_set && !kept && timed.is_none() => {
                    options.expiry = Expiry::Persist
                }
                // The same unit may be given again; the last one counts.
                (_, Some(moment))
                    if !kept && !persists && timed.is_none_or(|timed| timed.same_unit(moment)) =>
                {
                    options.expiry = Expiry::At(moment);
                    at += 1;
                }
                _ => return Err(words::SYNTAX.to_owned()),
            }
            at += 1;
        }
        Ok(options)
    }
}

pub(super) fn set(call: &mut Call<'_>) -> Outcome {
    let options = Options::read(call, 3, true)?;
    let expires_at_ms = match options.expiry {
        Expiry::At(moment) => Some(moment.resolve(call)?),
        _ => None,
    };
    let (key, now_ms) = (call.arg(1), call.now_ms);
    let old = call.data.get(key, now_ms);
    let (there, kept) = (old.is_some(), old.and_then(|entry| entry.expires_at_ms));
    if options.get {
        get(call)?;
    }
    let holds = match options.condition {
        Condition::Always => true,
        Condition::IfMissing => !there,
        Condition::IfThere => there,
    };
    if !holds {
        return if options.get {
            Ok(())
        } else {
            call.reply_null()
        };
    }
    let expires_at_ms = if options.expiry == Expiry::Keep {
        kept
    } else {
        expires_at_ms
    };
    call.set(key, call.arg(2).to_vec(), expires_at_ms);
    if options.get { Ok(()) } else { call.reply_ok() }
}

pub(super) fn setnx(call: &mut Call<'_>) -> Outcome {
    let key = call.arg(1);
    if call.data.exists(key, call.now_ms) {
        return call.reply_integer(0);
    }
    call.set(key, call.arg(2).to_vec(), None);
    call.reply_integer(1)
}

pub(super) fn setex(call: &mut Call<'_>) -> Outcome {
    let expires_at_ms = Moment::seconds_from_now(2).resolve(call)?;
    call.set(call.arg(1), call.arg(3).to_vec(), Some(expires_at_ms));
    call.reply_ok()
}

pub(super) fn psetex(call: &mut Call<'_>) -> Outcome {
    let expires_at_ms = Moment::ms_from_now(2).resolve(call)?;
    call.set(call.arg(1), call.arg(3).to_vec(), Some(expires_at_ms));
    call.reply_ok()
}

pub(super) fn getset(call: &mut Call<'_>) -> Outcome {
    get(call)?;
    call.set(call.arg(1), call.arg(2).to_vec(), None);
    Ok(())
}

pub(super) fn getdel(call: &mut Call<'_>) -> Outcome {
    get(call)?;
    call.data.delete(call.arg(1), call.now_ms);
    Ok(())
}

pub(super) fn getex(call: &mut Call<'_>) -> Outcome {
    let options = Options::read(call, 2, false)?;
    let key = call.arg(1);
    if !call.data.exists(key, call.now_ms) {
        return call.reply_null();
    }
    let expires_at_ms = match options.expiry {
        Expiry::At(moment) => Some(moment.resolve(call)?),
        _ => None,
    };
    get(call)?;
    match (options.expiry, expires_at_ms) {
        (Expiry::Persist, _) => expiry::set(call, key, None),
        (_, Some(at)) => expiry::set(call, key, Some(at)),
        _ => {}
    }
    Ok(())
}

pub(super) fn append(call: &mut Call<'_>) -> Outcome {
    let (key, tail) = (call.arg(1), call.arg(2));
    let length = call.data.value(key, call.now_ms).map(<[u8]>::len);
    let whole = length.unwrap_or(0) + tail.len();
    match length {
        Some(_) if whole > STRING_BYTES_MAX => return Err(words::TOO_LONG.to_owned()),
        Some(_) => call
            .data
            .modify(key, |entry| entry.value.extend_from_slice(tail)),
        None => call.set(key, tail.to_vec(), None),
    }
    call.reply_count(whole)
}

pub(super) fn strlen(call: &mut Call<'_>) -> Outcome {
    let length = call
        .data
        .value(call.arg(1), call.now_ms)
        .map_or(0, <[u8]>::len);
    call.reply_count(length)
}

pub(super) fn getrange(call: &mut Call<'_>) -> Outcome {
    let (start, end) = (call.integer_arg(2)?, call.integer_arg(3)?);
    let value = call
        .data
        .value(call.arg(1), call.now_ms)
        .unwrap_or_default();
    let length = i64::try_from(value.len()).unwrap_or(i64::MAX);
    let range = if start < 0 && end < 0 && start > end {
        None
    } else {
        let from_end = |at: i64| {
            if at < 0 {
                at.saturating_add(length).max(0)
            } else {
                at
            }
        };
        let (first, last) = (from_end(start), from_end(end).min(length - 1));
        let first = usize::try_from(first).ok();
        first
            .zip(usize::try_from(last).ok())
            .filter(|(first, last)| first <= last)
    };
    let part = range.map_or(&b""[..], |(first, last)| &value[first..=last]);
    clockwise_client::resp::write_bulk(call.out, part);
    Ok(())
}

pub(super) fn setrange(call: &mut Call<'_>) -> Outcome {
    let offset = call.integer_arg(2)?;
    let Ok(offset) = usize::try_from(offset) else {
        return Err("ERR offset is out of range".to_owned());
    };
    let (key, part) = (call.arg(1), call.arg(3));
    if part.is_empty() {
        return strlen(call);
    }
    if offset.saturating_add(part.len()) > STRING_BYTES_MAX {
        return Err(words::TOO_LONG.to_owned());
    }
    let end = offset + part.len();
    let whole = call
        .data
        .value(key, call.now_ms)
        .map_or(0, <[u8]>::len)
        .max(end);
    if !call.data.exists(key, call.now_ms) {
        call.set(key, Vec::new(), None);
    }
    call.data.modify(key, |entry| {
        entry.value.resize(whole, 0);
        entry.value[offset..end].copy_from_slice(part);
    });
    call.reply_count(whole)
}

pub(super) fn mget(call: &mut Call<'_>) -> Outcome {
    call.reply_array(call.args.len() - 1)?;
    for key in &call.args[1..] {
        match call.data.value(key, call.now_ms) {
            Some(value) => clockwise_client::resp::write_bulk(call.out, value),
            None => call.reply_null()?,
        }
    }
    Ok(())
}

pub(super) fn mset(call: &mut Call<'_>) -> Outcome {
    check_pairs(call)?;
    set_all(call);
    call.reply_ok()
}

pub(super) fn msetnx(call: &mut Call<'_>) -> Outcome {
    check_pairs(call)?;
    for pair in call.args[1..].chunks_exact(2) {
        if call.data.exists(pair[0], call.now_ms) {
            return call.reply_integer(0);
        }
    }
    set_all(call);
    call.reply_integer(1)
}

fn check_pairs(call: &Call<'_>) -> Outcome {
    match call.args[1..].chunks_exact(2).remainder() {
        [] => Ok(()),
        _ => Err(format!(
            "ERR wrong number of arguments for '{}' command",
            call.name
        )),
    }
}

fn set_all(call: &mut Call<'_>) {
    for pair in call.args[1..].chunks_exact(2) {
        call.set(pair[0], pair[1].to_vec(), None);
    }
}
