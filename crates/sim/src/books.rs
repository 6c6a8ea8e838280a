//! The books of one copy: the real copier with one key, and the batch that it has handed out.

use clockwise_cluster::copier::{Batch, Copier, Found, Lane, Limits, Next, Rate, Throttle};

/// Bytes of every value.
const BYTES: u64 = 100;

/// The copier, and what it has handed out.
#[derive(Clone, Debug)]
pub(crate) struct Books {
    copier: Copier<Vec<u8>>,
    throttle: Throttle,
    batch: Option<Batch<Vec<u8>>>,
}

/// Something that is told to the copier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Note {
    Listed,
    Touched,
    BeginRound,
    BeginLast,
    /// Hand out what is next.
    Next,
    /// The key of the batch was read; whether it exists.
    Read {
        exists: bool,
    },
    Landed,
    /// Both sides differed.
    Suspect,
    Settle,
}

/// What is to be seen of the books after a note.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Noted {
    /// Whether a batch is out.
    pub(crate) out: bool,
    pub(crate) landed: bool,
    pub(crate) dirty: bool,
    /// Differences that were settled just now.
    pub(crate) mismatches: u8,
}

impl Books {
    pub(crate) fn new() -> Self {
        Self {
            copier: Copier::new(1, Limits::default()),
            throttle: Throttle::new(Rate::default(), 0),
            batch: None,
        }
    }

    /// Tells books apart that go on differently: all there is but the running totals.
    pub(crate) fn key(&self) -> String {
        let mut key = format!("{:?} {}", self.copier, self.batch.is_some());
        let totals = key.find("bytes_per_key: ").zip(key.find("stop: "));
        let (from, to) = totals.expect("the copier's totals stand together");
        key.replace_range(from..to, "");
        key
    }

    pub(crate) fn note(&mut self, note: Note, key: &[u8]) -> Noted {
        let key = key.to_vec();
        let mut mismatches = 0;
        match note {
            Note::Listed => self.copier.listed(Lane(0), key),
            Note::Touched => self.copier.touched(Lane(0), key),
            Note::BeginRound => self.copier.begin_round(),
            Note::BeginLast => {
                self.copier.begin_round();
                self.copier.add_untracked_to_round();
            }
            Note::Next => {
                if let Next::Batch(batch) = self.copier.next(&mut self.throttle, 0) {
                    self.batch = Some(batch);
                }
            }
            Note::Read { exists } => {
                let found = match exists {
                    true => Found::Value {
                        bytes: BYTES,
                        untracked: false,
                    },
                    false => Found::Gone,
                };
                let batch = self.batch.as_mut().expect("a batch is out");
                self.copier.read(batch, &[found], &mut self.throttle);
            }
            Note::Landed => {
                let batch = self.batch.take().expect("a batch is out");
                self.copier.landed(batch);
            }
            Note::Suspect => self.copier.suspect(Lane(0), key),
            Note::Settle => mismatches = self.copier.settle_suspects(),
        }
        Noted {
            mismatches: u8::try_from(mismatches).expect("one key"),
            ..self.seen()
        }
    }

    pub(crate) fn seen(&self) -> Noted {
        Noted {
            out: self.batch.is_some(),
            landed: self.copier.is_landed(),
            dirty: self.copier.dirty() > 0,
            mismatches: 0,
        }
    }
}
