//! Undoes a workflow: its started steps in the reverse order of their start, the children of a step first.
//!
//! An undo that fails is tried again without end, with growing pauses; its last error is in the journal.

use serde_json::Value;
use tracing::Instrument;

use super::driver::{AfterStep, Driver};
use crate::definition::StepKind;
use crate::journal::{self, Guard, JournalError, StepRow};
use crate::outcome::Park;
use crate::runner::{Direction, StepInfo, StepReturn};
use crate::{ChildOutcome, Outcome, StepError};

impl Driver {
    pub(super) async fn backward(&mut self) -> Result<AfterStep, JournalError> {
        let found = journal::to_undo(&mut *self.engine.store.acquire().await?, self.row.id).await?;
        let Some(step) = found else {
            let guard = self.lock().await?;
            let cancelled = self.row.failure.as_ref().is_some_and(|failure| failure.code == "cancelled");
            self.row.status = if cancelled { "cancelled" } else { "failed" }.to_owned();
            self.row.step = String::new();
            return self.saved(guard).await;
        };
        let Some(index) = self.position(&step.name) else {
            tracing::error!(workflow.id = %self.row.id, step = step.name, "the version of this workflow has no such step; it cannot be undone");
            let guard = self.lock().await?;
            return self.park(guard, &Park::default()).await;
        };
        let info = self.runner.steps()[index];
        let span = tracing::info_span!("undo", otel.name = %format_args!("{}/{} undo", self.row.kind, info.name), workflow.id = %self.row.id, workflow.round = step.round);
        self.undo(index, info, step).instrument(span).await
    }

    async fn undo(&mut self, index: usize, info: StepInfo, step: StepRow) -> Result<AfterStep, JournalError> {
        let mut children = Vec::new();
        if info.kind == StepKind::Children {
            journal::cancel_children(&mut *self.engine.store.acquire().await?, self.row.id, step.seq).await?;
            self.engine.due.notify_one();
            let mut guard = self.lock().await?;
            let rows = guard.children(step.seq).await?;
            if rows.iter().any(|child| !child.ended()) {
                return self.park(guard, &Park::default()).await;
            }
            children = rows.into_iter().map(journal::ChildRow::outcome).collect();
        }
        let Some(kind) = info.undo else {
            let mut guard = self.lock().await?;
            guard.undo_step(step.seq, "undone").await?;
            guard.commit().await?;
            return Ok(AfterStep::Continue);
        };
        if let Some(answer) = self.failpoint(info.name, "undo", "before").await? {
            return self.journal_undo_end(None, info, &step, answer).await;
        }
        let mut guard = self.lock().await?;
        guard.undo_step(step.seq, "undoing").await?;
        let (writes, answer) = if kind == StepKind::Local {
            let answer = self.call_undo(index, &step, children, Some(&mut guard)).await;
            (Some(guard), answer)
        } else {
            guard.commit().await?;
            self.engine.changed(self.row.id);
            (None, self.call_undo(index, &step, children, None).await)
        };
        let answer = self.failpoint(info.name, "undo", "after_effect").await?.unwrap_or(answer);
        self.journal_undo_end(writes, info, &step, answer).await
    }

    async fn call_undo(&self, index: usize, step: &StepRow, children: Vec<ChildOutcome>, guard: Option<&mut Guard>) -> StepReturn {
        self.call(index, Direction::Undo, step, children, guard.map(|guard| &mut *guard.tx)).await
    }

    async fn journal_undo_end(
        &mut self,
        writes: Option<Guard>,
        info: StepInfo,
        step: &StepRow,
        answer: StepReturn,
    ) -> Result<AfterStep, JournalError> {
        let local = writes.is_some();
        let message = match answer.result {
            Ok(Outcome::Next(_)) => {
                let mut guard = match writes {
                    Some(guard) => guard,
                    None => self.lock().await?,
                };
                guard.undo_step(step.seq, "undone").await?;
                self.adopt(answer.state, answer.message);
                let then = self.saved(guard).await?;
                // The journal is written: an injected error no longer changes how the undo ended.
                let _ = self.failpoint(info.name, "undo", "after_journal").await?;
                return Ok(then);
            }
            Ok(Outcome::Park(park)) => {
                drop(writes);
                let mut guard = self.lock().await?;
                self.adopt(if local { Value::Null } else { answer.state }, answer.message);
                guard.save(&self.row).await?;
                return self.park(guard, &park).await;
            }
            Ok(Outcome::Repeat(from)) => format!("an undo cannot repeat from {from}"),
            Err(StepError::Retry { message, .. }) => message,
            Err(StepError::Fail(failure)) => format!("{}: {}", failure.code, failure.message),
        };
        drop(writes);
        let mut guard = self.lock().await?;
        guard.undo_step(step.seq, "undoing").await?;
        let attempts = guard.retry_step(step.seq, &message).await?;
        tracing::warn!(workflow.id = %self.row.id, step = info.name, attempts, "the undo failed and will be tried again: {message}");
        guard.save(&self.row).await?;
        let pause = self.engine.backoff(attempts);
        self.pause(guard, pause, &[]).await
    }
}
