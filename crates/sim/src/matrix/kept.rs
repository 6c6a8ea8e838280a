//! Results that are kept: one line of JSON for each run, in a file for each binary under test.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::run::Ran;
use super::verdict::Verdict;

/// Bytes of the hash in a file's name.
const HASH_BYTES: usize = 8;

/// What was found out about one binary.
#[derive(Debug)]
pub(super) struct Kept {
    file: PathBuf,
    cells: BTreeMap<String, Counts>,
}

/// Runs of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) clean: u64,
    pub(super) void: u64,
    pub(super) violations: u64,
    /// None of those that have run.
    pub(super) next_seed: u64,
}

impl Kept {
    /// Reads what is kept about this binary in a folder.
    ///
    /// # Errors
    /// The binary cannot be read, or a kept line is none of ours.
    pub(super) fn open(folder: &Path, binary: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        // Some tens of megabytes.
        let hash: String = Sha256::digest(fs::read(binary)?)
            .iter()
            .take(HASH_BYTES)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let file = folder.join(format!("runs-{hash}.jsonl"));
        let mut cells = BTreeMap::new();
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        // A line without its end was being written when its writer was killed.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for (number, line) in (1..).zip(whole.lines()) {
            count(&mut cells, line).ok_or_else(|| {
                let file = file.display();
                io::Error::other(format!(
                    "{file}:{number}: not a line of ours; move the file away"
                ))
            })?;
        }
        if whole.len() + 1 < text.len() || (whole.is_empty() && !text.is_empty()) {
            let kept = if whole.is_empty() {
                String::new()
            } else {
                format!("{whole}\n")
            };
            fs::write(&file, kept)?;
        }
        Ok(Self { file, cells })
    }

    pub(super) fn of(&self, cell: &str) -> Counts {
        self.cells.get(cell).copied().unwrap_or_default()
    }

    /// Where it is kept.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Adds a run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add(&mut self, cell: &str, seed: u64, ran: &Ran) -> io::Result<()> {
        let (verdict, why) = match &ran.verdict {
            Verdict::Clean => ("clean", Value::Null),
            Verdict::Void(why) => ("void", json!(why)),
            Verdict::Violation(wrong) => ("violation", json!(wrong)),
        };
        let line = json!({
            "cell": cell, "seed": seed, "verdict": verdict, "why": why, "overlap_ms": ran.overlap_ms,
            "writes_per_second": ran.writes_per_second, "seconds": ran.seconds, "asked": ran.asked,
        })
        .to_string();
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.file)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        count(&mut self.cells, &line);
        Ok(())
    }
}

fn count(cells: &mut BTreeMap<String, Counts>, line: &str) -> Option<()> {
    let line: Value = serde_json::from_str(line).ok()?;
    let seed = line["seed"].as_u64()?;
    let counts = cells.entry(line["cell"].as_str()?.to_owned()).or_default();
    match line["verdict"].as_str()? {
        "clean" => counts.clean += 1,
        "void" => counts.void += 1,
        "violation" => counts.violations += 1,
        _ => return None,
    }
    counts.next_seed = counts.next_seed.max(seed + 1);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(verdict: Verdict) -> Ran {
        Ran {
            verdict,
            overlap_ms: Some(3),
            writes_per_second: Some(2_000),
            seconds: 9.5,
            asked: Vec::new(),
        }
    }

    /// A folder with a binary in it.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("binary");
        fs::write(&binary, "one").unwrap();
        (folder, binary)
    }

    #[test]
    fn it_goes_on_where_it_stopped_and_counts_what_counts() {
        let (folder, binary) = folder();
        let mut kept = Kept::open(folder.path(), &binary).unwrap();
        kept.add("a/b", 0, &ran(Verdict::Clean)).unwrap();
        kept.add("a/b", 1, &ran(Verdict::Void("idle".to_owned())))
            .unwrap();
        kept.add("a/b", 2, &ran(Verdict::Violation(vec!["lost".to_owned()])))
            .unwrap();
        let again = Kept::open(folder.path(), &binary).unwrap();
        let counts = Counts {
            clean: 1,
            void: 1,
            violations: 1,
            next_seed: 3,
        };
        assert_eq!(
            (again.of("a/b"), again.of("c/d")),
            (counts, Counts::default())
        );
    }

    #[test]
    fn another_binary_begins_with_nothing() {
        let (folder, binary) = folder();
        let mut kept = Kept::open(folder.path(), &binary).unwrap();
        kept.add("a/b", 0, &ran(Verdict::Clean)).unwrap();
        fs::write(&binary, "two").unwrap();
        let other = Kept::open(folder.path(), &binary).unwrap();
        assert_eq!(other.of("a/b"), Counts::default());
    }

    #[test]
    fn half_a_line_is_forgotten_and_a_foreign_one_is_refused() {
        let (folder, binary) = folder();
        let mut kept = Kept::open(folder.path(), &binary).unwrap();
        kept.add("a/b", 0, &ran(Verdict::Clean)).unwrap();
        let whole = fs::read_to_string(kept.file()).unwrap();
        fs::write(kept.file(), format!("{whole}{{\"cell\":")).unwrap();
        let mut again = Kept::open(folder.path(), &binary).unwrap();
        again.add("a/b", 1, &ran(Verdict::Clean)).unwrap();
        assert_eq!(
            Kept::open(folder.path(), &binary).unwrap().of("a/b").clean,
            2
        );
        fs::write(kept.file(), "{\"cell\":").unwrap();
        assert_eq!(
            Kept::open(folder.path(), &binary).unwrap().of("a/b").clean,
            0
        );
        fs::write(kept.file(), "words\n").unwrap();
        let refused = Kept::open(folder.path(), &binary).unwrap_err().to_string();
        assert!(refused.contains(":1: not a line of ours"), "{refused}");
    }
}
