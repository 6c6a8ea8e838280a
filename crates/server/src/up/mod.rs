//! One process that is a whole small cluster.

mod answer;
mod card;
mod continued;
pub mod data_dir;
mod doors;
pub mod down;
pub mod error;
pub mod first;
pub mod fleet;
mod own_thread;
pub mod parts;
pub mod placing;
mod port;
pub mod process;
pub mod redis_server;
mod registered;
mod retire;
pub mod run;
pub mod settings;
mod signals;
mod terms;
mod views;
