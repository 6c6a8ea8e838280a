//! Counters: strings that are numbers.

use super::call::{Call, Outcome, words};
use super::extended::{self, Extended, Number};
use super::number;

pub(super) fn incr(call: &mut Call<'_>) -> Outcome {
    add(call, 1)
}

pub(super) fn decr(call: &mut Call<'_>) -> Outcome {
    add(call, -1)
}

pub(super) fn incrby(call: &mut Call<'_>) -> Outcome {
    let by = call.integer_arg(2)?;
    add(call, by)
}

pub(super) fn decrby(call: &mut Call<'_>) -> Outcome {
    let by = call.integer_arg(2)?;
    let by = by.checked_neg().ok_or("ERR decrement would overflow")?;
    add(call, by)
}

fn add(call: &mut Call<'_>, by: i64) -> Outcome {
    let key = call.arg(1);
    let before = match call.data.value(key, call.now_ms) {
        Some(value) => number::integer(value).ok_or(words::NOT_AN_INTEGER)?,
        None => 0,
    };
    let after = before
        .checked_add(by)
        .ok_or("ERR increment or decrement would overflow")?;
    store(call, key, after.to_string().into_bytes());
    call.reply_integer(after)
}

pub(super) fn incrbyfloat(call: &mut Call<'_>) -> Outcome {
    let key = call.arg(1);
    let before = match call.data.value(key, call.now_ms) {
        Some(value) => float(value)?,
        None => Number::Finite(Extended::ZERO),
    };
    let after = match (before, float(call.arg(2))?) {
        (Number::Finite(before), Number::Finite(by)) => before.plus(by),
        _ => None,
    };
    let after = after.ok_or("ERR increment would produce NaN or Infinity")?;
    let text = after.to_text().into_bytes();
    call.reply_bulk(&text)?;
    store(call, key, text);
    Ok(())
}

fn float(text: &[u8]) -> Result<Number, String> {
    extended::read(text).ok_or_else(|| "ERR value is not a valid float".to_owned())
}

/// Puts a number in place of the old one, whose expiry stays.
fn store(call: &mut Call<'_>, key: &[u8], text: Vec<u8>) {
    if call.data.exists(key, call.now_ms) {
        call.data.modify(key, |entry| entry.value = text);
    } else {
        call.set(key, text, None);
    }
}
