//! What workflow steps and tasks work with: own tables, the other services, the reported status of bindings, and deadlines.
//! None of it is persisted.

use drover_store::{Store, Tx};
use drover_workflow::{Ctx, StepError, Workflow};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::config::Deadlines;
use crate::peers::Services;
use crate::statuses::Statuses;
use crate::traffic::Traffic;

/// The environment of every workflow of this service.
pub struct Environment {
    /// The orchestrator's database.
    pub store: Store,
    /// Clients of the other services.
    pub services: Services,
    /// Latest status of each binding, as resource-synchronizer reports it.
    pub statuses: Statuses,
    /// Routes and what the data path reports of them.
    pub traffic: Traffic,
    /// Maximum waiting times.
    pub deadlines: Deadlines,
    /// Wakes parked workflows.
    pub wakes: Wakes,
}

/// What the engine has given to a step for its first write to another service.
#[derive(Debug)]
pub struct Lease {
    workflow: Uuid,
    fence: i64,
    drawn: Option<i64>,
}

impl Lease {
    /// Takes it from the step, whose later writes draw a fence of their own.
    pub fn of<W: Workflow>(ctx: &mut Ctx<W>) -> Self {
        Self { workflow: ctx.id, fence: ctx.fence, drawn: ctx.drawn.take() }
    }
}

impl Environment {
    /// The fence for the first write of a step: the one that was drawn with its start, or else a new one.
    ///
    /// # Errors
    ///
    /// Those of [`Self::fence`].
    pub async fn first_fence(&self, lease: Lease) -> Result<i64, StepError> {
        match lease.drawn {
            Some(drawn) => Ok(drawn),
            None => self.fence(lease.workflow, lease.fence).await,
        }
    }

    /// Draws a new fence for writes of the engine that runs `workflow` with `fence`: higher than the fence of every write so far.
    ///
    /// The engine's own fence is not enough: a parent that continues after its child, or an undo after a write that is still in
    /// flight, must use a higher one although the engine is the same.
    ///
    /// # Errors
    ///
    /// Retry if another engine took over the workflow, or the database cannot be reached.
    pub async fn fence(&self, workflow: Uuid, fence: i64) -> Result<i64, StepError> {
        let sql = "select nextval('workflow_fence') from workflow where id = $1 and fence = $2";
        let drawn: Option<i64> =
            sqlx::query_scalar(sql).bind(workflow).bind(fence).fetch_optional(&mut *self.store.acquire().await?).await?;
        drawn.ok_or_else(lease_lost)
    }

    /// Opens a transaction for the engine that runs `workflow` with `fence`. No other engine can take over the workflow while the
    /// transaction is open.
    ///
    /// # Errors
    ///
    /// Retry if another engine took over the workflow, or the database cannot be reached.
    pub async fn transaction(&self, workflow: Uuid, fence: i64) -> Result<Tx, StepError> {
        let mut tx = self.store.begin().await?;
        let held: Option<Uuid> = sqlx::query_scalar("select id from workflow where id = $1 and fence = $2 for share")
            .bind(workflow)
            .bind(fence)
            .fetch_optional(&mut *tx)
            .await?;
        held.map(|_| tx).ok_or_else(lease_lost)
    }
}

/// Wakes workflows that are parked on a key. Steps and tasks send, and the task `wake` hands the keys to the engine.
#[derive(Clone)]
pub struct Wakes(mpsc::UnboundedSender<String>);

impl Wakes {
    /// A sender, and the keys that it sends.
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<String>) {
        let (sender, keys) = mpsc::unbounded_channel();
        (Self(sender), keys)
    }

    /// Wakes the workflows that are parked on `key`. A wake-up is lost if the process ends; who parks also sets a time.
    pub fn wake(&self, key: impl Into<String>) {
        // No receiver: the service is stopping.
        let _ = self.0.send(key.into());
    }
}

fn lease_lost() -> StepError {
    StepError::retry("lease lost: another engine took over this workflow")
}

/// The key on which a workflow parks to be woken when any operation has ended, and so has dropped its holds.
pub const OPERATION_ENDED: &str = "operation-ended";

/// The key on which a workflow parks to be woken when it is its turn to plan.
pub fn turn_key(workflow: Uuid) -> String {
    format!("turn:{workflow}")
}

/// The key on which a workflow parks to be woken when the status of `binding` changes.
pub fn binding_key(binding: Uuid) -> String {
    format!("binding:{binding}")
}

/// The key on which a workflow parks to be woken when the data path reports of `route`.
pub fn route_key(route: Uuid) -> String {
    format!("route:{route}")
}
