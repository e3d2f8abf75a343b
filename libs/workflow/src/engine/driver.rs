//! Runs one claimed workflow forward, step by step, until it parks or ends, has to be undone, or is lost to another engine.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use drover_store::failpoint::Injected;
use futures::FutureExt;
use serde_json::Value;
use sqlx::PgConnection;
use tracing::Instrument;

use super::Inner;
use crate::definition::StepKind;
use crate::journal::{self, Guard, JournalError, StepRow, WorkflowRow};
use crate::outcome::Park;
use crate::runner::{Direction, Runner, StepCall, StepInfo, StepReturn};
use crate::{ChildOutcome, Failure, StepError};

/// Whether the driver continues with the workflow or gives it back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterStep {
    Continue,
    Release,
}

/// A claimed workflow and what is needed to run it.
pub(super) struct Driver {
    pub engine: Arc<Inner>,
    pub runner: Arc<dyn Runner>,
    pub row: WorkflowRow,
    /// Which wake-ups had come in when the current step began, see [`crate::wakes::Wakes::called_since`].
    pub mark: u64,
    /// The current step, if it was started before the workflow was claimed.
    started: Option<StepRow>,
}

impl Driver {
    pub fn new(engine: Arc<Inner>, runner: Arc<dyn Runner>, row: WorkflowRow, started: Option<StepRow>) -> Self {
        Self { mark: engine.wakes.mark(), engine, runner, row, started }
    }

    pub async fn run(mut self) -> Result<(), JournalError> {
        loop {
            self.mark = self.engine.wakes.mark();
            let then = if self.row.status == "undoing" { self.backward().await? } else { self.forward().await? };
            if then == AfterStep::Release {
                return Ok(());
            }
            if self.engine.stopping.is_cancelled() {
                let mut guard = self.lock().await?;
                guard.park(Duration::ZERO, &[]).await?;
                return guard.commit().await;
            }
        }
    }

    async fn forward(&mut self) -> Result<AfterStep, JournalError> {
        if self.cancelled() {
            let guard = self.lock().await?;
            return self.start_undo(guard, cancelled()).await;
        }
        let Some(index) = self.position(&self.row.step) else {
            return self.unknown_step().await;
        };
        let info = self.runner.steps()[index];
        let seq = self.row.seq + 1;
        let span = tracing::info_span!("step", otel.name = %format_args!("{}/{}", self.row.kind, info.name), workflow.id = %self.row.id, workflow.round = self.row.round);
        let started = self.started.take();
        async {
            if let Some(answer) = self.failpoint(info.name, "do", "before").await? {
                return self.journal_end(None, index, seq, answer).await;
            }
            match info.kind {
                _ if !self.runner.due(index, &self.row.input, &self.row.state) => self.skip(index, info, seq).await,
                StepKind::Local => self.local(index, info, seq).await,
                StepKind::Remote => self.remote(index, info, seq, started).await,
                StepKind::Children => self.children(index, info, seq).await,
            }
        }
        .instrument(span)
        .await
    }

    /// Passes over a step that has nothing to do. Nothing is written: the next step's journal row says where the workflow is.
    async fn skip(&mut self, index: usize, info: StepInfo, seq: i32) -> Result<AfterStep, JournalError> {
        if let Some(answer) = self.failpoint(info.name, "do", "after_effect").await? {
            return self.journal_end(None, index, seq, answer).await;
        }
        self.move_to(index + 1);
        let _ = self.failpoint(info.name, "do", "after_journal").await?;
        Ok(AfterStep::Continue)
    }

    async fn local(&mut self, index: usize, info: StepInfo, seq: i32) -> Result<AfterStep, JournalError> {
        let (mut guard, step) = self.begin(seq, &info).await?;
        let Some(step) = step else { return self.start_undo(guard, cancelled()).await };
        let mut answer = self.call(index, Direction::Do, &step, Vec::new(), Some(&mut guard.tx)).await;
        if let Some(injected) = self.failpoint(info.name, "do", "after_effect").await? {
            answer = injected;
        }
        self.journal_end(Some(guard), index, seq, answer).await
    }

