//! The client over real redis-servers, whose users these tests make and remove as a rebalancer would.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod callers;
mod calls;
#[cfg(feature = "etcd")]
mod etcd_away;
mod faults;
mod floods;
mod pool;
mod views;
