//! Why the admin API did not do what was asked, in one form for the wire, the command line and its exit code.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

/// The kind of a refusal; fixes the status on the wire and the command line's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// The request names something that is wrong in itself: an id, a weight, an address.
    Invalid,
    /// There is no such call, or no such node.
    NotFound,
    /// It does not fit the pool as it is now.
    Unfit,
    /// A method that the API does not use.
    MethodNotAllowed,
    /// The `Host` header is not ours.
    ForeignHost,
    /// A page of another site asks.
    ForeignOrigin,
    /// The token is missing or wrong.
    Unauthorised,
    /// The body is not JSON.
    NotJson,
    /// The body is too large.
    TooLarge,
    /// The call took too long.
    TimedOut,
    /// The epoch moved, or a change is running: look again.
    Conflict,
    /// The record's store cannot be reached.
    StoreUnreachable,
    /// Refused by a guard: it would be unsafe, and nothing was changed.
    Guard,
    /// Something is wrong with a node.
    Unhealthy,
    /// Anything that went wrong on our side.
    Failed,
}

impl Code {
    /// The status on the wire.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::Unfit => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::ForeignHost => StatusCode::MISDIRECTED_REQUEST,
            Self::ForeignOrigin => StatusCode::FORBIDDEN,
            Self::Unauthorised => StatusCode::UNAUTHORIZED,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Self::Conflict => StatusCode::CONFLICT,
            Self::StoreUnreachable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Guard => StatusCode::PRECONDITION_FAILED,
            Self::Unhealthy => StatusCode::BAD_GATEWAY,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A refusal: what kind, in words, and what to do next where that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What kind.
    pub code: Code,
    /// In words.
    pub message: String,
    /// What to type or look at next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Refusal {
    /// A refusal without advice.
    #[must_use]
    pub fn new(code: Code, message: String) -> Self {
        Self {
            code,
            message,
            next: None,
        }
    }

    /// The same with advice.
    #[must_use]
    pub fn with_next(self, next: String) -> Self {
        Self {
            next: Some(next),
            ..self
        }
    }
}

/// A refusal as the body of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalBody {
    /// Why nothing was done.
    pub error: Refusal,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.code.status(), axum::Json(RefusalBody { error: self })).into_response()
    }
}
