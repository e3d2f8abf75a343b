//! What a step returns.

use std::time::Duration;

use drover_store::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use uuid::Uuid;

/// What the function of a step returns. `?` on any error makes the step be tried again; a final failure is always explicit
/// ([`StepError::fail`]).
pub type StepResult = Result<Outcome, StepError>;

/// How a step without an error ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The step is done. The value is its output in the journal.
    Next(Value),
    /// The step is not done. It is run again when woken, at the given time, or at the slow poll, whichever is first.
    Park(Park),
    /// The workflow continues with the earlier step of this name, in the next round. Nothing is undone. [`crate::Ctx::round`] counts the
    /// rounds, and the step that returns this must limit them. Only before the pivot.
    Repeat(&'static str),
}

/// When a parked step is to be run again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Park {
    pub(crate) keys: Vec<String>,
    pub(crate) until: Option<Timestamp>,
}

impl Outcome {
    /// The step is done and has no output.
    pub fn next() -> Self {
        Self::Next(Value::Null)
    }

    /// The step is done, with this output.
    ///
    /// # Errors
    /// The output cannot be written as JSON.
    pub fn output(output: impl Serialize) -> Result<Self, StepError> {
        Ok(Self::Next(serde_json::to_value(output)?))
    }

    /// The step is not done and is to be run again when one of the keys is woken ([`crate::Engine::wake`]).
    pub fn park<K: Into<String>>(keys: impl IntoIterator<Item = K>) -> Self {
        Self::Park(Park { keys: keys.into_iter().map(Into::into).collect(), until: None })
    }

    /// Sets the time at which a parked step is run again at the latest. It changes no other outcome.
    pub fn until(self, time: Timestamp) -> Self {
        match self {
            Self::Park(park) => Self::Park(Park { until: Some(time), ..park }),
            other => other,
        }
    }
}

/// How a step with an error ended.
#[derive(Clone, Debug)]
pub enum StepError {
    /// The step is tried again after a pause. What it has changed in the state is lost.
    Retry {
        /// What happened, for the journal.
        message: String,
        /// The pause; `None`: the engine's back-off.
        after: Option<Duration>,
    },
    /// Terminal failure. Before the pivot everything is undone; after it nothing is, and the workflow ends as failed after its final steps.
    Fail(Failure),
}

impl StepError {
    /// A terminal failure with a stable code and a sentence for people.
    pub fn fail(code: &str, message: impl Into<String>) -> Self {
        Self::Fail(Failure { code: code.to_owned(), message: message.into(), reasons: Vec::new() })
    }

    /// An error after which the step is tried again; the message says what it waits for.
    pub fn retry(message: impl Into<String>) -> Self {
        Self::Retry { message: message.into(), after: None }
    }

    /// Adds reasons to a failure, as problem+json carries them. It does not change a retry.
    pub fn reasons<R: Serialize>(self, reasons: impl IntoIterator<Item = R>) -> Self {
        match self {
            Self::Fail(failure) => {
                let reasons =
                    reasons.into_iter().map(|reason| serde_json::to_value(reason).unwrap_or_else(|error| error.to_string().into()));
                Self::Fail(Failure { reasons: reasons.collect(), ..failure })
            }
            other => other,
        }
    }
}

// Any error in a step is tried again unless the step says otherwise. `StepError` does not implement `Error` itself, because this
// implementation would then overlap with `From<T> for T`.
impl<E: std::error::Error> From<E> for StepError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::Retry { message, after: None }
    }
}

/// Why a workflow failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Stable, for programs: `no_room`, `victim_busy`, `cancelled`.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// Details, one per obstacle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Value>,
}

/// A workflow that a step starts as its child, under a chosen id.
#[derive(Clone, Debug)]
pub struct Child {
    pub(crate) id: Uuid,
    pub(crate) start: crate::journal::NewWorkflow,
}

impl Child {
    /// A child of this kind. Starting it again under the same id changes nothing.
    ///
    /// # Errors
    /// The input cannot be written as JSON.
    pub fn new<W: crate::Workflow>(id: Uuid, input: &W::Input) -> Result<Self, StepError> {
        Ok(Self { id, start: crate::journal::NewWorkflow::of::<W>(input)? })
    }
}

/// How a child ended. A failed child is no error of its parent: the parent's step decides what follows from it.
#[derive(Clone, Debug)]
pub struct ChildOutcome {
    pub id: Uuid,
    pub kind: String,
    /// Whether it ended with all of its steps done.
    pub done: bool,
    /// Whether its pivot was committed: then its effects stay, even if it failed later.
    pub past_pivot: bool,
    /// Why it is not done.
    pub failure: Option<Failure>,
    pub state: Value,
}

impl ChildOutcome {
    /// The state of the child.
    ///
    /// # Errors
    /// It is not a state of this type.
    pub fn state<S: DeserializeOwned>(&self) -> Result<S, StepError> {
        Ok(serde_json::from_value(self.state.clone())?)
    }

    /// The code of the failure.
    pub fn code(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| failure.code.as_str())
    }
}
