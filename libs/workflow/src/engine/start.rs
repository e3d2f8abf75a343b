//! Starting a workflow for this very engine, which then needs no claim for it.

use std::sync::Arc;

use drover_service::telemetry;
use drover_store::StoreResult;
use sqlx::PgConnection;
use uuid::Uuid;

use super::claim::Place;
use super::{Engine, Inner, StartError};
use crate::Workflow;
use crate::journal::{Claimed, NewWorkflow};

/// A workflow that was inserted in the caller's transaction. After the commit it is to be [`run`](Started::run).
///
/// If that call never comes (the caller went away while it committed, or did not hear that it had), the workflow is claimed as others are,
/// but only when it has been due for as long as a lease lasts. After a rollback there is nothing to run.
#[must_use = "the workflow is to be run after the commit"]
pub struct Started {
    /// Id of the workflow.
    pub id: Uuid,
    engine: Engine,
    /// None when the workflow waits for a claim.
    claimed: Option<(Place, Claimed)>,
}

impl Engine {
    /// As [`Engine::start_in_tx`], but the workflow is claimed for this engine with the same statement, and its first step begun if that is
    /// remote. If the engine has no place for it, it waits for a claim. Nothing is started when there is a workflow of that id already.
    ///
    /// # Errors
    /// As for [`Engine::start_in_tx`].
    pub async fn start_here_in_tx<W: Workflow>(&self, tx: &mut PgConnection, id: Uuid, input: &W::Input) -> Result<Started, StartError> {
        let new = new_workflow::<W>(input)?;
        let claimed = self.0.insert_claimed(&mut *tx, id, &new).await?;
        if claimed.is_none() {
            new.insert(tx, id, None, telemetry::traceparent().as_deref()).await?;
        }
        Ok(Started { id, engine: self.clone(), claimed })
    }
}

impl Started {
    /// Begins to run the workflow; returns its id.
    pub fn run(self) -> Uuid {
        match self.claimed {
            // An engine that stops has given its lease up, or does so soon: another one claims the workflow.
            Some((place, claimed)) if !self.engine.0.stopping.is_cancelled() => self.engine.0.spawn(place, claimed),
            _ => self.engine.nudge(),
        }
        self.id
    }
}

impl Inner {
    /// None when there is no place for it, or the engine does not know its kind, is stopping or has lost its lease.
    async fn insert_claimed(self: &Arc<Self>, tx: &mut PgConnection, id: Uuid, new: &NewWorkflow) -> StoreResult<Option<(Place, Claimed)>> {
        // Before it is inserted, so that no claim finds the row and takes it for one that nobody runs.
        let (kind, version) = new.kind();
        let runs = self.registry.runner(kind, version).is_some() && !self.stopping.is_cancelled();
        let Some(place) = runs.then(|| Place::take(self, id)).flatten() else { return Ok(None) };
        let claimed = new.insert_claimed(tx, id, telemetry::traceparent().as_deref(), (&self.settings.name, self.incarnation)).await?;
        Ok(claimed.map(|claimed| (place, claimed)))
    }
}

/// The row of a workflow with this input.
pub(super) fn new_workflow<W: Workflow>(input: &W::Input) -> Result<NewWorkflow, StartError> {
    NewWorkflow::of::<W>(input).map_err(|error| match error {
        crate::StepError::Retry { message, .. } => StartError::Input(message),
        crate::StepError::Fail(failure) => StartError::Input(failure.message),
    })
}
