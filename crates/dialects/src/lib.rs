//! Placements of other programs, key for key.
//!
//! A dialect is a [`Recipe`](clockwise_placement::Recipe): it turns keys and points into positions as the
//! other program does, and the core does the rest. [`article`] has the schemes of the two articles whose
//! published figures we meet exactly.
#![no_std]

extern crate alloc;

pub mod article;

use clockwise_placement::Scheme;

/// The names of all schemes, ours first.
pub const SCHEMES: [&str; 3] = ["clockwise/v1", "article-md5", "article-sha256"];

/// The scheme of this name with its defaults.
///
/// ```
/// assert!(clockwise_dialects::SCHEMES.iter().all(|name| {
///     clockwise_dialects::scheme(name).is_some_and(|scheme| scheme.name() == *name)
/// }));
/// ```
#[must_use]
pub fn scheme(name: &str) -> Option<Scheme> {
    match name {
        "clockwise/v1" => Some(Scheme::default()),
        "article-md5" => Some(article::article_md5()),
        "article-sha256" => Some(article::article_sha256()),
        _ => None,
    }
}
