//! EMCO's `migrate`: another group of the same composite app takes over from a group. The target is instantiated; when it is ready, the
//! source is terminated. If the target does not become ready, the source stays as it is.
//!
//! The pair is a row of `deployment_migration`, which the task `hand_over` reads, so that it survives a restart.

use drover_workflow::Started;
use sqlx::PgConnection;
use uuid::Uuid;

use super::controllers::GroupAdvice;
use super::lifecycle::{Held, Placing};
use super::preview::Preview;
use super::{App, Error, GroupPath, group};
use crate::store::deployment::{self, DeploymentState};
use crate::store::revision::Requester;
use crate::store::{group_migration, hold};

impl App {
    /// Starts to replace the group at `source` by the group at `target`. Returns the id of the target's instantiation.
    ///
    /// # Errors
    /// A group does not exist, is in another state or is being changed by an operation, or a query failed.
    pub async fn migrate(&self, source: &GroupPath, target: &GroupPath, by: &Requester) -> Result<Uuid, Error> {
        let advice = self.advice(target, false).await?;
        let mut tx = self.store.begin().await?;
        let started = self.migrate_in(&mut tx, source, target, by, advice).await?;
        tx.commit().await?;
        Ok(started.run())
    }

    /// What [`App::migrate`] would decide for the target now. Nothing is written.
    ///
    /// # Errors
    /// As [`App::migrate`] and [`App::preview`].
    pub async fn preview_migrate(&self, source: &GroupPath, target: &GroupPath, by: &Requester) -> Result<Preview, Error> {
        let mut tx = self.store.begin().await?;
        drop(self.migrate_in(&mut tx, source, target, by, GroupAdvice::default()).await?);
        tx.rollback().await?;
        self.preview(target, by).await
    }

    async fn migrate_in(
        &self,
        tx: &mut PgConnection,
        source: &GroupPath,
        target: &GroupPath,
        by: &Requester,
        advice: GroupAdvice,
    ) -> Result<Started, Error> {
        let from = group::at(&mut *tx, source).await?;
        let to = group::at(&mut *tx, target).await?;
        if from.dig.id == to.dig.id {
            return Err(Error::Inconsistent(vec!["the target is the group itself; name another group or another version".into()]));
        }
        let state = deployment::load(&mut *tx, from.dig.id, true).await?.state;
        if state != DeploymentState::Instantiated {
            return Err(Error::WrongState { verb: "migrate", state, allowed: &["Instantiated"] });
        }
        if let Some(holder) = hold::holder(&mut *tx, from.dig.id).await? {
            return Err(Error::Busy { holder });
        }
        let placing = Placing { by, changed: Vec::new(), advice, plan: None };
        let target = to.dig.id;
        let held = Held::of(&mut *tx, to).await?;
        let started = self.instantiate_in(&mut *tx, &held, &placing).await?;
        if !group_migration::put(&mut *tx, from.dig.id, target, started.id).await? {
            return Err(Error::NotNow(format!("{} is being replaced by another group already", from.subject())));
        }
        Ok(started)
    }

    /// Terminates each source whose target is instantiated, and forgets those whose target failed.
    ///
    /// # Errors
    /// A query failed; what is left is done by the next call.
    pub(crate) async fn hand_over(&self) -> Result<(), Error> {
        let ended = group_migration::ended(&mut *self.store.acquire().await?).await?;
        for (source, succeeded) in ended {
            let mut tx = self.store.begin().await?;
            let before = deployment::load(&mut tx, source, true).await?;
            if succeeded && before.state == DeploymentState::Instantiated {
                let id = Uuid::now_v7();
                // Another operation is changing it; the next pass tries again.
                if hold::take(&mut tx, id, &[source]).await?.is_err() {
                    continue;
                }
                let group = group::by_id(&mut tx, source).await?;
                self.terminate_in(&mut tx, group, before.revision, id, false).await?;
            }
            group_migration::delete(&mut tx, source).await?;
            tx.commit().await?;
            self.engine.nudge();
        }
        Ok(())
    }
}
