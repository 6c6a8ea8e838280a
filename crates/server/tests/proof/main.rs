//! What clockwise promises, against real servers: router, rebalancer and store in one process as `up` has
//! them, or in a process of their own where it is to be killed. One fact a file.
//!
//! Variables, all optional: `CLOCKWISE_SEED` (a seed for what is random; each run prints its own),
//! `CLOCKWISE_PROOF_RUNS` (how often the headline is repeated; 3 by default), `CLOCKWISE_PROOF_CELLS=all` (a kill at
//! every commit of a move, not at some).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod child;
mod client;
mod commits;
mod events;
mod keys;
mod load;
mod meddling;
mod points;
mod pool;
mod product;
mod serving;
mod values;

mod abort;
mod apply_twice;
mod barrier;
mod behind_our_back;
mod big_hash;
mod busy;
mod crash;
mod every_type;
mod falsified;
mod foreign_writer;
mod groups;
mod headline;
mod large_stream;
mod library;
mod lost_node;
mod out_of_memory;
mod packages;
mod panics;
mod persisted;
mod replica;
mod throttle;
mod up_killed;
mod users;
