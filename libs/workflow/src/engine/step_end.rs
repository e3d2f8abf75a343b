//! Journals how a step ended: the next step, a repetition from an earlier one, a pause, another try, or a failure that is undone.

use std::time::Duration;

use serde_json::{Value, json};

use super::EndedWorkflow;
use super::driver::{AfterStep, Driver, failure};
use crate::journal::{self, Guard, JournalError};
use crate::outcome::Park;
use crate::runner::StepReturn;
use crate::{Failure, Outcome, StepError};

impl Driver {
    /// Journals how a step ended. `writes` is the transaction of a local step: it is committed with the journal, or rolled back.
    pub(super) async fn journal_end(
        &mut self,
        writes: Option<Guard>,
        index: usize,
        seq: i32,
        answer: StepReturn,
    ) -> Result<AfterStep, JournalError> {
        let info = self.runner.steps()[index];
        let local = writes.is_some();
        let then = match answer.result {
            Ok(Outcome::Next(output)) => {
                self.adopt(answer.state, answer.message);
                self.row.seq = seq;
                self.row.past_pivot |= self.runner.pivot() == Some(index);
                self.move_to(index + 1);
                self.advance(writes, &output).await?
            }
            Ok(Outcome::Repeat(from)) => match self.position(from).filter(|earlier| *earlier <= index && !self.row.past_pivot) {
                Some(_) => {
                    let mut guard = self.or_lock(writes).await?;
                    guard.finish_step(seq, "done", Some(&json!({"repeat": from})), None).await?;
                    self.adopt(answer.state, answer.message);
                    self.row.seq = seq;
                    self.row.round += 1;
                    self.row.step = from.to_owned();
                    self.saved(guard).await?
                }
                None => {
                    drop(writes);
                    self.fail_step(index, seq, failure("bad_repeat", format!("{} cannot go back to {from}", info.name))).await?
                }
            },
            Ok(Outcome::Park(park)) => {
                drop(writes);
                let before = (self.row.state.clone(), self.row.message.clone());
                // The state of a local step belongs to the writes that were rolled back.
                self.adopt(if local { Value::Null } else { answer.state }, answer.message);
                let changed = before != (self.row.state.clone(), self.row.message.clone());
                let delay = self.delay(&park);
                let due = if local {
                    let mut guard = self.lock().await?;
                    // The step's journal row was rolled back with its writes.
                    guard.start_step(&self.row, seq, &info).await?;
                    if changed {
                        guard.save(&self.row).await?;
                    }
                    let due = guard.park(delay, &park.keys).await?;
                    guard.commit().await?;
                    due
                } else {
                    journal::park(&mut *self.engine.store.acquire().await?, &self.row, changed, delay, &park.keys).await?
                };
                if changed {
                    self.engine.changed(self.row.id);
                }
                return self.paused(due, delay, &park.keys).await;
            }
            Err(StepError::Retry { message, after }) => {
                drop(writes);
                let mut guard = self.lock().await?;
                guard.start_step(&self.row, seq, &info).await?;
                let attempts = guard.retry_step(seq, &message).await?;
                if info.attempts.is_some_and(|most| attempts >= most) {
                    drop(guard);
                    self.fail_step(
                        index,
                        seq,
                        failure("step_failed", format!("{} did not succeed in {attempts} attempts: {message}", info.name)),
                    )
                    .await?
                } else {
                    tracing::debug!(workflow.id = %self.row.id, step = info.name, attempts, message, "the step failed and will be tried again");
                    guard.save(&self.row).await?;
                    let pause = after.unwrap_or_else(|| self.engine.backoff(attempts));
                    return self.pause(guard, pause, &[]).await;
                }
            }
            Err(StepError::Fail(failure)) => {
                drop(writes);
                self.fail_step(index, seq, failure).await?
            }
        };
        // The journal is written: an injected error no longer changes how the step ended.
        let _ = self.failpoint(info.name, "do", "after_journal").await?;
        Ok(then)
    }

    /// Journals that the step is done. The next one is not started in the same statement: a cancel that comes in between must not find
    /// a started step to undo.
    async fn advance(&mut self, writes: Option<Guard>, output: &Value) -> Result<AfterStep, JournalError> {
        self.row.cancel_requested = match writes {
            Some(mut guard) => {
                let cancel_requested = journal::advance(&mut guard.tx, &self.row, output, false).await?;
                guard.commit().await?;
                cancel_requested
            }
            None => {
                // The result of a workflow that somebody has read must not change: its end waits for the disk.
                let may_be_lost = self.row.status == "running";
                journal::advance(&mut *self.engine.store.acquire().await?, &self.row, output, may_be_lost).await?
            }
        };
        Ok(self.announce())
    }

