//! Values that say whose they are: the key's number, the version's number and filling that follows
//! from both. A value that comes back under another key, or damaged, is recognised.

use super::random::Random;

/// Room for both numbers, two colons and some filling.
pub(super) const VALUE_BYTES_MIN: usize = 48;

#[derive(Debug, Clone, Copy)]
pub(super) struct Payloads {
    pub(super) seed: u64,
    /// The length of every value; at least `VALUE_BYTES_MIN`.
    pub(super) bytes: usize,
}

/// What a value turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// What was written as this version of this key.
    Ours { key: usize, content: u64 },
    /// Nothing this workload ever wrote.
    Foreign,
}

impl Payloads {
    pub(super) fn value(&self, key: usize, content: u64) -> Vec<u8> {
        let mut value = format!("{key}:{content}:").into_bytes();
        let mut random = Random::new(self.seed ^ content, u64::try_from(key).unwrap_or(u64::MAX));
        while value.len() < self.bytes {
            let word = random.next();
            value.extend(word.to_le_bytes().map(|byte| b'a' + byte % 26));
        }
        value.truncate(self.bytes);
        value
    }

    pub(super) fn origin(&self, value: &[u8]) -> Origin {
        let read = || -> Option<Origin> {
            let mut parts = value.splitn(3, |byte| *byte == b':');
            let key = str::from_utf8(parts.next()?).ok()?.parse().ok()?;
            let content = str::from_utf8(parts.next()?).ok()?.parse().ok()?;
            let ours = self.value(key, content) == value;
            ours.then_some(Origin::Ours { key, content })
        };
        read().unwrap_or(Origin::Foreign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_its_key_and_version() {
        let payloads = Payloads {
            seed: 1,
            bytes: 100,
        };
        let value = payloads.value(17, 3);
        assert_eq!(value.len(), 100);
        assert_eq!(
            payloads.origin(&value),
            Origin::Ours {
                key: 17,
                content: 3
            }
        );
        assert_ne!(
            value,
            Payloads {
                seed: 2,
                ..payloads
            }
            .value(17, 3)
        );
    }

    #[test]
    fn a_damaged_value_is_nobodys() {
        let payloads = Payloads {
            seed: 1,
            bytes: VALUE_BYTES_MIN,
        };
        let value = payloads.value(usize::MAX, u64::MAX);
        assert!(matches!(payloads.origin(&value), Origin::Ours { .. }));
        for at in 0..value.len() {
            let mut damaged = value.clone();
            damaged[at] ^= 1;
            assert_eq!(payloads.origin(&damaged), Origin::Foreign, "byte {at}");
        }
        assert_eq!(payloads.origin(&value[..value.len() - 1]), Origin::Foreign);
        assert_eq!(payloads.origin(b""), Origin::Foreign);
    }
}
