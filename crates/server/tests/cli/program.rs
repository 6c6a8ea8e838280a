//! Running the real binary and reading what it says.

use std::process::{Command, Stdio};

use serde_json::Value;

/// What a finished run said and answered.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) exit: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The answer as JSON, of the kind and version that it must name.
    pub(crate) fn json(&self, kind: &str) -> Value {
        assert_eq!(self.exit, 0, "{self:?}");
        let value: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("no JSON: {self:?}"));
        assert_eq!(
            (&value["apiVersion"], &value["kind"]),
            (&"clockwise/v1".into(), &kind.into())
        );
        assert!(
            value.get("epoch").is_some(),
            "every answer names its epoch: {value}"
        );
        value
    }
}

/// The binary, with nothing of the caller's settings in its environment.
pub(crate) fn clockwise() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clockwise"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CLOCKWISE_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Runs the binary to its end.
pub(crate) fn run(args: &[&str]) -> Run {
    let output = clockwise().args(args).output().expect("the binary starts");
    Run {
        exit: output.status.code().expect("it ends by itself"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}
