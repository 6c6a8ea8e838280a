//! What a failed call to etcd means: whether it may have had an effect, and who can mend it.

use std::error::Error;

use tonic::{Code, ConnectError, Status};

use super::super::{CommitError, LeadError, ReadError};

/// A call that failed on every endpoint it was tried on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) effect: Effect,
    pub(super) why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It did nothing. Later it may work.
    None,
    /// Its answer is missing; what it asked for may have happened or may still happen.
    Unknown,
    /// etcd refused it, and will until somebody changes something.
    Refused,
}

/// What one attempt at one endpoint came to.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The endpoint was not reached, or it did not take the request.
    NotDone(String),
    /// It may have done what it was asked.
    Unanswered(String),
    /// Our token is not known there any more; log in again.
    TokenForgotten(String),
    /// It refused.
    Refused(String),
}

impl Trouble {
    pub(super) fn from_status(status: &Status) -> Trouble {
        if never_left(status) {
            return Trouble::NotDone(in_full(status.source().unwrap_or(status)));
        }
        let said = status.message();
        if status.source().is_some() {
            return Trouble::Unanswered(in_full(status.source().unwrap_or(status)));
        }
        match status.code() {
            Code::Unauthenticated => Trouble::TokenForgotten(said.to_owned()),
            Code::InvalidArgument
                if said.contains("auth token")
                    || said.contains("revision of auth store is old")
                    || said.contains("user name is empty") =>
            {
                Trouble::TokenForgotten(said.to_owned())
            }
            Code::ResourceExhausted if said.contains("too many requests") => {
                Trouble::NotDone(said.to_owned())
            }
            Code::InvalidArgument
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::NotFound
            | Code::ResourceExhausted
            | Code::OutOfRange
            | Code::Unimplemented => Trouble::Refused(with_next_step(said)),
            _ => Trouble::Unanswered(format!("{}: {said}", status.code())),
        }
    }
}

/// Whether the request cannot have left this process.
fn never_left(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// An error with all its reasons.
pub(super) fn in_full(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let reason = error.to_string();
        // Some errors repeat their reasons.
        if !text.contains(&reason) {
            text.push_str(": ");
            text.push_str(&reason);
        }
        source = error.source();
    }
    text
}

fn with_next_step(said: &str) -> String {
    const STEPS: [(&str, &str); 6] = [
        (
            "permission denied",
            "grant the user's role readwrite on the pool's prefix: \
             etcdctl role grant-permission ROLE --prefix=true readwrite PREFIX/POOL/",
        ),
        (
            "authentication failed",
            "check the user's name and password: etcdctl user get NAME",
        ),
        (
            "user name is empty",
            "etcd asks for a user and password, and none is configured",
        ),
        (
            "database space exceeded",
            "make room: etcdctl compact REVISION, etcdctl defrag, etcdctl alarm disarm",
        ),
        (
            "request is too large",
            "start etcd with --max-request-bytes=1572864, its default, or more",
        ),
        (
            "larger than max",
            "start etcd with --max-request-bytes=1572864, its default, or more",
        ),
    ];
    match STEPS.iter().find(|(words, _)| said.contains(words)) {
        Some((_, step)) => format!("{said}; {step}"),
        None => said.to_owned(),
    }
}

impl From<Failure> for ReadError {
    fn from(Failure { effect, why }: Failure) -> ReadError {
        match effect {
            Effect::None | Effect::Unknown => ReadError::Unreachable { why },
            Effect::Refused => ReadError::Refused { why },
        }
    }
}

impl From<Failure> for CommitError {
    fn from(Failure { effect, why }: Failure) -> CommitError {
        match effect {
            Effect::None => CommitError::Unreachable { why },
            Effect::Unknown => CommitError::Unknown { why },
            Effect::Refused => CommitError::Refused { why },
        }
    }
}

impl From<Failure> for LeadError {
    fn from(Failure { effect, why }: Failure) -> LeadError {
        match effect {
            Effect::None | Effect::Unknown => LeadError::Unreachable { why },
            Effect::Refused => LeadError::Refused { why },
        }
    }
}
