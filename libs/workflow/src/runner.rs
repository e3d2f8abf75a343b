//! Calls the typed functions of steps with the JSON values of the journal: one [`Runner`] per registered kind and version.
//!
//! It makes no decisions: it turns JSON into the types of the workflow, calls the function, and turns the state back into JSON.

use std::sync::Arc;

use async_trait::async_trait;
use drover_store::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::definition::{Effect, Step, StepKind, Steps};
use crate::{Child, ChildOutcome, Ctx, Outcome, StepError, Workflow};

/// What the engine passes to a step.
#[derive(Clone, Debug)]
pub(crate) struct StepCall {
    pub id: Uuid,
    pub fence: i64,
    pub drawn: Option<i64>,
    pub round: i32,
    pub input: Value,
    pub state: Value,
    pub started: Timestamp,
    pub created: Timestamp,
    pub cancel_requested: bool,
    pub children: Vec<ChildOutcome>,
}

/// What a step returns to the engine.
#[derive(Debug)]
pub(crate) struct StepReturn<T = Outcome> {
    pub result: Result<T, StepError>,
    pub state: Value,
    pub message: Option<String>,
}

/// What the engine knows about a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepInfo {
    pub name: &'static str,
    pub kind: StepKind,
    /// Whether its undo is local (part of the journal's transaction) or remote; `None` for a step without undo.
    pub undo: Option<StepKind>,
    pub attempts: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Do,
    Undo,
}

#[async_trait]
pub(crate) trait Runner: Send + Sync {
    fn kind(&self) -> &'static str;
    fn version(&self) -> i32;
    fn steps(&self) -> &[StepInfo];
    fn pivot(&self) -> Option<usize>;
    fn finally(&self) -> Option<usize>;
    /// Whether a step has anything to do. True also when input or state cannot be read: the call of the step then reports that.
    fn due(&self, step: usize, input: &Value, state: &Value) -> bool;
    /// Calls the function of a step, or of its undo. `tx` is given for local ones.
    async fn call(&self, step: usize, direction: Direction, call: StepCall, tx: Option<&mut PgConnection>) -> StepReturn;
    /// Calls the function that names the children of a step.
    async fn spawn(&self, step: usize, call: StepCall, tx: &mut PgConnection) -> StepReturn<Vec<Child>>;
}

/// A list of steps and the environment that they get.
pub(crate) struct TypedRunner<W: Workflow> {
    steps: Vec<Step<W>>,
    infos: Vec<StepInfo>,
    pivot: Option<usize>,
    finally: Option<usize>,
    environment: Arc<W::Environment>,
}

impl<W: Workflow> TypedRunner<W> {
    pub fn new(environment: Arc<W::Environment>) -> Self {
        let Steps { steps, pivot, finally } = W::steps();
        assert!(steps.last().is_none_or(|step| step.due.is_none()), "{}: the last step is never passed over", W::KIND);
        let infos = steps.iter().map(|step| StepInfo {
            name: step.name,
            kind: step.kind,
            undo: step.undo.as_ref().map(kind_of),
            attempts: step.attempts,
        });
        Self { infos: infos.collect(), steps, pivot, finally, environment }
    }

    fn ctx(&self, call: StepCall) -> Result<Ctx<W>, StepError> {
        let state = if call.state.is_null() { W::State::default() } else { serde_json::from_value(call.state)? };
        Ok(Ctx {
            id: call.id,
            fence: call.fence,
            drawn: call.drawn,
            round: call.round,
            input: serde_json::from_value(call.input)?,
            state,
            environment: self.environment.clone(),
            started: call.started,
            created: call.created,
            cancel_requested: call.cancel_requested,
            children: call.children,
            message: None,
        })
    }
}

fn kind_of<W: Workflow>(effect: &Effect<W>) -> StepKind {
    match effect {
        Effect::Local(_) => StepKind::Local,
        Effect::Remote(_) => StepKind::Remote,
    }
}

fn answer<W: Workflow, T>(ctx: Ctx<W>, result: Result<T, StepError>) -> StepReturn<T> {
    match serde_json::to_value(&ctx.state) {
        Ok(state) => StepReturn { result, state, message: ctx.message },
        Err(error) => StepReturn { result: Err(error.into()), state: Value::Null, message: ctx.message },
    }
}

fn unreadable<T>(error: StepError) -> StepReturn<T> {
    StepReturn { result: Err(error), state: Value::Null, message: None }
}

#[async_trait]
impl<W: Workflow> Runner for TypedRunner<W> {
    fn kind(&self) -> &'static str {
        W::KIND
    }

    fn version(&self) -> i32 {
        W::VERSION
    }

    fn steps(&self) -> &[StepInfo] {
        &self.infos
    }

    fn pivot(&self) -> Option<usize> {
        self.pivot
    }

    fn finally(&self) -> Option<usize> {
        self.finally
    }

    fn due(&self, step: usize, input: &Value, state: &Value) -> bool {
        let Some(due) = self.steps[step].due else { return true };
        let state = if state.is_null() { Ok(W::State::default()) } else { W::State::deserialize(state) };
        match (W::Input::deserialize(input), state) {
            (Ok(input), Ok(state)) => due(&input, &state),
            _ => true,
        }
    }

    async fn call(&self, step: usize, direction: Direction, call: StepCall, tx: Option<&mut PgConnection>) -> StepReturn {
        let effect = match direction {
            Direction::Do => Some(&self.steps[step].effect),
            Direction::Undo => self.steps[step].undo.as_ref(),
        };
        let mut ctx = match self.ctx(call) {
            Ok(ctx) => ctx,
            Err(error) => return unreadable(error),
        };
        let result = match (effect, tx) {
            (Some(Effect::Local(f)), Some(tx)) => f(&mut ctx, tx).await,
            (Some(Effect::Remote(f)), _) => f(&mut ctx).await,
            (Some(Effect::Local(_)), None) => Err(StepError::retry("a local step was called without a transaction")),
            (None, _) => Ok(Outcome::next()),
        };
        answer(ctx, result)
    }

    async fn spawn(&self, step: usize, call: StepCall, tx: &mut PgConnection) -> StepReturn<Vec<Child>> {
        let mut ctx = match self.ctx(call) {
            Ok(ctx) => ctx,
            Err(error) => return unreadable(error),
        };
        let result = match &self.steps[step].spawn {
            Some(spawn) => spawn(&mut ctx, tx).await,
            None => Ok(Vec::new()),
        };
        answer(ctx, result)
    }
}
