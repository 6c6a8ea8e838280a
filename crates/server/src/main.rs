//! The binary `clockwise`: a thin face over the library's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    clockwise::cli::run()
}
