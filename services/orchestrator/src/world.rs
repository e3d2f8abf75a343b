//! What workflow steps and tasks reach: own tables, the other services, what is known of bindings, and how long things may
//! take. Not written anywhere.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use drover_api::bindings::BindingStatus;
use drover_api::scheduling::Interner;
use drover_store::{Store, Tx};
use drover_workflow::StepError;
use uuid::Uuid;

use crate::config::Deadlines;
use crate::peers::Services;

/// The world of every workflow here.
pub struct World {
    /// Own tables.
    pub store: Store,
    /// Those it writes into.
    pub services: Services,
    /// What the synchronizer says of bindings.
    pub statuses: Statuses,
    /// How long things may take.
    pub deadlines: Deadlines,
}

impl World {
    /// A new fence for writes of the hand that holds `workflow` with `fence`: higher than that of every write so far.
    ///
    /// The engine's own fence does not do: a parent that wakes up after its child, or an undo after a write that is still on
    /// its way, must come with a higher one although the hand is the same.
    pub async fn fence(&self, workflow: Uuid, fence: i64) -> Result<i64, StepError> {
        let sql = "select nextval('workflow_fence') from workflow where id = $1 and fence = $2";
        let drawn: Option<i64> = sqlx::query_scalar(sql).bind(workflow).bind(fence).fetch_optional(self.store.pool()).await?;
        drawn.ok_or_else(|| StepError::retry("another hand has this workflow now"))
    }

    /// A transaction of the hand that holds `workflow` with `fence`; nobody takes the workflow over while it is open.
    pub async fn transaction(&self, workflow: Uuid, fence: i64) -> Result<Tx, StepError> {
        let mut tx = self.store.begin().await?;
        let held: Option<Uuid> = sqlx::query_scalar("select id from workflow where id = $1 and fence = $2 for share")
            .bind(workflow)
            .bind(fence)
            .fetch_optional(&mut *tx)
            .await?;
        held.map(|_| tx).ok_or_else(|| StepError::retry("another hand has this workflow now"))
    }
}

/// The last word of the synchronizer on each binding, as its feed has it. In memory only: after a restart the feed tells
/// everything again.
#[derive(Clone, Default)]
pub struct Statuses(Arc<RwLock<Known>>);

#[derive(Default)]
struct Known {
    statuses: HashMap<Uuid, Arc<BindingStatus>>,
    /// An app's is the same on all its members.
    digests: Interner<str>,
}

impl Statuses {
    /// What is known of a binding.
    pub fn get(&self, binding: Uuid) -> Option<Arc<BindingStatus>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).statuses.get(&binding).cloned()
    }

    /// A new word; none: the binding is forgotten there.
    pub fn set(&self, binding: Uuid, status: Option<BindingStatus>) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match status {
            Some(mut status) => {
                // Read from JSON it has room for four, and most have one.
                status.objects.shrink_to_fit();
                status.digest = known.digests.intern(status.digest);
                known.statuses.insert(binding, Arc::new(status));
            }
            None => {
                known.statuses.remove(&binding);
            }
        }
    }

    /// Forgets everything: the feed begins anew. Returns what was known.
    pub fn reset(&self) -> Vec<Uuid> {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.statuses.drain().map(|(id, _)| id).collect()
    }
}

/// The key that parks on a binding.
pub fn binding_key(binding: Uuid) -> String {
    format!("binding:{binding}")
}
