//! What is wrong with a configuration, by file, line and field.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1; none where something is missing.
    pub line: Option<usize>,
    /// The field, with its section: `router.listen`.
    pub field: Option<String>,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(field) = &self.field {
            write!(f, ": {field}")?;
        }
        write!(f, ": {}", self.why)
    }
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self(vec![fault])
    }
}

/// Finds lines and fields in the text of a configuration, and collects what is wrong.
pub(super) struct Finder<'a> {
    file: &'a Path,
    text: &'a str,
    found: Vec<Fault>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(file: &'a Path, text: &'a str) -> Self {
        let found = Vec::new();
        Self { file, text, found }
    }

    /// Something at this place of the text.
    pub(super) fn at(&mut self, span: Range<usize>, why: impl fmt::Display) {
        let fault = Fault {
            file: self.file.to_owned(),
            line: Some(self.line(span.start)),
            field: self.field(span.start),
            why: why.to_string(),
        };
        self.found.push(fault);
    }

    /// Something that is not there.
    pub(super) fn missing(&mut self, field: &str, why: impl fmt::Display) {
        let fault = Fault {
            file: self.file.to_owned(),
            line: None,
            field: Some(field.to_owned()),
            why: why.to_string(),
        };
        self.found.push(fault);
    }

    /// What the reader of TOML says.
    pub(super) fn unread(mut self, error: &toml::de::Error) -> Faults {
        // It counts what was expected in full; the first sentence says what is wrong.
        match error.span() {
            Some(span) => self.at(span, error.message()),
            None => self.missing("", error.message()),
        }
        for fault in &mut self.found {
            fault.field = fault.field.take().filter(|field| !field.is_empty());
        }
        Faults(self.found)
    }

    /// What was made of the text, unless something was wrong.
    pub(super) fn end<T>(self, made: Option<T>) -> Result<T, Faults> {
        match made {
            Some(made) if self.found.is_empty() => Ok(made),
            _ => Err(Faults(self.found)),
        }
    }

    fn line(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or(self.text);
        before.matches('\n').count() + 1
    }

    /// The key of the assignment that this place is in, behind the section it stands in.
    fn field(&self, at: usize) -> Option<String> {
        let until = self.line(at);
        let lines: Vec<&str> = self.text.lines().take(until).collect();
        let key = |line: &&&str| {
            let (key, _) = line.split_once('=')?;
            let key = key.trim();
            let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.\"".contains(letter);
            (!key.is_empty() && key.chars().all(plain)).then(|| key.to_owned())
        };
        let section = |line: &&str| {
            let line = line.trim();
            let name = line.strip_prefix('[')?.split(']').next()?;
            Some(name.trim_matches('[').trim().to_owned())
        };
        let header = lines.iter().rposition(|line| {
            line.trim_start().starts_with('[')
                && section(line).is_some_and(|s| !s.is_empty() && !s.contains('"'))
        });
        let behind = header.map_or(0, |at| at + 1);
        let key = lines[behind..].iter().rev().find_map(|line| key(&line));
        let section = header.and_then(|at| section(&lines[at]));
        match (section, key) {
            (Some(section), Some(key)) => Some(format!("{section}.{key}")),
            (section, key) => key.or(section),
        }
    }
}
