//! Golden scripts of the handoff: what happens, `----`, what the machine asks for.
//!
//! Each `*.txt` beside this file is one story; its first lines say which. A block is one or more lines
//! of script, `----`, and the orders that follow, up to an empty line. `CLOCKWISE_GOLDEN=write` rewrites the expected
//! halves; read the difference before committing it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "stories are files")]

mod book;
mod every_order;
mod facts;
mod rules;
mod script;
mod watch;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use script::Script;

fn stories() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/handoff");
    let entries = fs::read_dir(folder).expect("the folder of this file exists");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let mut stories: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|ext| ext == "txt"))
        .collect();
    stories.sort();
    stories
}

/// The text with every expected half replaced by what really follows.
fn replayed(text: &str) -> String {
    let mut script = Script::default();
    let mut out = String::new();
    for block in text.trim_end().split("\n\n") {
        if !out.is_empty() {
            out.push('\n');
        }
        let Some((lines, _)) = block.split_once("\n----") else {
            assert!(
                block.lines().all(|line| line.starts_with('#')),
                "a block without ----:\n{block}"
            );
            out.push_str(block);
            out.push('\n');
            continue;
        };
        out.push_str(lines);
        out.push_str("\n----\n");
        for line in lines.lines().filter(|line| !line.starts_with('#')) {
            println!("{line}");
            out.push_str(&script.run(line));
        }
    }
    out
}

#[test]
fn every_story_goes_as_written() {
    let stories = stories();
    let count = stories.len();
    let write = std::env::var_os("CLOCKWISE_GOLDEN").is_some_and(|value| value == "write");
    let mut different = Vec::new();
    for path in stories {
        println!("{}", path.display());
        let text = fs::read_to_string(&path).expect("a readable story");
        let replayed = replayed(&text);
        if replayed != text && write {
            fs::write(&path, &replayed).expect("a writable story");
        } else if replayed != text {
            different.push(format!(
                "{}:\n{}",
                path.display(),
                first_difference(&text, &replayed)
            ));
        }
    }
    assert!(count >= 10, "only {count} stories");
    assert!(different.is_empty(), "{}", different.join("\n"));
}

fn first_difference(written: &str, replayed: &str) -> String {
    let mut lines = written.lines().zip(replayed.lines()).enumerate();
    match lines.find(|(_, (written, replayed))| written != replayed) {
        Some((at, (written, replayed))) => {
            format!(
                "line {}\n  written:  {written}\n  replayed: {replayed}",
                at + 1
            )
        }
        None => "one is longer than the other".to_string(),
    }
}
