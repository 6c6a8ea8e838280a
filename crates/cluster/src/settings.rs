//! Settings that decide no ownership, each changed by a record of its own.

use alloc::string::String;
use alloc::vec::Vec;

use crate::InvalidRecord;
use crate::record::{Options, Record, Throttle};

impl Record {
    /// The record with another throttle, also while a change runs. Routers see no difference.
    ///
    /// ```
    /// use clockwise_cluster::{NewNode, NewPool, Nonce, Record, Throttle};
    /// let a = NewNode::new("a".parse()?, "127.0.0.1:7001".parse()?);
    /// let record = Record::create(NewPool::new("main".parse()?, vec![a]), &mut || Nonce::new([7; 16]))?;
    /// let throttle = Throttle { keys_per_second: 10_000, bytes_per_second: 0 };
    /// assert_eq!(record.with_throttle(throttle).options().throttle, throttle);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_throttle(&self, throttle: Throttle) -> Self {
        let options = Options {
            throttle,
            ..self.options.clone()
        };
        Self {
            options,
            ..self.clone()
        }
    }

    /// The record with scripts allowed or not. Routers act on it, so it begins an epoch.
    #[must_use]
    pub fn with_scripts(&self, scripts: bool) -> Self {
        let options = Options {
            scripts,
            ..self.options.clone()
        };
        Self {
            options,
            epoch: self.epoch.next(),
            ..self.clone()
        }
    }

    /// The record with `flush_all` allowed to clients or not. Routers act on it, so it begins an epoch.
    #[must_use]
    pub fn with_flush_all(&self, flush_all: bool) -> Self {
        let options = Options {
            flush_all,
            ..self.options.clone()
        };
        Self {
            options,
            epoch: self.epoch.next(),
            ..self.clone()
        }
    }

    /// The record with these users allowed to write on the nodes although they are not ours.
    ///
    /// # Errors
    /// Too many names, or one that is no user name.
    pub fn with_foreign_writers(&self, names: Vec<String>) -> Result<Self, InvalidRecord> {
        let options = Options {
            foreign_writers: names,
            ..self.options.clone()
        };
        let next = Self {
            options,
            ..self.clone()
        };
        next.check()?;
        Ok(next)
    }
}
