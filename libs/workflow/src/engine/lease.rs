//! The engine's lease: a row of `worker` that says until when other engines must leave this engine's workflows alone.
//!
//! It is renewed on a connection of its own. The steps of up to [`super::Settings::concurrency`] workflows share the connections of
//! the pool, and they may hold all of them for longer than the lease lasts. A renewal that queued behind them would come too late:
//! other engines would take over workflows whose engine is alive.

use std::sync::Arc;
use std::time::Duration;

use drover_service::TaskHandle;
use drover_store::{StoreError, StoreResult};
use sqlx::PgConnection;

use super::{Background, Inner};

/// A third of the lease: two renewals may fail before it runs out.
fn period(lease: Duration) -> Duration {
    lease / 3
}

/// Renews the lease of one start of an engine.
struct EngineLease {
    engine: Arc<Inner>,
    /// None before the first renewal and after a failed one.
    connection: Option<PgConnection>,
}

impl EngineLease {
    /// False: another engine has taken the name.
    async fn renew(&mut self) -> StoreResult<bool> {
        let limit = period(self.engine.settings.lease);
        let renewed =
            tokio::time::timeout(limit, self.try_renew()).await.unwrap_or(Err(StoreError::Unavailable(sqlx::Error::PoolTimedOut)));
        if renewed.is_err() {
            // It may be broken, or still waiting for the answer to a statement that timed out.
            self.connection = None;
        }
        renewed
    }

    async fn try_renew(&mut self) -> StoreResult<bool> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.engine.store.connection([]).await?),
        };
        let done =
            sqlx::query("update worker set lease_until = now() + $3 * interval '1 microsecond' where name = $1 and incarnation = $2")
                .bind(&self.engine.settings.name)
                .bind(self.engine.incarnation)
                .bind(self.engine.lease_micros())
                .execute(connection)
                .await?;
        Ok(done.rows_affected() == 1)
    }
}

/// Renews the lease until the engine stops, and once more then: steps that are still running finish under a fresh lease.
pub(super) fn keep(engine: Arc<Inner>, task: TaskHandle) -> Background {
    Box::pin(async move {
        let period = period(engine.settings.lease);
        let mut lease = EngineLease { engine: engine.clone(), connection: None };
        let mut pause = period;
        while tokio::time::timeout(pause, engine.stopping.cancelled()).await.is_err() {
            task.active();
            // Tests stop an engine here, as SIGSTOP would.
            let _ = engine.settings.failpoints.reached(|| "engine/heartbeat".to_owned()).await;
            pause = match lease.renew().await {
                Ok(true) => period,
                Ok(false) => {
                    engine.name_taken.cancel();
                    engine.stopping.cancel();
                    period
                }
                Err(error) => {
                    tracing::warn!(%error, "the engine's lease was not renewed; trying again");
                    period / 4
                }
            };
        }
        let _ = lease.renew().await;
    })
}

impl Inner {
    pub(super) fn lease_micros(&self) -> i64 {
        i64::try_from(self.settings.lease.as_micros()).unwrap_or(i64::MAX)
    }

    /// From now on this start is the engine of that name, and an earlier one is not.
    pub(super) async fn take_name(&self) -> StoreResult<()> {
        sqlx::query(
            "insert into worker (name, incarnation, lease_until) values ($1, $2, now() + $3 * interval '1 microsecond') \
             on conflict (name) do update set incarnation = excluded.incarnation, lease_until = excluded.lease_until",
        )
        .bind(&self.settings.name)
        .bind(self.incarnation)
        .bind(self.lease_micros())
        .execute(&mut *self.store.acquire().await?)
        .await?;
        Ok(())
    }

    /// Ends the lease now, so that other engines need not wait for its end.
    pub(super) async fn give_up_name(&self) -> StoreResult<()> {
        sqlx::query("update worker set lease_until = now() where name = $1 and incarnation = $2")
            .bind(&self.settings.name)
            .bind(self.incarnation)
            .execute(&mut *self.store.acquire().await?)
            .await?;
        Ok(())
    }
}
