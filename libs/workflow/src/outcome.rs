//! What a step says when it returns.

use std::time::Duration;

use drover_store::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use uuid::Uuid;

/// What a step's function returns. `?` on any error asks for a retry; giving up is always explicit ([`StepError::fail`]).
pub type StepResult = Result<Outcome, StepError>;

/// How a step that met no error ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Done; the value is the step's output in the journal.
    Next(Value),
    /// Not yet: look again when woken, at the given time, or at the slow poll, whichever is first.
    Park(Park),
    /// Enter the earlier step of this name again, in the next round. Nothing is undone; [`crate::Ctx::round`] counts, and the
    /// step that asks for it must bound it. Only before the pivot.
    Repeat(&'static str),
}

/// When to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Park {
    pub(crate) keys: Vec<String>,
    pub(crate) until: Option<Timestamp>,
}

impl Outcome {
    /// Done, without output.
    pub fn next() -> Self {
        Self::Next(Value::Null)
    }

    /// Done, with this output.
    pub fn output(output: impl Serialize) -> Result<Self, StepError> {
        Ok(Self::Next(serde_json::to_value(output)?))
    }

    /// Look again when one of the keys is woken ([`crate::Engine::wake`]).
    pub fn park<K: Into<String>>(keys: impl IntoIterator<Item = K>) -> Self {
        Self::Park(Park { keys: keys.into_iter().map(Into::into).collect(), until: None })
    }

    /// Of a park: look again at this time at the latest.
    pub fn until(self, time: Timestamp) -> Self {
        match self {
            Self::Park(park) => Self::Park(Park { until: Some(time), ..park }),
            other => other,
        }
    }
}

/// How a step that met an error ended.
#[derive(Clone, Debug)]
pub enum StepError {
    /// The same again after a pause: `after`, or the step's back-off. State written by the step is dropped.
    Retry {
        /// What happened, for the journal.
        message: String,
        /// The pause, where the other side named one.
        after: Option<Duration>,
    },
    /// It will not work. Before the pivot everything is undone, after it the workflow ends as failed where it stands.
    Fail(Failure),
}

impl StepError {
    /// Gives up with a stable code and a sentence for people.
    pub fn fail(code: &str, message: impl Into<String>) -> Self {
        Self::Fail(Failure { code: code.to_owned(), message: message.into(), reasons: Vec::new() })
    }

    /// Tries again, saying what is being waited for.
    pub fn retry(message: impl Into<String>) -> Self {
        Self::Retry { message: message.into(), after: None }
    }

    /// Of a failure: with its reasons, as problem+json carries them.
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

// Not itself an Error, so that this can be: any error a step meets is worth a retry unless the step says otherwise.
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

/// Why a workflow did not do what it was started for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Stable, for programs: `no_room`, `victim_busy`, `cancelled`.
    pub code: String,
    /// For people.
    pub message: String,
    /// Details, one per obstacle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Value>,
}

/// A workflow to start below this one, by a chosen id.
#[derive(Clone, Debug)]
pub struct Child {
    pub(crate) id: Uuid,
    pub(crate) start: crate::journal::NewWorkflow,
}

impl Child {
    /// Starting it again under the same id changes nothing.
    pub fn new<W: crate::Workflow>(id: Uuid, input: &W::Input) -> Result<Self, StepError> {
        Ok(Self { id, start: crate::journal::NewWorkflow::of::<W>(input)? })
    }
}

/// How a child ended; a failed child is something to decide by, not an error.
#[derive(Clone, Debug)]
pub struct ChildOutcome {
    /// Its id.
    pub id: Uuid,
    /// Its kind.
    pub kind: String,
    /// Whether it did all it was started for.
    pub done: bool,
    /// Whether it passed its pivot: what it moved stands even if it failed later.
    pub past_pivot: bool,
    /// Why not, if not.
    pub failure: Option<Failure>,
    /// What its steps knew last.
    pub state: Value,
}

impl ChildOutcome {
    /// The child's state as its type.
    pub fn state<S: DeserializeOwned>(&self) -> Result<S, StepError> {
        Ok(serde_json::from_value(self.state.clone())?)
    }

    /// The failure's code.
    pub fn code(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| failure.code.as_str())
    }
}
