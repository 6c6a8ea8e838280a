//! Numbers that only grow: the epoch and revision of a record, the generation of a node's credential,
//! the term of a leadership.
//!
//! They are counted, never computed with: [`Epoch::next`] is the only way on.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

/// The largest number a record may hold: JSON readers that keep numbers as doubles are exact up to here.
pub const COUNTER_MAX: u64 = (1 << 53) - 1;

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The first.
            pub const FIRST: Self = Self(1);

            /// The number from outside: a command line, another process.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The one after this.
            #[must_use]
            pub const fn next(self) -> Self {
                // A record never holds more than 2^53 - 1, so the end is out of reach.
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = core::num::ParseIntError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                match u64::deserialize(deserializer)? {
                    number if number <= COUNTER_MAX => Ok(Self(number)),
                    number => Err(de::Error::custom(format_args!(
                        "{number} is above {COUNTER_MAX}, the largest number a record may hold"
                    ))),
                }
            }
        }
    };
}

counter! {
    /// Grows by one whenever anything a router acts on changes. The first is 1.
    ///
    /// ```
    /// use clockwise_cluster::Epoch;
    /// assert!(Epoch::new(41).next() == Epoch::new(42));
    /// ```
    Epoch
}

counter! {
    /// Grows by one at every commit of a record; what a commit compares. 0 was never committed.
    ///
    /// ```
    /// use clockwise_cluster::Revision;
    /// assert!(Revision::new(0) < Revision::new(0).next());
    /// ```
    Revision
}

counter! {
    /// Which credential a node's clients use. Never used twice for one node id, also after its removal.
    ///
    /// ```
    /// use clockwise_cluster::Generation;
    /// assert_eq!(Generation::new(7).next().to_string(), "8");
    /// ```
    Generation
}

counter! {
    /// Of a leadership: each has a higher one than all before it, restarts included.
    ///
    /// ```
    /// use clockwise_cluster::Term;
    /// assert!(Term::new(8) > Term::new(7));
    /// ```
    Term
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_number_that_json_readers_would_round_is_refused() {
        let largest = COUNTER_MAX.to_string();
        assert_eq!(
            serde_json::from_str::<Epoch>(&largest).unwrap(),
            Epoch::new(COUNTER_MAX)
        );
        let error = serde_json::from_str::<Epoch>("9007199254740992").unwrap_err();
        assert!(
            error.to_string().contains("9007199254740992 is above"),
            "{error}"
        );
        assert!(serde_json::from_str::<Epoch>("-1").is_err());
        assert!(serde_json::from_str::<Epoch>("1.5").is_err());
    }
}
