//! The shape of the source tree, as a test: what STYLE asks for and a compiler does not see.

use std::fs;
use std::path::{Path, PathBuf};

/// A line that breaks a rule, as a person would want to read it.
type Finding = String;

const LINES_MAX: usize = 700;
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const DRAWERS: [&str; 8] = [
    "util", "utils", "helper", "helpers", "common", "misc", "manager", "types",
];

/// Folders that hold no text of ours.
const SKIPPED: [&str; 6] = [
    "target",
    ".git",
    ".tools",
    "node_modules",
    "vectors",
    "clockwise-data",
];

#[test]
fn the_tree_keeps_its_shape() {
    let root = root();
    let own_path = format!("{}/", root.display());
    let mut findings = Vec::new();
    let mut rust_files = 0;
    for path in files_below(&root) {
        let name = path.strip_prefix(&root).expect("walked from the root");
        let bytes = fs::metadata(&path).expect("a file just listed").len();
        if bytes > FILE_BYTES_MAX {
            findings.push(format!("{}: {bytes} bytes in one file", name.display()));
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        rust_files += usize::from(is_rust(name));
        findings.extend(check(name, &text, &own_path));
    }
    assert!(
        rust_files > 5,
        "the walk found only {rust_files} Rust files below {}",
        root.display()
    );
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn each_rule_sees_what_it_forbids() {
    let bang = '!';
    let planted = [
        ("crates/a/src/utils.rs", "//! Docs.".to_owned()),
        (
            "crates/a/src/x.rs",
            format!("//! Docs.\nfn f() {{ todo{bang}() }}"),
        ),
        (
            "crates/a/src/x.rs",
            format!("//! Docs.\nfn f() {{ unimplemented{bang}(\"later\") }}"),
        ),
        (
            "crates/a/src/x.rs",
            format!("//! Docs.\nfn f() {{ dbg{bang}(1); }}"),
        ),
        (
            "crates/a/src/x.rs",
            format!("//! Docs.\n#[{}]\nfn f() {{}}", "ignore"),
        ),
        (
            "crates/a/src/x.rs",
            format!("//! Docs.\n#[allow({})]\nfn f() {{}}", "dead_code"),
        ),
        (
            "crates/a/src/x.rs",
            format!("//! Docs.\n#![expect({})]", "unused"),
        ),
        ("crates/a/src/x.rs", "fn undocumented() {}".to_owned()),
        ("crates/a/src/x.rs", "//! Docs.\n".repeat(LINES_MAX + 1)),
        (
            "crates/a/tests/x.rs",
            format!("//! Docs.\nfn f() {{ thread::{}(d); }}", "sleep"),
        ),
        (
            "crates/cluster/src/x.rs",
            format!("//! Docs.\nextern crate {};", "std"),
        ),
        (
            "README.md",
            "Run /srv/checkout/clockwise/target/x".to_owned(),
        ),
        (
            "README.md",
            format!("Look at {}/someone/clockwise", "/home"),
        ),
    ];
    for (name, text) in planted {
        let findings = check(Path::new(name), &text, "/srv/checkout/");
        let start: String = text.chars().take(60).collect();
        assert_eq!(findings.len(), 1, "{name}: {start:?} gave {findings:?}");
    }
    let fine = "//! Docs.\n#[cfg(test)]\nextern crate std;\n";
    assert_eq!(
        check(Path::new("crates/cluster/src/lib.rs"), fine, "/srv/"),
        Vec::<Finding>::new()
    );
}

/// Every rule, over one file. `own_path` is where this tree happens to lie on this machine.
fn check(name: &Path, text: &str, own_path: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, what: &str| {
        findings.push(format!("{}:{line}: {what}", name.display()));
    };
    if is_rust(name) {
        let stem = name
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        if DRAWERS.contains(&stem) {
            find(1, "a drawer, not a name");
        }
        // Tests beside their module are about that module.
        if stem != "tests" && !text.trim_start().starts_with("//!") {
            find(1, "a file starts with what it is about (`//!`)");
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            find(lines, "one idea a file: too long");
        }
    }
    let in_tests = is_rust(name) && name.components().any(|part| part.as_os_str() == "tests");
    let in_pure_crate = ["crates/placement/src", "crates/cluster/src"]
        .iter()
        .any(|p| name.starts_with(p));
    let mut previous = "";
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if is_rust(name) {
            for (needle, what) in forbidden_in_rust() {
                if line.contains(&needle) {
                    find(number, what);
                }
            }
            if in_tests && line.contains(concat!("::", "sleep(")) {
                find(number, "wait for the fact, not for the clock");
            }
            let brings_std = line.contains(concat!("extern crate ", "std"));
            if in_pure_crate && brings_std && !previous.contains("cfg(test)") {
                find(number, "a pure crate stays without std");
            }
        }
        let homes = [concat!("/ho", "me/"), concat!("/ro", "ot/")];
        if line.contains(own_path) || homes.iter().any(|home| line.contains(home)) {
            find(number, "a path of one machine");
        }
        previous = line;
    }
    findings
}

fn forbidden_in_rust() -> Vec<(String, &'static str)> {
    let mut rules = Vec::new();
    for name in ["todo", "unimplemented", "dbg"] {
        rules.push((format!("{name}!("), "unfinished work"));
    }
    rules.push((format!("#[{}", "ignore"), "a test runs or does not exist"));
    for attribute in ["allow", "expect"] {
        for lint in ["dead_code", "unused"] {
            rules.push((format!("{attribute}({lint}"), "dead code is deleted"));
        }
    }
    rules
}

fn is_rust(name: &Path) -> bool {
    name.extension().is_some_and(|extension| extension == "rs")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace root")
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let entry = entry.expect("a readable folder entry");
        let kind = entry.file_type().expect("an entry's type");
        let skipped = SKIPPED.iter().any(|name| entry.file_name() == *name);
        if kind.is_dir() && !skipped {
            found.extend(files_below(&entry.path()));
        } else if kind.is_file() && entry.file_name() != ".git" {
            found.push(entry.path());
        }
    }
    found
}
