//! How much a process that serves says on stderr.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What is said unless somebody asks for more or less.
pub(crate) const USUAL: &str = "info";

/// A level alone, such as `debug`, is how much clockwise says; other words are tracing's own.
///
/// # Errors
/// What is wrong with the words.
pub(crate) fn filter(words: &str) -> Result<EnvFilter, String> {
    if words.trim().is_empty() {
        return Err("nothing is said".to_owned());
    }
    let own = match words.contains(['=', ',', '[']) {
        true => words.to_owned(),
        false => {
            let level = LevelFilter::from_str(words).map_err(|_| {
                format!("{words:?} is no level: off, error, warn, info, debug or trace")
            })?;
            // What others say below a warning is of use to their authors.
            format!("warn,clockwise={level}")
        }
    };
    EnvFilter::try_new(own).map_err(|error| format!("{words:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_about_clockwise_and_nonsense_is_refused() {
        assert_eq!(filter("debug").unwrap().to_string(), "clockwise=debug,warn");
        assert!(filter("h2=debug,clockwise=off").is_ok());
        for wrong in ["", "loud", "a=b=c"] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }
}
