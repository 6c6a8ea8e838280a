//! `clockwise-sim planted --patches`: bugs as patches, each of which a named check has to catch.
//!
//! Each file of `crates/sim/planted` begins with the rule that it breaks and with what has to notice. It is
//! applied to a copy of the tree below `target/planted`, which keeps what it has built, so that each costs one
//! incremental build. A patch that does not apply any more, that does not compile, or whose check stays green is
//! a failure. So is a check that does not end in time, unless the patch has a line `never ends:` that says why it
//! does not.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::Duration;

use crate::ended::{Ended, within};

/// Folders of the tree that are not copied.
const SKIPPED: [&str; 5] = ["target", ".git", ".tools", "clockwise-data", "node_modules"];

/// Minutes, since a check may share its cores with all else that the gate does.
const CHECK_LIMIT: Duration = Duration::from_secs(300);
/// A first build of the server and all that it needs.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// A patch, as its head says.
struct Patch {
    name: String,
    file: PathBuf,
    rule: String,
    check: Vec<String>,
    end: End,
}

/// Whether a check comes to its end with a patch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Comes,
    /// That it does not is how the bug shows.
    Never,
}

/// What came of a patch.
#[derive(PartialEq, Eq, Debug)]
enum Outcome {
    Caught,
    Missed(String),
}

/// Plants the patches of these names, or all of them, or `--some N` that the newest commit picks.
pub(crate) fn run_command(args: &[&str]) -> ExitCode {
    let done = match args {
        ["--some", count] => match count.parse() {
            Ok(count) => some(count).and_then(|names| {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                run(&names)
            }),
            Err(error) => Err(io::Error::other(format!("--some {count}: {error}"))),
        },
        names => run(names),
    };
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(missed) => {
            println!("{missed} not caught");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn run(names: &[&str]) -> io::Result<usize> {
    let root = root();
    let patches = read_patches(&root)?;
    if let Some(unknown) = names
        .iter()
        .find(|name| !patches.iter().any(|patch| patch.name == **name))
    {
        let known: Vec<&str> = patches.iter().map(|patch| patch.name.as_str()).collect();
        let what = format!(
            "no patch is called {unknown}; there are: {}",
            known.join(", ")
        );
        return Err(io::Error::other(what));
    }
    let place = root.join("target").join("planted");
    let copy = Copy {
        tree: place.join("tree"),
        build: place.join("build"),
    };
    let chosen = patches
        .iter()
        .filter(|patch| names.is_empty() || names.contains(&patch.name.as_str()));
    let mut missed = 0;
    for patch in chosen {
        sync(&root, &copy.tree)?;
        match copy.plant(patch)? {
            Outcome::Caught => println!("{}: caught by {}", patch.name, patch.check.join(" ")),
            Outcome::Missed(why) => {
                missed += 1;
                println!(
                    "{}: NOT CAUGHT: {why} (it breaks: {})",
                    patch.name, patch.rule
                );
            }
        }
    }
    sync(&root, &copy.tree)?;
    Ok(missed)
}

/// So many of those that are cheap to build, others with every commit.
fn some(count: usize) -> io::Result<Vec<String>> {
    let root = root();
    let pick = number_of_commit(&root)?;
    let mut patches = read_patches(&root)?;
    // The server and what it needs take minutes to build.
    patches.retain(|patch| {
        !patch
            .check
            .windows(2)
            .any(|words| words == ["-p", "clockwise"])
    });
    let all = patches.len();
    Ok((0..count.min(all))
        .map(|at| patches[(pick + at) % all].name.clone())
        .collect())
}

/// Another with every commit.
pub(crate) fn number_of_commit(root: &Path) -> io::Result<usize> {
    let head = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(root)
        .output()?;
    if !head.status.success() {
        let why = String::from_utf8_lossy(&head.stderr);
        eprintln!(
            "no commit to pick by, so the first are picked: {}",
            why.trim()
        );
    }
    let digits = String::from_utf8_lossy(&head.stdout)
        .chars()
        .take(8)
        .collect::<String>();
    Ok(usize::from_str_radix(&digits, 16).unwrap_or(0))
}

pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_path_buf()
}

/// The patches in the order of their names.
fn read_patches(root: &Path) -> io::Result<Vec<Patch>> {
    let mut files: Vec<PathBuf> = fs::read_dir(root.join("crates/sim/planted"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    files.retain(|file| file.extension() == Some(OsStr::new("patch")));
    files.sort();
    files.into_iter().map(read_patch).collect()
}

fn read_patch(file: PathBuf) -> io::Result<Patch> {
    let text = fs::read_to_string(&file)?;
    let head = |word: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(word));
        let missing = || io::Error::other(format!("{} has no line {word:?}", file.display()));
        line.map(|line| line.trim().to_owned()).ok_or_else(missing)
    };
    let (rule, check) = (head("rule:")?, head("caught by:")?);
    let end = match head("never ends:") {
        Ok(_why) => End::Never,
        Err(_) => End::Comes,
    };
    let name = file.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    Ok(Patch {
        name: name.to_owned(),
        rule,
        check: check.split_whitespace().map(str::to_owned).collect(),
        end,
        file,
    })
}

/// A copy of the tree, and where it is built.
struct Copy {
    tree: PathBuf,
    build: PathBuf,
}

impl Copy {
    fn plant(&self, patch: &Patch) -> io::Result<Outcome> {
        let applied = Command::new("git")
            .args(["apply", "--whitespace=nowarn"])
            .arg(&patch.file)
            .current_dir(&self.tree)
            // The repository around the copy is of no concern.
            .env(
                "GIT_CEILING_DIRECTORIES",
                self.tree.parent().unwrap_or(&self.tree),
            )
            .output()?;
        if !applied.status.success() {
            return Ok(Outcome::Missed(format!(
                "it does not apply: {}",
                last_lines(&applied)
            )));
        }
        let (build, check) = commands(&patch.check);
        match within(BUILD_LIMIT, &mut self.cargo(&build))? {
            Ended::ByItself(built) if built.status.success() => {}
            Ended::ByItself(built) => {
                return Ok(Outcome::Missed(format!(
                    "it does not compile: {}",
                    last_lines(&built)
                )));
            }
            Ended::Killed => {
                let minutes = BUILD_LIMIT.as_secs() / 60;
                let why = format!("it was not built within {minutes} minutes");
                return Ok(Outcome::Missed(why));
            }
        }
        judged(patch, CHECK_LIMIT, &mut self.cargo(&check))
    }

    fn cargo(&self, args: &[String]) -> Command {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(args)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.build)
            .env("RUST_BACKTRACE", "0");
        cargo
    }
}

