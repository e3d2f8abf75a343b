//! Errors that a proxy answers itself: problem+json with a code that has a page in docs/errors, as in all of Drover.

use drover_proxy::body::AnswerBody;
use drover_proxy::forward::ForwardError;
use drover_proxy::own_answer;
use http::{Response, StatusCode};

/// Why a request got no answer from the app.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The queue is full.
    #[error("{0} requests are waiting already")]
    QueueFull(usize),
    /// It waited for too long.
    #[error("no pod had room for it within {0} seconds")]
    NoRoomInTime(u64),
    /// The app closed the connection, or does not speak HTTP.
    #[error("the app did not answer: {0}")]
    BadGateway(String),
    /// The app cannot be reached.
    #[error("the app cannot be reached: {0}")]
    Unreachable(String),
    /// The client went away, so that nobody reads this answer.
    #[error("the client went away")]
    Gone,
}

impl Refusal {
    /// Code, status and title, the same as in libs/service.
    fn kind(&self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Self::QueueFull(_) => ("queue_full", StatusCode::SERVICE_UNAVAILABLE, "Too many requests are waiting"),
            Self::NoRoomInTime(_) => ("no_pod_in_time", StatusCode::SERVICE_UNAVAILABLE, "No pod had room in time"),
            Self::BadGateway(_) => ("app_broke_off", StatusCode::BAD_GATEWAY, "The app closed the connection without a complete answer"),
            Self::Unreachable(_) => ("app_unreachable", StatusCode::SERVICE_UNAVAILABLE, "The app cannot be reached"),
            Self::Gone => ("timeout", StatusCode::REQUEST_TIMEOUT, "The client went away"),
        }
    }

    /// The answer to the client.
    pub fn response(&self) -> Response<AnswerBody> {
        let (code, status, title) = self.kind();
        own_answer(code, status, title, &self.to_string())
    }
}

impl From<ForwardError> for Refusal {
    fn from(failure: ForwardError) -> Self {
        match failure {
            ForwardError::NotSent(words) => Self::Unreachable(words),
            ForwardError::BrokeOff(words) => Self::BadGateway(words),
        }
    }
}
