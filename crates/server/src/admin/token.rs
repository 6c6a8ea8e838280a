//! The token that calls which change something must show. It can be changed while the API serves.

use std::sync::{Arc, PoisonError, RwLock};

use clockwise_client::credentials::Password;

/// Clones are the same token, also after it was changed.
#[derive(Clone, Debug)]
pub struct Token(Arc<RwLock<Password>>);

impl Token {
    /// What it is now.
    #[must_use]
    pub fn now(&self) -> Password {
        // One assignment each, so a panic elsewhere leaves it whole.
        let token = self.0.read().unwrap_or_else(PoisonError::into_inner);
        token.clone()
    }

    /// Calls have to show this one from now on.
    pub fn change(&self, to: Password) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = to;
    }

    /// Whether this is the token.
    pub(super) fn matches(&self, shown: &str) -> bool {
        let token = self.0.read().unwrap_or_else(PoisonError::into_inner);
        token.matches(shown)
    }
}

impl From<Password> for Token {
    fn from(token: Password) -> Self {
        Self(Arc::new(RwLock::new(token)))
    }
}
