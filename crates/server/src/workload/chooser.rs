//! Which request a client makes next.

use std::ops::RangeInclusive;

use super::entry::{Wish, Writer};
use super::ledger::Ledger;
use super::op::Op;
use super::options::Mix;
use super::random::Random;

/// How many keys are tried for a write before something is read instead: most are free.
const TRIES: usize = 8;
const KEYS_PER_MULTI_GET: usize = 4;

#[derive(Debug)]
pub(super) struct Chooser {
    random: Random,
    writer: Writer,
    weights: [(Kind, u32); 8],
    weight_sum: u64,
    ttl_ms: RangeInclusive<u64>,
    /// Keys with values that it writes.
    registers: Vec<usize>,
    /// Counters that it writes.
    counters: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Get,
    MultiGet,
    Expiry,
    Set,
    SetExpiring,
    Expire,
    Delete,
    Increment,
}

impl Chooser {
    pub(super) fn new(
        random: Random,
        writer: Writer,
        mix: Mix,
        ttl_ms: RangeInclusive<u64>,
        keys: impl Iterator<Item = usize>,
        ledger: &Ledger,
    ) -> Chooser {
        let (counters, registers) = keys.partition(|key| ledger.is_counter(*key));
        let weights = [
            (Kind::Get, mix.get),
            (Kind::MultiGet, mix.multi_get),
            (Kind::Expiry, mix.expiry),
            (Kind::Set, mix.set),
            (Kind::SetExpiring, mix.set_expiring),
            (Kind::Expire, mix.expire),
            (Kind::Delete, mix.delete),
            (Kind::Increment, mix.increment),
        ];
        Chooser {
            random,
            writer,
            weights,
            weight_sum: weights.iter().map(|(_, weight)| u64::from(*weight)).sum(),
            ttl_ms,
            registers,
            counters,
        }
    }

    /// The next request, noted in the ledger as sent. `None` if it only writes and none of the keys
    /// it tried may be written now.
    pub(super) fn next(&mut self, ledger: &Ledger) -> Option<Op> {
        if let (Writer::Connection(_), Some(again)) = (self.writer, ledger.begin_second_look()) {
            return Some(Op::Get(again));
        }
        let kind = self.kind();
        match kind {
            Kind::Get => Some(self.get(ledger)),
            Kind::Expiry => Some(Op::Expiry(ledger.begin_read(self.any_key(ledger)))),
            Kind::MultiGet => {
                let keys: Vec<usize> = (0..KEYS_PER_MULTI_GET)
                    .map(|_| self.any_key(ledger))
                    .collect();
                Some(Op::MultiGet(
                    keys.into_iter().map(|key| ledger.begin_read(key)).collect(),
                ))
            }
            Kind::Set | Kind::SetExpiring | Kind::Expire | Kind::Delete | Kind::Increment => {
                let write = self.write(kind, ledger);
                write.or_else(|| self.may_read().then(|| self.get(ledger)))
            }
        }
    }

    fn kind(&mut self) -> Kind {
        let mut at = self.random.below(self.weight_sum);
        for (kind, weight) in self.weights {
            match at.checked_sub(u64::from(weight)) {
                Some(rest) => at = rest,
                None => return kind,
            }
        }
        unreachable!("the weights add up to their sum");
    }

    fn may_read(&self) -> bool {
        self.weights[..3].iter().any(|(_, weight)| *weight > 0)
    }

    fn get(&mut self, ledger: &Ledger) -> Op {
        Op::Get(ledger.begin_read(self.any_key(ledger)))
    }

    fn any_key(&mut self, ledger: &Ledger) -> usize {
        let keys = u64::try_from(ledger.len()).unwrap_or(u64::MAX);
        usize::try_from(self.random.below(keys)).unwrap_or(0)
    }

    fn write(&mut self, kind: Kind, ledger: &Ledger) -> Option<Op> {
        for _ in 0..TRIES {
            let wish = self.wish(kind, ledger);
            let keys = match kind {
                Kind::Increment => &self.counters,
                _ => &self.registers,
            };
            let key = *self.random.pick(keys)?;
            if let Some(write) = ledger.begin_write(key, self.writer, wish) {
                return Some(Op::Write(write));
            }
        }
        None
    }

    fn wish(&mut self, kind: Kind, ledger: &Ledger) -> Wish {
        match kind {
            Kind::SetExpiring => Wish::SetExpiring {
                at_ms: self.expiry(ledger),
            },
            Kind::Expire => Wish::Expire {
                at_ms: self.expiry(ledger),
            },
            Kind::Delete => Wish::Delete,
            Kind::Increment => Wish::Increment,
            _ => Wish::Set,
        }
    }

    fn expiry(&mut self, ledger: &Ledger) -> u64 {
        let (least, most) = (*self.ttl_ms.start(), *self.ttl_ms.end());
        let span = (most - least).saturating_add(1);
        ledger.clock.now_ms() + least + self.random.below(span)
    }
}
