//! Stopping what is going on: an instantiation or an update is cancelled, and what it has done is undone.

use std::time::Duration;

use drover_api::operations::Operation;
use drover_workflow::{CancelError, ListFilter, Workflow};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{App, Error, Group, GroupPath, group};
use crate::store::deployment::{self, DeploymentState};
use crate::store::hold;
use crate::store::overview::{self, RunningOperation};
use crate::workflows::{Instantiate, Update};

/// How long to wait for an operation that can no longer be cancelled because it is about to succeed.
const ABOUT_TO_END: Duration = Duration::from_secs(5);

impl App {
    /// Stops an instantiation or an update that is going on, or marks a group whose instantiation failed as stopped. Returns the id of the
    /// operation, which is being undone or was.
    ///
    /// # Errors
    /// Nothing is going on that can be stopped, the group does not exist, or a query failed.
    pub async fn stop(&self, path: &GroupPath) -> Result<Uuid, Error> {
        if let Some(id) = self.undo_instantiation(path, DeploymentState::InstantiateStopped).await? {
            return Ok(id);
        }
        let (group, state, running) = self.going_on(path).await?;
        match running {
            // The old revision runs again, so the group stays Instantiated.
            Some(update) if update.kind == Update::KIND => {
                self.cancel(update.operation).await?;
                Ok(update.operation)
            }
            Some(other) => Err(Error::Busy { holder: other.operation }),
            None => match self.failed_instantiation(&group, state).await? {
                Some(failed) if state != DeploymentState::InstantiateStopped => {
                    self.mark(&group, DeploymentState::InstantiateStopped, None).await?;
                    Ok(failed)
                }
                _ => Err(Error::WrongState { verb: "stop", state, allowed: &["Instantiating", "Updating"] }),
            },
        }
    }

    /// The operation that [`App::stop`] would undo now, or has been undone. Nothing is written.
    ///
    /// # Errors
    /// As [`App::stop`].
    pub async fn preview_stop(&self, path: &GroupPath) -> Result<Operation, Error> {
        let (group, state, running) = self.going_on(path).await?;
        match running {
            Some(running) if [Instantiate::KIND, Update::KIND].contains(&running.kind.as_str()) => {
                self.preview_cancel(running.operation).await
            }
            Some(other) => Err(Error::Busy { holder: other.operation }),
            None => match self.failed_instantiation(&group, state).await? {
                Some(failed) if state != DeploymentState::InstantiateStopped => self.operation(failed, Duration::ZERO).await,
                _ => Err(Error::WrongState { verb: "stop", state, allowed: &["Instantiating", "Updating"] }),
            },
        }
    }

    /// Cancels the instantiation of a group if one is going on, and marks the group with the state that follows. Returns its id; none if
    /// none is going on, or if it succeeded in the meantime.
    pub(super) async fn undo_instantiation(&self, path: &GroupPath, after: DeploymentState) -> Result<Option<Uuid>, Error> {
        let (group, state, running) = self.going_on(path).await?;
        let Some(running) = running.filter(|running| running.kind == Instantiate::KIND) else { return Ok(None) };
        if running.undoing && state == after {
            return Err(Error::Busy { holder: running.operation });
        }
        match self.engine.cancel(running.operation).await {
            Ok(()) => {
                self.mark(&group, after, Some(running.operation)).await?;
                Ok(Some(running.operation))
            }
            Err(CancelError::Ended | CancelError::PastThePivot) => {
                self.engine.until_ended(running.operation, ABOUT_TO_END).await?;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn going_on(&self, path: &GroupPath) -> Result<(Group, DeploymentState, Option<RunningOperation>), Error> {
        let mut tx = self.store.begin().await?;
        let group = group::at(&mut tx, path).await?;
        let state = deployment::load(&mut tx, group.dig.id, false).await?.state;
        let running = overview::running(&mut tx, group.dig.id).await?;
        Ok((group, state, running))
    }

    /// Sets the state of a group that no operation works on, except `undone`, which will not set any.
    async fn mark(&self, group: &Group, state: DeploymentState, undone: Option<Uuid>) -> Result<(), Error> {
        let mut tx = self.store.begin().await?;
        let before = deployment::load(&mut tx, group.dig.id, true).await?;
        match hold::holder(&mut tx, group.dig.id).await? {
            Some(holder) if Some(holder) != undone => return Err(Error::Busy { holder }),
            _ => {}
        }
        deployment::reach(&mut tx, group.dig.id, state, before.revision, undone).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn failed_instantiation(&self, group: &Group, state: DeploymentState) -> Result<Option<Uuid>, Error> {
        self.failed_instantiation_in(&mut *self.store.acquire().await?, group, state).await
    }

    /// The last operation of a group, if that was an instantiation that did not succeed, and nothing has been done about it.
    pub(super) async fn failed_instantiation_in(
        &self,
        db: &mut PgConnection,
        group: &Group,
        state: DeploymentState,
    ) -> Result<Option<Uuid>, Error> {
        let filter = ListFilter { subject: Some(group.subject()), roots: true, limit: 1, ..ListFilter::default() };
        let last = self.engine.list_in(db, &filter).await?.into_iter().next();
        // A group of the same name that was deleted may have had the operation.
        let of_this = |input: &serde_json::Value| input["dig"]["id"].as_str() == Some(&group.dig.id.to_string());
        let failed = last.filter(|last| {
            let undone = last.status == "failed" || (last.status == "cancelled" && state == DeploymentState::Approved);
            last.kind == Instantiate::KIND && undone && of_this(&last.input)
        });
        Ok(failed.map(|failed| failed.id))
    }
}