/// Runs the check of a patch and says whether it noticed.
fn judged(patch: &Patch, limit: Duration, check: &mut Command) -> io::Result<Outcome> {
    let named = patch.check.join(" ");
    Ok(match (within(limit, check)?, patch.end) {
        (Ended::ByItself(output), _) if output.status.success() => {
            Outcome::Missed(format!("{named} stays green"))
        }
        (Ended::ByItself(_), _) | (Ended::Killed, End::Never) => Outcome::Caught,
        (Ended::Killed, End::Comes) => Outcome::Missed(format!(
            "{named} did not end within {} s and was killed; if that is how the bug shows, give the patch a line \
             \"never ends:\" that says why",
            limit.as_secs()
        )),
    })
}

/// What builds a check, and what runs it.
fn commands(check: &[String]) -> (Vec<String>, Vec<String>) {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    match check.split_first() {
        Some((first, rest)) if first == "test" => {
            let run = [words("test --locked"), rest.to_vec()].concat();
            (build_of(&run), run)
        }
        _ => {
            let own = words("--locked -p clockwise-sim --bin clockwise-sim");
            let build = [words("build"), own.clone()].concat();
            let mut run = [words("run"), own, words("--"), check.to_vec()].concat();
            if check.first().is_some_and(|first| first == "seeds") {
                run.push("--first".to_owned());
            }
            (build, run)
        }
    }
}

/// The same without running anything.
fn build_of(run: &[String]) -> Vec<String> {
    let mut build = run.to_vec();
    build.insert(1, "--no-run".to_owned());
    build
}

fn last_lines(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("error"))
        .take(3)
        .collect();
    lines.join("; ")
}

/// Makes `to` equal to `from`; what is equal already stays untouched, so that it is not built again.
fn sync(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        if SKIPPED.iter().any(|skipped| name == *skipped) {
            continue;
        }
        if kind.is_dir() {
            sync(&entry.path(), &to.join(&name))?;
        } else if kind.is_file() {
            let bytes = fs::read(entry.path())?;
            let place = to.join(&name);
            if fs::read(&place).ok().as_ref() != Some(&bytes) {
                fs::write(place, bytes)?;
            }
        }
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !from.join(entry.file_name()).exists() {
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than a script takes that ends.
    const AMPLE: Duration = Duration::from_secs(60);
    /// For one that never does.
    const SHORT: Duration = Duration::from_millis(100);

    fn judge(end: End, limit: Duration, check: &str) -> Outcome {
        let patch = Patch {
            name: "a-bug".to_owned(),
            file: PathBuf::new(),
            rule: "A rule.".to_owned(),
            check: vec!["seeds".to_owned(), "1".to_owned()],
            end,
        };
        judged(&patch, limit, Command::new("sh").args(["-c", check])).unwrap()
    }

    #[test]
    fn a_check_that_never_ends_is_a_failure_unless_the_patch_says_so() {
        let Outcome::Missed(why) = judge(End::Comes, SHORT, "tail -f /dev/null") else {
            panic!("nobody said that it would not end");
        };
        assert!(why.starts_with("seeds 1 did not end within"), "{why}");
        let caught = judge(End::Never, SHORT, "tail -f /dev/null");
        assert_eq!(caught, Outcome::Caught);
    }

    #[test]
    fn a_red_check_has_caught_the_bug_and_a_green_one_has_not() {
        for end in [End::Comes, End::Never] {
            assert_eq!(judge(end, AMPLE, "exit 1"), Outcome::Caught);
            let green = Outcome::Missed("seeds 1 stays green".to_owned());
            assert_eq!(judge(end, AMPLE, "exit 0"), green);
        }
    }
}
