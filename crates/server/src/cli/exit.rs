//! What the process answers to its caller, and why.

use std::fmt;
use std::process::ExitCode;

use serde::Serialize;

use super::given::Given;
use crate::admin::refusal::{Code, Refusal};
use crate::running::error::{Listens, RunError};
use crate::up::error::UpError;

/// The documented exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, or nothing to do.
    Done = 0,
    /// It failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Changes are pending, where that was asked for.
    Pending = 3,
    /// Something is unhealthy or does not match.
    Unhealthy = 4,
    /// The epoch moved meanwhile.
    Conflict = 5,
    /// The record's store cannot be reached.
    StoreUnreachable = 6,
    /// A guard refused.
    Guard = 7,
    /// Interrupted; long work goes on in the server.
    Interrupted = 130,
}

impl Exit {
    /// Its name in the JSON of a failure.
    const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Pending => "pending",
            Self::Unhealthy => "unhealthy",
            Self::Conflict => "conflict",
            Self::StoreUnreachable => "store_unreachable",
            Self::Guard => "guard",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<Code> for Exit {
    fn from(code: Code) -> Self {
        match code {
            Code::Invalid => Self::Usage,
            Code::Conflict => Self::Conflict,
            Code::StoreUnreachable => Self::StoreUnreachable,
            Code::Guard => Self::Guard,
            Code::Unhealthy => Self::Unhealthy,
            Code::NotFound
            | Code::Unfit
            | Code::MethodNotAllowed
            | Code::ForeignHost
            | Code::ForeignOrigin
            | Code::Unauthorised
            | Code::NotJson
            | Code::TooLarge
            | Code::TimedOut
            | Code::Failed => Self::Failed,
        }
    }
}

/// Why a verb did not do what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the process answers.
    pub exit: Exit,
    /// The kind of the server's refusal, where it was the server that refused.
    pub refused: Option<Code>,
    /// In words.
    pub message: String,
    /// What to type or look at next.
    pub next: Option<String>,
}

impl Failure {
    /// A failure without advice.
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self {
            exit,
            refused: None,
            message: message.to_string(),
            next: None,
        }
    }

    /// The same with the options given behind what to type next.
    pub(super) fn told(&self, given: &Given) -> Self {
        Self {
            next: self.next.as_ref().map(|next| given.told(next)),
            ..self.clone()
        }
    }

    /// The failure as programs read it.
    pub(super) fn error(&self) -> ErrorText<'_> {
        ErrorText {
            code: match self.refused {
                Some(code) => Kind::Refused(code),
                None => Kind::Own(self.exit.name()),
            },
            message: &self.message,
            next: self.next.as_deref(),
            exit: self.exit as u8,
        }
    }

    /// The same with advice.
    #[must_use]
    pub fn with_next(self, next: impl Into<String>) -> Self {
        Self {
            next: Some(next.into()),
            ..self
        }
    }
}

/// A failure with the names that scripts rely on.
#[derive(Serialize)]
pub(super) struct ErrorText<'a> {
    code: Kind,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'a str>,
    exit: u8,
}

/// What kind of failure it is: in the admin API's words, or in those of the exit codes.
#[derive(Serialize)]
#[serde(untagged)]
enum Kind {
    Refused(Code),
    Own(&'static str),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.next {
            Some(next) => write!(f, "\nnext:  {next}"),
            None => Ok(()),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self {
            exit: refusal.code.into(),
            refused: Some(refusal.code),
            message: refusal.message,
            next: refusal.next,
        }
    }
}

impl From<UpError> for Failure {
    fn from(error: UpError) -> Self {
        let next = match &error {
            UpError::Run(RunError::Listen { what, .. }) => Some(match what {
                Listens::Clients => "clockwise up --listen HOST:PORT, port 0 takes a free one",
                Listens::Admin => "clockwise up --admin HOST:PORT, port 0 takes a free one",
            }),
            UpError::Run(RunError::PartEnded { .. }) => Some("clockwise up"),
            _ => None,
        };
        Self {
            next: next.map(str::to_owned),
            ..Self::new(Exit::Failed, error)
        }
    }
}
