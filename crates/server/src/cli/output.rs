//! What goes to stdout: one JSON document, or text for a person. Talk goes to stderr.

use std::fmt;
use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::exit::{ErrorText, Exit, Failure};
use crate::admin::API_VERSION;

/// In which form a verb answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text for a person.
    Table,
    /// One JSON document; fields are only ever added.
    Json,
}

/// What every JSON answer begins with.
#[derive(Serialize)]
struct Envelope<'a, T> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    epoch: Option<u64>,
    #[serde(flatten)]
    body: &'a T,
}

/// Prints an answer as JSON. Verbs that look at no record have no epoch.
///
/// # Errors
/// When stdout is closed.
pub fn json<T: Serialize>(kind: &'static str, epoch: Option<u64>, body: &T) -> Result<(), Failure> {
    let envelope = Envelope {
        api_version: API_VERSION,
        kind,
        epoch,
        body,
    };
    let text = serde_json::to_string_pretty(&envelope).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("answer cannot be written as JSON: {error}"),
        )
    })?;
    line(&text)
}

/// Says something to the person at stderr. Where nobody takes it there is nothing more to do: what was asked for
/// does not end for that.
pub fn say(words: impl fmt::Display) {
    let _unheard = writeln!(io::stderr().lock(), "{words}");
}

/// Says at stderr why a verb did not do what it was told: in words, or as one line of JSON.
pub(super) fn fail(failure: &Failure, format: Format) {
    #[derive(Serialize)]
    struct Body<'a> {
        error: ErrorText<'a>,
    }
    let envelope = Envelope {
        api_version: API_VERSION,
        kind: "Error",
        epoch: None,
        body: &Body {
            error: failure.error(),
        },
    };
    match (format, serde_json::to_string(&envelope)) {
        (Format::Json, Ok(text)) => say(text),
        (Format::Json, Err(_)) | (Format::Table, _) => say(failure),
    }
}

/// Prints text and a line end. A reader that went away (`| head`) is no failure.
///
/// # Errors
/// When stdout is closed otherwise.
pub fn line(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Failed, format!("stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// A table without borders; the named columns hold numbers and lean to the right.
#[must_use]
pub fn table(header: &[&str], numbers: &[usize], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(header.iter().copied());
    table.add_rows(rows);
    for &column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    // Every cell has a space on either side; a line starts with its first letter.
    let trimmed = |line: String| {
        line.strip_prefix(' ')
            .unwrap_or(&line)
            .trim_end()
            .to_owned()
    };
    table.lines().map(trimmed).collect::<Vec<_>>().join("\n")
}

/// A share of the whole in percent.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A count with thin groups of three: `1,234,567`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the largest unit that keeps them above one.
#[must_use]
pub fn bytes(number: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    for (size, unit) in UNITS {
        if number >= size {
            let tenths = number / (size / 10).max(1);
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{number} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let counts: Vec<_> = [0, 999, 1000, 1_234_567].into_iter().map(count).collect();
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
        let sizes: Vec<_> = [0, 1023, 1536, 5 << 30].into_iter().map(bytes).collect();
        assert_eq!(sizes, ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
    }
}
