//! Ctrl-C while the command line only watches: it says what goes on, and answers 130.

use std::thread;

use super::exit::Failure;
use super::output::{self, Format};

/// From now on an interrupt says this and ends the process.
pub(super) fn explain(interrupted: Failure, format: Format) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    // Without it an interrupt ends the process as the system does it: silently, and the work goes on all the same.
    let Ok(runtime) = runtime else { return };
    thread::spawn(move || {
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            if format == Format::Table {
                // Behind the terminal's ^C.
                output::say("");
            }
            output::fail(&interrupted, format);
            std::process::exit(i32::from(interrupted.exit as u8));
        }
    });
}
