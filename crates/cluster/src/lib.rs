//! Placeholder.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;
pub mod copier;
