//! The planted bugs that are patches: each still applies to this tree, and says what it breaks and what notices.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors()
        .nth(2)
        .expect("below the root")
        .to_path_buf()
}

fn patches() -> Vec<PathBuf> {
    let folder = root().join("crates/sim/planted");
    let entries = fs::read_dir(folder).expect("the folder of the patches");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

#[test]
fn every_patch_still_applies() {
    let mut stale = Vec::new();
    for patch in patches() {
        let applied = Command::new("git")
            .args(["apply", "--check", "--whitespace=nowarn"])
            .arg(&patch)
            .current_dir(root())
            .output()
            .expect("git is there");
        if !applied.status.success() {
            let said = String::from_utf8_lossy(&applied.stderr).into_owned();
            stale.push(format!("{}: {said}", patch.display()));
        }
    }
    assert!(stale.is_empty(), "{}", stale.join("\n"));
}

#[test]
fn every_patch_says_what_it_breaks_and_what_notices() {
    let patches = patches();
    assert!(patches.len() >= 20, "there are only {}", patches.len());
    for patch in patches {
        let text = fs::read_to_string(&patch).expect("a patch is text");
        let head: Vec<&str> = text.lines().take(2).collect();
        assert!(
            head[0].starts_with("rule: ") && head[1].starts_with("caught by: "),
            "{}: {head:?}",
            patch.display()
        );
        let check = head[1].trim_start_matches("caught by: ");
        let known = ["seeds ", "model ", "test -p "];
        assert!(
            known.iter().any(|kind| check.starts_with(kind)),
            "{}: {check}",
            patch.display()
        );
    }
}
