//! One request: how it is written, and what its answer means for the keys in it.

use clockwise_client::resp::{Value, write_command};

use super::answer::{Refusal, refusal};
use super::connection::Broken;
use super::entry::{Action, Done};
use super::history::{ExpirySeen, Outcome};
use super::ledger::{KeyReading, Ledger, Times, Write};

#[derive(Debug)]
pub(super) enum Op {
    Write(Write),
    Get(KeyReading),
    /// Not empty.
    MultiGet(Vec<KeyReading>),
    Expiry(KeyReading),
}

/// How the server tells an expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpiryCommand {
    /// As a point in time: Redis 7.
    PexpireTime,
    /// As a time to live.
    Pttl,
}

/// What an answer did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Settled {
    Read,
    Write,
    /// An error reply.
    Refused(Refusal),
}

impl Op {
    pub(super) fn is_write(&self) -> bool {
        matches!(self, Op::Write(_))
    }

    pub(super) fn encode(&self, ledger: &Ledger, expiry: ExpiryCommand, out: &mut Vec<u8>) {
        match self {
            Op::Write(write) => encode_write(write, ledger, out),
            Op::Get(reading) => command(out, &[b"GET", ledger.name(reading.key).as_bytes()]),
            Op::MultiGet(readings) => {
                let names: Vec<String> = readings
                    .iter()
                    .map(|reading| ledger.name(reading.key))
                    .collect();
                let mut args: Vec<&[u8]> = vec![b"MGET"];
                args.extend(names.iter().map(|name| name.as_bytes()));
                command(out, &args);
            }
            Op::Expiry(reading) => {
                let verb: &[u8] = match expiry {
                    ExpiryCommand::PexpireTime => b"PEXPIRETIME",
                    ExpiryCommand::Pttl => b"PTTL",
                };
                command(out, &[verb, ledger.name(reading.key).as_bytes()]);
            }
        }
    }

    /// Takes an answer. One that cannot belong to the request breaks the connection: whose the
    /// next answers are is no longer known.
    pub(super) fn answered(
        self,
        answer: Value,
        ledger: &Ledger,
        expiry: ExpiryCommand,
        times: Times,
    ) -> Result<Settled, Broken> {
        if let Value::Error(line) = &answer {
            let refusal = refusal(line);
            self.give_up(ledger, refusal.outcome);
            return Ok(Settled::Refused(refusal));
        }
        match (self, answer) {
            (Op::Write(write), answer) => match done(write.action, &answer) {
                Some(done) => {
                    ledger.acknowledge(write, done, times);
                    Ok(Settled::Write)
                }
                None => {
                    let broken = wrong_form(ledger, write.key, write.action.verb(), &answer);
                    ledger.give_up(write, Outcome::Unknown);
                    Err(broken)
                }
            },
            (Op::Get(reading), Value::Null) => {
                ledger.saw_value(reading, None, times);
                Ok(Settled::Read)
            }
            (Op::Get(reading), Value::Bulk(bytes)) => {
                ledger.saw_value(reading, Some(&bytes), times);
                Ok(Settled::Read)
            }
            (Op::MultiGet(readings), Value::Array(values)) if values.len() == readings.len() => {
                saw_values(readings, values, ledger, times)
            }
            (Op::Expiry(reading), Value::Integer(number)) if number >= -2 => {
                let (seen, slack_ms) = expiry_seen(number, expiry, times);
                ledger.saw_expiry(reading, seen, slack_ms, times);
                Ok(Settled::Read)
            }
            (op, answer) => {
                let broken = wrong_form(ledger, op.first_key(), "a read", &answer);
                op.give_up(ledger, Outcome::Unknown);
                Err(broken)
            }
        }
    }

    /// There will be no answer.
    pub(super) fn give_up(self, ledger: &Ledger, outcome: Outcome) {
        match self {
            Op::Write(write) => ledger.give_up(write, outcome),
            Op::Get(reading) | Op::Expiry(reading) => ledger.abandon(reading),
            Op::MultiGet(readings) => {
                readings
                    .into_iter()
                    .for_each(|reading| ledger.abandon(reading));
            }
        }
    }

    fn first_key(&self) -> usize {
        match self {
            Op::Write(write) => write.key,
            Op::Get(reading) | Op::Expiry(reading) => reading.key,
            Op::MultiGet(readings) => readings[0].key,
        }
    }
}

fn encode_write(write: &Write, ledger: &Ledger, out: &mut Vec<u8>) {
    let name = ledger.name(write.key);
    let name = name.as_bytes();
    match write.action {
        Action::Set {
            content,
            expires_at_ms,
        } => {
            let value = ledger.value(write.key, content);
            match expires_at_ms {
                None => command(out, &[b"SET", name, &value]),
                Some(at_ms) => {
                    command(
                        out,
                        &[b"SET", name, &value, b"PXAT", at_ms.to_string().as_bytes()],
                    );
                }
            }
        }
        Action::Expire { at_ms } => {
            command(out, &[b"PEXPIREAT", name, at_ms.to_string().as_bytes()]);
        }
        Action::Delete => command(out, &[b"DEL", name]),
        Action::Increment => command(out, &[b"INCR", name]),
        Action::Zero => command(out, &[b"SET", name, b"0"]),
    }
}

fn command(out: &mut Vec<u8>, args: &[&[u8]]) {
    write_command(out, args);
}

/// `None` if this cannot be the answer.
fn done(action: Action, answer: &Value) -> Option<Done> {
    match (action, answer) {
        (Action::Set { .. } | Action::Zero, Value::Simple(text)) if text == "OK" => {
            Some(Done::Stored)
        }
        (Action::Expire { .. } | Action::Delete, Value::Integer(existed @ (0 | 1))) => {
            Some(Done::Existed(*existed == 1))
        }
        (Action::Increment, Value::Integer(count)) => u64::try_from(*count).ok().map(Done::Count),
        _ => None,
    }
}

fn saw_values(
    readings: Vec<KeyReading>,
    values: Vec<Value>,
    ledger: &Ledger,
    times: Times,
) -> Result<Settled, Broken> {
    let mut broken = None;
    for (reading, value) in readings.into_iter().zip(values) {
        match value {
            Value::Null => ledger.saw_value(reading, None, times),
            Value::Bulk(bytes) => ledger.saw_value(reading, Some(&bytes), times),
            other => {
                broken = Some(wrong_form(ledger, reading.key, "MGET", &other));
                ledger.abandon(reading);
            }
        }
    }
    broken.map_or(Ok(Settled::Read), Err)
}

/// What the number says, and how uncertain it is.
fn expiry_seen(number: i64, command: ExpiryCommand, times: Times) -> (ExpirySeen, u64) {
    match (u64::try_from(number), command) {
        (Ok(at_ms), ExpiryCommand::PexpireTime) => (ExpirySeen::AtMs(at_ms), 0),
        (Ok(left_ms), ExpiryCommand::Pttl) => {
            let slack_ms = times.answered_ms - times.sent_ms;
            (ExpirySeen::AtMs(times.answered_ms + left_ms), slack_ms)
        }
        (Err(_), _) if number == -1 => (ExpirySeen::Never, 0),
        (Err(_), _) => (ExpirySeen::NoKey, 0),
    }
}

fn wrong_form(ledger: &Ledger, key: usize, verb: &str, answer: &Value) -> Broken {
    let shown: String = format!("{answer:?}").chars().take(60).collect();
    let detail = format!("{verb} was answered with {shown}");
    ledger.saw_wrong_form(key, detail.clone());
    Broken::Protocol(detail)
}
