//! One process that is a whole small cluster.

mod answer;
mod card;
mod continued;
pub mod data_dir;
pub mod down;
pub mod error;
pub mod first;
pub mod fleet;
pub mod node_server;
pub mod placing;
mod port;
pub mod process;
mod retire;
pub mod run;
pub mod settings;