    /// Journals a failure for good: what was done is undone or, past the pivot, only the final steps follow.
    async fn fail_step(&mut self, index: usize, seq: i32, failure: Failure) -> Result<AfterStep, JournalError> {
        let info = self.runner.steps()[index];
        tracing::info!(workflow.id = %self.row.id, step = info.name, code = failure.code, "the step failed: {}", failure.message);
        let mut guard = self.lock().await?;
        guard.start_step(&self.row, seq, &info).await?;
        guard.finish_step(seq, "failed", None, Some(&json!(failure))).await?;
        self.row.seq = seq;
        if !self.row.past_pivot {
            return self.start_undo(guard, failure).await;
        }
        // Past the pivot nothing is undone; only the final steps are still to be done.
        self.row.failure.get_or_insert(failure);
        let finally = self.runner.finally().unwrap_or(usize::MAX);
        self.move_to(if index < finally { finally } else { index + 1 });
        self.saved(guard).await
    }

    /// Journals the failure for which everything so far is undone.
    pub(super) async fn start_undo(&mut self, mut guard: Guard, failure: Failure) -> Result<AfterStep, JournalError> {
        self.row.failure = Some(failure);
        self.row.status = "undoing".to_owned();
        guard.save(&self.row).await?;
        guard.commit().await?;
        self.engine.changed(self.row.id);
        Ok(AfterStep::Continue)
    }

    /// Makes the step of that index the current one, or ends the workflow after the last step.
    pub(super) fn move_to(&mut self, index: usize) {
        match self.runner.steps().get(index) {
            Some(step) => self.row.step = step.name.to_owned(),
            None => {
                self.row.step = String::new();
                self.row.status = if self.row.failure.is_some() { "failed" } else { "done" }.to_owned();
            }
        }
    }

    /// Journals the row as it is now, and tells everybody.
    pub(super) async fn saved(&mut self, mut guard: Guard) -> Result<AfterStep, JournalError> {
        guard.save(&self.row).await?;
        guard.commit().await?;
        Ok(self.announce())
    }

    /// Tells watchers, the observer of ends and the parent what was just written.
    fn announce(&mut self) -> AfterStep {
        self.engine.changed(self.row.id);
        let ended = !matches!(self.row.status.as_str(), "running" | "undoing");
        if ended {
            // An error only means that nobody waits.
            let _ = self.engine.ended.send(self.row.id);
            if let Some(observe) = &self.engine.registry.on_end {
                observe(&self.end());
            }
            // It has woken its parent.
            if let Some(parent) = self.row.parent_id {
                self.engine.changed(parent);
                self.engine.due.notify_one();
            }
        }
        if ended { AfterStep::Release } else { AfterStep::Continue }
    }

    fn end(&self) -> EndedWorkflow {
        let took = Duration::try_from(drover_store::now().duration_since(*self.row.created_at)).unwrap_or_default();
        EndedWorkflow { id: self.row.id, kind: self.row.kind.clone(), status: self.row.status.clone(), took }
    }

    /// Gives the workflow back until it is woken, its deadline comes, or the slow poll, whichever is first.
    pub(super) async fn park(&mut self, guard: Guard, park: &Park) -> Result<AfterStep, JournalError> {
        self.pause(guard, self.delay(park), &park.keys).await
    }

    /// Time until the deadline or the slow poll, whichever is first.
    fn delay(&self, park: &Park) -> Duration {
        let until = park.until.map(|until| Duration::try_from(until.duration_since(*drover_store::now())).unwrap_or_default());
        until.unwrap_or(Duration::MAX).min(self.engine.settings.slow_poll)
    }

    /// Gives the workflow back until one of `keys` is called or `delay` is over. A key that was called while the step ran counts.
    pub(super) async fn pause(&mut self, mut guard: Guard, delay: Duration, keys: &[String]) -> Result<AfterStep, JournalError> {
        let due = guard.park(delay, keys).await?;
        guard.commit().await?;
        self.paused(due, delay, keys).await
    }

    /// The workflow has been given back: it is claimed again when `delay` is over, or at once if it is due or one of `keys` was called meanwhile.
    async fn paused(&self, due: bool, delay: Duration, keys: &[String]) -> Result<AfterStep, JournalError> {
        if due {
            self.engine.due.notify_one();
        } else if !keys.is_empty() && self.engine.wakes.called_since(self.mark, keys) {
            sqlx::query("update workflow set run_at = now() where id = $1 and ended_at is null")
                .bind(self.row.id)
                .execute(&mut *self.engine.store.acquire().await?)
                .await?;
            self.engine.due.notify_one();
        }
        self.engine.nudge_after(delay);
        Ok(AfterStep::Release)
    }
}
