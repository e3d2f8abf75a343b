//! Claims due workflows and drives each of them in a task of its own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drover_service::TaskHandle;
use drover_service::tasks::panic_message;
use drover_store::{StoreError, StoreResult};
use futures::FutureExt;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;
use uuid::Uuid;

use super::{Background, Inner, driver::Driver};
use crate::journal::{Claimed, JournalError, StepRow, WorkflowRow, claimed_columns};

/// Claims due workflows that no engine runs: new and parked ones, those of an engine whose lease has run out, and those of an earlier
/// start of this engine. Nothing is claimed by an engine whose own lease has run out: others would take it over at once. One that this start
/// has claimed, but that none of its tasks runs, is claimed again when it has been due for as long as a lease lasts, see
/// [`super::start::Started`].
const CLAIM: &str = concat!(
    "with free as (
    select id, seq from workflow w
    where ended_at is null and run_at <= now() and kind || '/' || version = any($4) and id <> all($5)
      and not exists (select from worker k where k.name = w.worker and k.incarnation = w.incarnation and k.lease_until > now()
          and (k.name <> $1 or k.incarnation <> $2 or w.run_at > now() - $6 * interval '1 microsecond'))
      and exists (select from worker k where k.name = $1 and k.incarnation = $2 and k.lease_until > now())
    order by run_at for update skip locked limit $3)
update workflow w set worker = $1, incarnation = $2, woken = false, refused = false,
    fence = case when w.worker is null and w.incarnation = $2 then w.fence else nextval('workflow_fence') end
from free left join workflow_step s on s.workflow_id = free.id and s.seq = free.seq + 1
where w.id = free.id
returning null::bigint as drawn, ",
    claimed_columns!()
);

/// Marks due workflows whose kind or version this engine does not know and that no engine runs, so that people see them. The mark has no
/// effect on claims: an engine that knows the version still takes them.
const REFUSE: &str = "update workflow w set refused = true, revision = revision + 1, updated_at = now()
    where ended_at is null and not refused and run_at <= now() and kind || '/' || version <> all($1)
      and not exists (select from worker k where k.name = w.worker and k.incarnation = w.incarnation and k.lease_until > now())
    returning id, kind, version";

impl Inner {
    async fn claim(&self, limit: usize) -> StoreResult<Vec<Claimed>> {
        // Waited for first: what begins to run meanwhile must be left out.
        let mut connection = self.store.acquire().await?;
        let running: Vec<Uuid> = self.running().iter().copied().collect();
        let rows = sqlx::query_as(CLAIM)
            .bind(&self.settings.name)
            .bind(self.incarnation)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(self.registry.known())
            .bind(running)
            .bind(self.lease_micros())
            .fetch_all(&mut *connection)
            .await?;
        Ok(rows)
    }

    async fn refuse_unknown(&self) -> StoreResult<()> {
        let refused: Vec<(Uuid, String, i32)> =
            sqlx::query_as(REFUSE).bind(self.registry.known()).fetch_all(&mut *self.store.acquire().await?).await?;
        for (id, kind, version) in refused {
            tracing::error!(workflow.id = %id, kind, version, "refused: this engine does not know this kind and version");
            self.changed(id);
        }
        Ok(())
    }
}

pub(super) fn work(engine: Arc<Inner>, task: TaskHandle) -> Background {
    Box::pin(async move {
        while !engine.stopping.is_cancelled() {
            task.active();
            let full = match engine.claim_and_spawn().await {
                Ok(full) => full,
                Err(error) => {
                    tracing::warn!(%error, "due workflows could not be claimed");
                    false
                }
            };
            if !full {
                tokio::select! {
                    () = engine.due.notified() => {}
                    () = tokio::time::sleep(engine.settings.poll) => {
                        if let Err(error) = engine.refuse_unknown().await {
                            tracing::debug!(%error, "unknown workflows could not be marked");
                        }
                    }
                    () = engine.stopping.cancelled() => {}
                }
            }
        }
    })
}

impl Inner {
    /// True when there may be more workflows to claim.
    async fn claim_and_spawn(self: &Arc<Self>) -> StoreResult<bool> {
        let claims = self.claims.fetch_add(1, Ordering::SeqCst) + 1;
        // Only for half of the free places: workflows that are started here meanwhile need some.
        let free = self.permits.available_permits().div_ceil(2);
        if free == 0 {
            return Ok(false);
        }
        let Ok(mut permits) = self.permits.clone().try_acquire_many_owned(u32::try_from(free).unwrap_or(u32::MAX)) else {
            return Ok(true);
        };
        let rows = self.claim(free).await?;
        let full = rows.len() == free;
        for claimed in rows {
            let place = permits.split(1).and_then(|permit| Place::new(self, claimed.row.id, permit, claims));
            let Some(place) = place else { continue };
            self.spawn(place, claimed);
        }
        Ok(full)
    }

    /// Drives a claimed workflow in a task of its own.
    pub(super) fn spawn(self: &Arc<Self>, mut place: Place, Claimed { row, started }: Claimed) {
        let (engine, killed) = (self.clone(), self.killed.clone());
        self.tasks.spawn(killed.run_until_cancelled_owned(async move {
            let (id, fence) = (row.id, row.fence);
            match AssertUnwindSafe(engine.clone().drive(row, started)).catch_unwind().await {
                Err(panic) => {
                    let error = panic_message(&*panic);
                    tracing::error!(workflow.id = %id, error, "the driver of this workflow panicked; the workflow is continued after a pause");
                    engine.give_back(id, fence, engine.settings.longest_backoff).await;
                }
                Ok(outcome) => {
                    place.kept = matches!(outcome, Err(JournalError::Halted));
                    engine.settle(id, fence, outcome).await;
                }
            }
            drop(place);
        }));
    }

