//! The gate's own test: what the pure crates must not know, planted in a copy of them, turns it red.
//!
//! `placement` and `cluster` are `no_std`, depend on a short list of crates and carry a `clippy.toml`
//! with bans. Here each kind of breach is written into a copy and linted as the gate would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a pure crate may depend on, everything below it included.
const ALLOWED: [(&str, &[&str]); 2] = [
    (
        "clockwise-placement",
        &["clockwise-placement", "siphasher", "xxhash-rust"],
    ),
    (
        "clockwise-cluster",
        &[
            "clockwise-cluster",
            "clockwise-placement",
            "itoa",
            "memchr",
            "proc-macro2",
            "quote",
            "serde",
            "serde_core",
            "serde_derive",
            "serde_json",
            "siphasher",
            "syn",
            "unicode-ident",
            "xxhash-rust",
            "zmij",
        ],
    ),
];

/// A breach: its name, the line planted, and a word of the complaint that must follow.
const BREACHES: [(&str, &str, &str); 8] = [
    ("tokio", "pub use tokio::time;", "E0432"),
    (
        "a clock",
        "pub fn breach() { let _ = std::time::Instant::now(); }",
        "disallowed",
    ),
    (
        "the date",
        "pub fn breach() { let _ = std::time::SystemTime::now(); }",
        "disallowed",
    ),
    (
        "a socket",
        "pub fn breach(_: std::net::TcpStream) {}",
        "disallowed",
    ),
    ("a file", "pub fn breach(_: std::fs::File) {}", "disallowed"),
    (
        "a path to read",
        "pub fn breach() { let _ = std::fs::read(\"x\"); }",
        "disallowed",
    ),
    (
        "a hash map",
        "pub fn breach(_: std::collections::HashMap<u8, u8>) {}",
        "disallowed",
    ),
    (
        "std without asking",
        "use std::collections::BTreeMap as _;",
        "std",
    ),
];

#[test]
fn pure_crates_depend_on_nothing_but_their_list() {
    for (package, allowed) in ALLOWED {
        let output = cargo(&root())
            .args([
                "tree", "--locked", "-p", package, "-e", "normal", "--prefix", "none",
            ])
            .args(["--format", "{p}"])
            .output()
            .expect("cargo tree starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).expect("cargo tree prints text");
        let mut names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names, allowed, "{package} pulls in something new");
    }
}

#[test]
fn a_breach_of_purity_turns_the_gate_red() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    copy_workspace(scratch.path());
    for package in ["placement", "cluster"] {
        let (green, words) = lint(scratch.path(), package);
        assert!(green, "clockwise-{package} as it is:\n{words}");
        let file = scratch
            .path()
            .join("crates")
            .join(package)
            .join("src/lib.rs");
        let clean = fs::read_to_string(&file).expect("the crate's root");
        for (name, line, complaint) in BREACHES {
            // Std must be asked for by name in a `no_std` crate; whoever does so meets the bans.
            let asks = if complaint == "disallowed" {
                "extern crate std;\n"
            } else {
                ""
            };
            let planted = format!("{clean}\n{asks}/// Planted.\n{line}\n");
            fs::write(&file, planted).expect("the copy is ours");
            let (green, words) = lint(scratch.path(), package);
            assert!(!green, "clockwise-{package} was allowed {name}");
            assert!(
                words.contains(complaint),
                "clockwise-{package}, {name}: red for another reason\n{words}"
            );
        }
        fs::write(&file, clean).expect("the copy is ours");
    }
}

/// Lints one crate of the copy as the gate does; says whether it passed, and the words.
fn lint(workspace: &Path, package: &str) -> (bool, String) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("purity");
    let output = cargo(workspace)
        .args([
            "clippy",
            "--offline",
            "--quiet",
            "-p",
            &format!("clockwise-{package}"),
        ])
        .arg("--target-dir")
        .arg(target)
        .args(["--", "-D", "warnings"])
        .output()
        .expect("cargo clippy starts");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// The two pure crates and what they need, as a workspace of their own with the same lock file.
fn copy_workspace(to: &Path) {
    for name in ["Cargo.toml", "Cargo.lock"] {
        fs::copy(root().join(name), to.join(name)).expect("a root file");
    }
    let manifest = to.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).expect("the manifest");
    let members = "members = [\"crates/*\"]";
    assert!(
        text.contains(members),
        "the workspace lists its members otherwise"
    );
    fs::write(&manifest, text).expect("the copy is ours");
    for package in ["placement", "cluster"] {
        let from = root().join("crates").join(package);
        copy_folder(
            &from.join("src"),
            &to.join("crates").join(package).join("src"),
        );
        let manifest = fs::read_to_string(from.join("Cargo.toml")).expect("the crate's manifest");
        // Lints look at the library alone; what tests and benches need stays out of the copy.
        let library = manifest
            .split("[dev-dependencies]")
            .next()
            .unwrap_or_default();
        let library = library.split("[[").next().unwrap_or_default();
        fs::write(to.join("crates").join(package).join("Cargo.toml"), library)
            .expect("the copy is ours");
        fs::copy(
            from.join("clippy.toml"),
            to.join("crates").join(package).join("clippy.toml"),
        )
        .expect("the crate's bans");
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the copy is ours");
    for entry in fs::read_dir(from).expect("a source folder") {
        let entry = entry.expect("a readable folder entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("an entry's type").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a source file");
        }
    }
}

/// Cargo as a person would start it: what nextest or an outer cargo set does not leak in.
fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(folder)
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS");
    command
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace root")
}
