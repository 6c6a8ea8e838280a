//! Keys whatever they hold: removing, renaming, listing.

use super::call::{Call, Outcome, words};
use super::glob;
use super::number;

pub(super) fn del(call: &mut Call<'_>) -> Outcome {
    let (data, now_ms) = (&mut *call.data, call.now_ms);
    let removed = call.args[1..]
        .iter()
        .filter(|key| data.delete(key, now_ms).is_some())
        .count();
    call.reply_count(removed)
}

pub(super) fn exists(call: &mut Call<'_>) -> Outcome {
    let (data, now_ms) = (&mut *call.data, call.now_ms);
    let there = call.args[1..]
        .iter()
        .filter(|key| data.exists(key, now_ms))
        .count();
    call.reply_count(there)
}

pub(super) fn kind(call: &mut Call<'_>) -> Outcome {
    let there = call.data.exists(call.arg(1), call.now_ms);
    call.reply_simple(if there { "string" } else { "none" })
}

pub(super) fn rename(call: &mut Call<'_>) -> Outcome {
    if !call.data.exists(call.arg(1), call.now_ms) {
        return Err(words::NO_SUCH_KEY.to_owned());
    }
    move_over(call);
    call.reply_ok()
}

pub(super) fn renamenx(call: &mut Call<'_>) -> Outcome {
    if !call.data.exists(call.arg(1), call.now_ms) {
        return Err(words::NO_SUCH_KEY.to_owned());
    }
    if call.data.exists(call.arg(2), call.now_ms) {
        return call.reply_integer(0);
    }
    move_over(call);
    call.reply_integer(1)
}

fn move_over(call: &mut Call<'_>) {
    let (from, to) = (call.arg(1), call.arg(2));
    if from != to
        && let Some(entry) = call.data.remove(from)
    {
        call.set(to, entry.value, entry.expires_at_ms);
    }
}

pub(super) fn copy(call: &mut Call<'_>) -> Outcome {
    let mut replace = false;
    let mut at = 3;
    while at < call.args.len() {
        match call.option(at).as_str() {
            "replace" => replace = true,
            "db" if at + 1 < call.args.len() => {
                at += 1;
                if call.small_integer_arg(at)? != 0 {
                    return Err("ERR DB index is out of range".to_owned());
                }
            }
            _ => return Err(words::SYNTAX.to_owned()),
        }
        at += 1;
    }
    let (from, to) = (call.arg(1), call.arg(2));
    if from == to {
        return Err("ERR source and destination objects are the same".to_owned());
    }
    let Some(entry) = call.data.get(from, call.now_ms).cloned() else {
        return call.reply_integer(0);
    };
    if !replace && call.data.exists(to, call.now_ms) {
        return call.reply_integer(0);
    }
    call.set(to, entry.value, entry.expires_at_ms);
    call.reply_integer(1)
}

pub(super) fn keys(call: &mut Call<'_>) -> Outcome {
    let pattern = call.arg(1);
    let all = pattern == b"*";
    let keys = call
        .data
        .all_keys(call.now_ms)
        .filter(|key| all || glob::matches(pattern, key));
    let keys: Vec<_> = keys.cloned().collect();
    reply_keys(call, &keys)
}

fn reply_keys(call: &mut Call<'_>, keys: &[bytes::Bytes]) -> Outcome {
    call.reply_array(keys.len())?;
    keys.iter().try_for_each(|key| call.reply_bulk(key))
}

pub(super) fn scan(call: &mut Call<'_>) -> Outcome {
    let cursor = number::cursor(call.arg(1)).ok_or("ERR invalid cursor")?;
    let (mut count, mut pattern, mut strings) = (10, None, true);
    let mut at = 2;
    while at < call.args.len() {
        if at + 1 == call.args.len() {
            return Err(words::SYNTAX.to_owned());
        }
        let value = call.arg(at + 1);
        match call.option(at).as_str() {
            "count" => {
                count = number::integer(value).ok_or(words::NOT_AN_INTEGER)?;
                if count < 1 {
                    return Err(words::SYNTAX.to_owned());
                }
            }
            "match" => pattern = Some(value).filter(|pattern| *pattern != b"*"),
            "type" => strings = value.eq_ignore_ascii_case(b"string"),
            _ => return Err(words::SYNTAX.to_owned()),
        }
        at += 2;
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (next, mut keys) = call.data.scan(cursor, count, call.now_ms);
    keys.retain(|key| strings && pattern.is_none_or(|pattern| glob::matches(pattern, key)));
    call.reply_array(2)?;
    call.reply_bulk(next.to_string().as_bytes())?;
    reply_keys(call, &keys)
}

pub(super) fn randomkey(call: &mut Call<'_>) -> Outcome {
    let place = call.random();
    match call.data.at_or_behind(place, call.now_ms).cloned() {
        Some(key) => call.reply_bulk(&key),
        None => call.reply_null(),
    }
}

pub(super) fn dbsize(call: &mut Call<'_>) -> Outcome {
    let count = call.data.len();
    call.reply_count(count)
}

pub(super) fn flush(call: &mut Call<'_>) -> Outcome {
    if call.args.len() > 2
        || call.args.len() == 2 && !matches!(call.option(1).as_str(), "sync" | "async")
    {
        return Err(words::SYNTAX.to_owned());
    }
    call.data.flush();
    call.reply_ok()
}
