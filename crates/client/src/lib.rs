//! Placeholder.

pub mod resp;
pub mod routing;
