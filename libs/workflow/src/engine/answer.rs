//! The journal of a step's answer: on to the next, around again, parked, tried again, given up, turned back.

use std::time::Duration;

use serde_json::{Value, json};

use super::EndedWorkflow;
use super::drive::{Drive, Then, failure};
use crate::journal::{self, Guard, Lost};
use crate::outcome::Park;
use crate::runner::Answer;
use crate::{Failure, Outcome, StepError};

impl Drive {
    /// Journals how a step ended. `writes` is the transaction of a local one: committed with the journal, or dropped.
    pub(super) async fn answered(&mut self, writes: Option<Guard>, index: usize, seq: i32, answer: Answer) -> Result<Then, Lost> {
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
                    self.give_up(index, seq, failure("bad_repeat", format!("{} cannot go back to {from}", info.name))).await?
                }
            },
            Ok(Outcome::Park(park)) => {
                drop(writes);
                let mut guard = self.lock().await?;
                if local {
                    // Its journal row went with its writes.
                    guard.start_step(&self.row, seq, &info).await?;
                }
                let before = (self.row.state.clone(), self.row.message.clone());
                // A local step's state went with its writes.
                self.adopt(if local { Value::Null } else { answer.state }, answer.message);
                if before != (self.row.state.clone(), self.row.message.clone()) {
                    guard.save(&self.row).await?;
                    self.engine.changed(self.row.id);
                }
                return self.park(guard, &park).await;
            }
            Err(StepError::Retry { message, after }) => {
                drop(writes);
                let mut guard = self.lock().await?;
                guard.start_step(&self.row, seq, &info).await?;
                let attempts = guard.retry_step(seq, &message).await?;
                if info.attempts.is_some_and(|most| attempts >= most) {
                    drop(guard);
                    self.give_up(
                        index,
                        seq,
                        failure("step_failed", format!("{} did not succeed in {attempts} attempts: {message}", info.name)),
                    )
                    .await?
                } else {
                    tracing::debug!(workflow.id = %self.row.id, step = info.name, attempts, message, "will be tried again");
                    guard.save(&self.row).await?;
                    let pause = after.unwrap_or_else(|| self.engine.backoff(attempts));
                    return self.pause(guard, pause, &[]).await;
                }
            }
            Err(StepError::Fail(failure)) => {
                drop(writes);
                self.give_up(index, seq, failure).await?
            }
        };
        match self.failpoint(info.name, "do", "after_journal").await? {
            // The journal is written; nothing that happens now can change how the step ended.
            Some(_) | None => Ok(then),
        }
    }

    /// The step is done. The next one is not begun with it: a cancel that comes in between must find nothing to undo.
    async fn advance(&mut self, writes: Option<Guard>, output: &Value) -> Result<Then, Lost> {
        self.row.cancel_requested = match writes {
            Some(mut guard) => {
                let cancel_requested = journal::advance(&mut *guard.tx, &self.row, output).await?;
                guard.commit().await?;
                cancel_requested
            }
            None => journal::advance(self.engine.store.pool(), &self.row, output).await?,
        };
        Ok(self.told())
    }

    async fn give_up(&mut self, index: usize, seq: i32, failure: Failure) -> Result<Then, Lost> {
        let info = self.runner.steps()[index];
        tracing::info!(workflow.id = %self.row.id, step = info.name, code = failure.code, "gives up: {}", failure.message);
        let mut guard = self.lock().await?;
        guard.start_step(&self.row, seq, &info).await?;
        guard.finish_step(seq, "failed", None, Some(&json!(failure))).await?;
        self.row.seq = seq;
        if !self.row.past_pivot {
            return self.turn_back(guard, failure).await;
        }
        // Past the pivot what was done stands. Only the final steps are still owed.
        self.row.failure.get_or_insert(failure);
        let finally = self.runner.finally().unwrap_or(usize::MAX);
        self.move_to(if index < finally { finally } else { index + 1 });
        self.saved(guard).await
    }

    pub(super) async fn turn_back(&mut self, mut guard: Guard, failure: Failure) -> Result<Then, Lost> {
        self.row.failure = Some(failure);
        self.row.status = "undoing".to_owned();
        guard.save(&self.row).await?;
        guard.commit().await?;
        self.engine.changed(self.row.id);
        Ok(Then::GoOn)
    }

    /// To the step of that index, or to the end.
    pub(super) fn move_to(&mut self, index: usize) {
        match self.runner.steps().get(index) {
            Some(step) => self.row.step = step.name.to_owned(),
            None => {
                self.row.step = String::new();
                self.row.status = if self.row.failure.is_some() { "failed" } else { "done" }.to_owned();
            }
        }
    }

    pub(super) async fn saved(&mut self, mut guard: Guard) -> Result<Then, Lost> {
        guard.save(&self.row).await?;
        guard.commit().await?;
        Ok(self.told())
    }

    /// What was written is told to those who watch.
    fn told(&mut self) -> Then {
        self.engine.changed(self.row.id);
        let ended = !matches!(self.row.status.as_str(), "running" | "undoing");
        if ended {
            // Nobody waiting is fine.
            let _ = self.engine.ended.send(self.row.id);
            if let Some(observe) = &self.engine.registry.on_end {
                observe(&self.end());
            }
            if let Some(parent) = self.row.parent_id {
                self.engine.changed(parent);
            }
            self.engine.due.notify_one();
        }
        if ended { Then::LetGo } else { Then::GoOn }
    }

    fn end(&self) -> EndedWorkflow {
        let took = Duration::try_from(drover_store::now().duration_since(*self.row.created_at)).unwrap_or_default();
        EndedWorkflow { id: self.row.id, kind: self.row.kind.clone(), status: self.row.status.clone(), took }
    }

    /// Until woken, at the slow poll at the latest.
    pub(super) async fn park(&mut self, guard: Guard, park: &Park) -> Result<Then, Lost> {
        let until = park.until.map(|until| Duration::try_from(until.duration_since(*drover_store::now())).unwrap_or_default());
        let delay = until.unwrap_or(Duration::MAX).min(self.engine.settings.slow_poll);
        self.pause(guard, delay, &park.keys).await
    }

    pub(super) async fn pause(&mut self, mut guard: Guard, delay: Duration, keys: &[String]) -> Result<Then, Lost> {
        guard.park(delay, keys).await?;
        guard.commit().await?;
        if !keys.is_empty() && self.engine.wakes.called_since(self.mark, keys) {
            sqlx::query("update workflow set run_at = now() where id = $1 and ended_at is null")
                .bind(self.row.id)
                .execute(self.engine.store.pool())
                .await?;
            self.engine.due.notify_one();
        }
        self.engine.nudge_after(delay);
        Ok(Then::LetGo)
    }
}