    async fn remote(&mut self, index: usize, info: StepInfo, seq: i32, started: Option<StepRow>) -> Result<AfterStep, JournalError> {
        let step = match started {
            Some(step) => step,
            None => {
                // The intent is journaled before the effect.
                let begun = journal::begin_step(&mut *self.engine.store.acquire().await?, &self.row, seq, &info).await?;
                self.row.cancel_requested = begun.cancel_requested;
                let Some(step) = begun.step else {
                    let guard = self.lock().await?;
                    return self.start_undo(guard, cancelled()).await;
                };
                self.engine.changed(self.row.id);
                step
            }
        };
        let mut answer = self.call(index, Direction::Do, &step, Vec::new(), None).await;
        if let Some(injected) = self.failpoint(info.name, "do", "after_effect").await? {
            answer = injected;
        }
        self.journal_end(None, index, seq, answer).await
    }

    async fn children(&mut self, index: usize, info: StepInfo, seq: i32) -> Result<AfterStep, JournalError> {
        let (mut guard, step) = self.begin(seq, &info).await?;
        let Some(step) = step else { return self.start_undo(guard, cancelled()).await };
        if step.output.is_none() {
            let call = self.call_of(&step, Vec::new());
            let answer = catch_panic(self.runner.spawn(index, call, &mut guard.tx)).await;
            let children = match answer.result {
                Ok(children) => children,
                Err(error) => {
                    return self
                        .journal_end(
                            Some(guard),
                            index,
                            seq,
                            StepReturn { result: Err(error), state: answer.state, message: answer.message },
                        )
                        .await;
                }
            };
            for child in &children {
                if !child.start.insert(&mut guard.tx, child.id, Some((self.row.id, seq)), self.row.traceparent.as_deref()).await? {
                    let taken = failure("child_exists", format!("a workflow of the child's id {} exists already", child.id));
                    return self
                        .journal_end(
                            Some(guard),
                            index,
                            seq,
                            StepReturn { result: Err(StepError::Fail(taken)), state: Value::Null, message: None },
                        )
                        .await;
                }
            }
            self.adopt(answer.state, answer.message);
            // Without children their outcomes can be collected now, in the same transaction.
            if !children.is_empty() {
                guard.spawned(seq, children.len()).await?;
                guard.save(&self.row).await?;
                guard.commit().await?;
                self.engine.changed(self.row.id);
                self.engine.due.notify_one();
                guard = self.lock().await?;
            }
        }
        let children = guard.children(seq).await?;
        if children.iter().any(|child| !child.ended()) {
            return self.park(guard, &Park::default()).await;
        }
        let outcomes = children.into_iter().map(journal::ChildRow::outcome).collect();
        let mut answer = self.call(index, Direction::Do, &step, outcomes, Some(&mut guard.tx)).await;
        if let Some(injected) = self.failpoint(info.name, "do", "after_effect").await? {
            answer = injected;
        }
        self.journal_end(Some(guard), index, seq, answer).await
    }

    /// The version is known but the step is not: the step list was changed without a new version. The workflow is marked as refused
    /// and checked again every minute, because continuing anywhere else could repeat or leave out effects.
    async fn unknown_step(&mut self) -> Result<AfterStep, JournalError> {
        tracing::error!(workflow.id = %self.row.id, step = self.row.step, "refused: the version of this workflow has no such step");
        sqlx::query("update workflow set refused = true, revision = revision + 1, worker = null, run_at = now() + interval '1 minute' where id = $1 and fence = $2")
            .bind(self.row.id)
            .bind(self.row.fence)
            .execute(&mut *self.engine.store.acquire().await?)
            .await?;
        self.engine.changed(self.row.id);
        Ok(AfterStep::Release)
    }

