//! Ctrl-C while the command line only watches: it says what goes on, and answers 130.

use std::thread;

use super::exit::Exit;
use super::output;

/// From now on an interrupt prints these words and ends the process.
pub(super) fn explain(words: &'static str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    // Without it an interrupt ends the process as the system does it: silently, and the work goes on all the same.
    let Ok(runtime) = runtime else { return };
    thread::spawn(move || {
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            output::say(format_args!("\n{words}"));
            std::process::exit(i32::from(Exit::Interrupted as u8));
        }
    });
}