    async fn drive(self: Arc<Self>, row: WorkflowRow, started: Option<StepRow>) -> Result<(), JournalError> {
        let Some(runner) = self.registry.runner(&row.kind, row.version).cloned() else {
            return Ok(());
        };
        let span = tracing::info_span!("workflow", otel.name = %row.kind, workflow.id = %row.id);
        if let Some(traceparent) = &row.traceparent {
            drover_service::telemetry::set_parent(&span, traceparent);
        }
        Driver::new(self, runner, row, started).run().instrument(span).await
    }

    /// Deals with a claim that its driver did not give back because of an error.
    async fn settle(&self, id: Uuid, fence: i64, outcome: Result<(), JournalError>) {
        match outcome {
            Ok(()) => {}
            Err(JournalError::Fenced) => {
                tracing::info!(workflow.id = %id, fence, "lease lost: another engine has taken this workflow over, or Postgres has lost the end of a step");
                // Does nothing in the first case. In the second the workflow is still this engine's, and is continued from its row.
                self.give_back(id, fence, Duration::ZERO).await;
            }
            // A test wants the same as after a SIGKILL: the claim stays, and this process does not run the workflow again.
            Err(JournalError::Halted) => {}
            Err(JournalError::Store(error)) => {
                tracing::warn!(workflow.id = %id, %error, "the journal could not be written; the step will be repeated");
                self.give_back(id, fence, self.settings.backoff).await;
            }
        }
    }

    /// Gives a claim back, so that the workflow is continued after a pause.
    async fn give_back(&self, id: Uuid, fence: i64, pause: Duration) {
        while let Err(error) = self.release(id, fence, pause).await {
            if self.stopping.is_cancelled() {
                return;
            }
            tracing::debug!(workflow.id = %id, %error, "the claim could not be given back; trying again");
            tokio::time::sleep(self.settings.backoff).await;
        }
    }

    async fn release(&self, id: Uuid, fence: i64, pause: Duration) -> Result<(), StoreError> {
        sqlx::query("update workflow set worker = null, run_at = now() + $3 * interval '1 microsecond' where id = $1 and fence = $2 and ended_at is null")
            .bind(id)
            .bind(fence)
            .bind(i64::try_from(pause.as_micros()).unwrap_or(i64::MAX))
            .execute(&mut *self.store.acquire().await?)
            .await?;
        Ok(())
    }
}

/// The place of a workflow that runs in this process, or is about to. When it is dropped, the workflow does not run here any more.
pub(super) struct Place {
    engine: Arc<Inner>,
    id: Uuid,
    permit: Option<OwnedSemaphorePermit>,
    /// How many claims were begun before.
    claims: u64,
    /// Whether the workflow still counts as running here when the place is given back, so that this process does not claim it.
    kept: bool,
}

impl Place {
    /// For a workflow that starts here. The last quarter of the places is for workflows that have waited for longer.
    pub fn take(engine: &Arc<Inner>, id: Uuid) -> Option<Self> {
        if engine.permits.available_permits() <= engine.settings.concurrency / 4 {
            return None;
        }
        // Read first: a claim that finds no permit because this one was taken is made up for when the place is given back.
        let claims = engine.claims.load(Ordering::SeqCst);
        let permit = engine.permits.clone().try_acquire_owned().ok()?;
        Self::new(engine, id, permit, claims)
    }

    /// None when the workflow runs here already.
    fn new(engine: &Arc<Inner>, id: Uuid, permit: OwnedSemaphorePermit, claims: u64) -> Option<Self> {
        let place = || Self { engine: engine.clone(), id, permit: Some(permit), claims, kept: false };
        engine.running().insert(id).then(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.permit.take());
        if self.kept {
            return;
        }
        self.engine.running().remove(&self.id);
        // What was begun since then has left this workflow out, or had no permit.
        if self.engine.claims.load(Ordering::SeqCst) != self.claims {
            self.engine.due.notify_one();
        }
    }
}

impl Inner {
    /// Makes the workflows that wait for one of the keys due. Returns how many there are.
    async fn wake_parked(&self, keys: &[String]) -> StoreResult<u64> {
        let sql = "update workflow set woken = true, run_at = least(run_at, now()) where ended_at is null and wake_keys && $1";
        Ok(sqlx::query(sql).bind(keys).execute(&mut *self.store.acquire().await?).await?.rows_affected())
    }
}

/// Writes wake-ups to the rows of parked workflows, all that have come in since the last time with one statement.
pub(super) fn write_wakes(engine: Arc<Inner>, task: TaskHandle) -> Background {
    Box::pin(async move {
        loop {
            tokio::select! {
                () = engine.called.notified() => {}
                () = engine.stopping.cancelled() => return,
            }
            task.active();
            let keys = engine.wakes.take_pending();
            // A wake-up that came in between the notification and the taking was taken at once; its own notification finds nothing.
            if keys.is_empty() {
                continue;
            }
            let woken = engine.wake_parked(&keys).await;
            match woken {
                Ok(woken) if woken > 0 => engine.due.notify_one(),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "wake-ups could not be written; trying again");
                    engine.wakes.put_back(keys);
                    let _ = tokio::time::timeout(Duration::from_secs(1), engine.stopping.cancelled()).await;
                    engine.called.notify_one();
                }
            }
        }
    })
}