    pub(super) fn position(&self, step: &str) -> Option<usize> {
        self.runner.steps().iter().position(|info| info.name == step)
    }

    pub(super) async fn lock(&mut self) -> Result<Guard, JournalError> {
        let guard = Guard::lock(&self.engine.store, self.row.id, self.row.fence).await?;
        self.row.cancel_requested = guard.cancel_requested;
        Ok(guard)
    }

    /// Locks the workflow and journals the start of a step. No step is returned when the workflow has to be undone.
    async fn begin(&mut self, seq: i32, info: &StepInfo) -> Result<(Guard, Option<StepRow>), JournalError> {
        let (guard, step) = Guard::begin(&self.engine.store, &self.row, seq, info).await?;
        self.row.cancel_requested = guard.cancel_requested;
        Ok((guard, step))
    }

    pub(super) async fn or_lock(&mut self, guard: Option<Guard>) -> Result<Guard, JournalError> {
        match guard {
            Some(guard) => Ok(guard),
            None => self.lock().await,
        }
    }

    fn cancelled(&self) -> bool {
        self.row.cancel_requested && !self.row.past_pivot
    }

    pub(super) fn adopt(&mut self, state: Value, message: Option<String>) {
        if !state.is_null() {
            self.row.state = state;
        }
        if message.is_some() {
            self.row.message = message;
        }
    }

    pub(super) fn call_of(&self, step: &StepRow, children: Vec<ChildOutcome>) -> StepCall {
        StepCall {
            id: self.row.id,
            fence: self.row.fence,
            drawn: step.drawn,
            round: step.round,
            input: self.row.input.clone(),
            state: self.row.state.clone(),
            started: step.started_at,
            created: self.row.created_at,
            cancel_requested: self.row.cancel_requested,
            children,
        }
    }

    pub(super) async fn call(
        &self,
        index: usize,
        direction: Direction,
        step: &StepRow,
        children: Vec<ChildOutcome>,
        tx: Option<&mut PgConnection>,
    ) -> StepReturn {
        catch_panic(self.runner.call(index, direction, self.call_of(step, children), tx)).await
    }

    /// Passes a failpoint. `Some` is what the step is to return instead of its own result.
    pub(super) async fn failpoint(&self, step: &str, direction: &str, point: &str) -> Result<Option<StepReturn>, JournalError> {
        let name = || format!("{}/{step}/{direction}/{point}", self.row.kind);
        let injected = self.engine.settings.failpoints.reached_for(&self.row.subject, name).await;
        let error = match injected {
            Ok(()) => return Ok(None),
            Err(Injected::Halt) => return Err(JournalError::Halted),
            Err(Injected::Error) => StepError::retry("an injected error"),
            Err(Injected::Fatal) => StepError::fail("injected", "an injected failure"),
        };
        Ok(Some(StepReturn { result: Err(error), state: Value::Null, message: None }))
    }
}

impl Inner {
    pub(super) fn backoff(&self, attempts: i32) -> Duration {
        let doublings = u32::try_from(attempts - 1).unwrap_or(0).min(16);
        let pause = self.settings.backoff.saturating_mul(1 << doublings).min(self.settings.longest_backoff);
        // Random, so that steps which failed together do not all try again together.
        pause.mul_f64(rand::random_range(0.8..1.2))
    }
}

/// A panic in a step becomes an error of the step, which is tried again.
async fn catch_panic<T>(call: impl Future<Output = StepReturn<T>>) -> StepReturn<T> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(answer) => answer,
        Err(_) => {
            StepReturn { result: Err(StepError::retry("the step panicked; the log has the details")), state: Value::Null, message: None }
        }
    }
}

pub(super) fn failure(code: &str, message: String) -> Failure {
    Failure { code: code.to_owned(), message, reasons: Vec::new() }
}

fn cancelled() -> Failure {
    failure("cancelled", "cancelled on request".to_owned())
}
