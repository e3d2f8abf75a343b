//! How far the hooks of a binding's chart have run.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::bindings::TestedHook;
use drover_store::{Store, StoreResult};
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use uuid::Uuid;

/// The hooks of one binding. Only a binding whose bundle has hooks has this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Digest of the bundle that was brought in completely, with all its hooks. It needs no hooks again.
    pub settled: Option<String>,
    /// What is being done.
    pub event: Option<Event>,
    /// Addresses of the hooks that were applied: they stay in the member although they are not part of the app.
    #[serde(default)]
    pub applied: BTreeSet<String>,
    /// The tests that ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tested: Option<Tested>,
}

/// Tests of a chart that have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tested {
    /// The run that was asked for.
    pub run: Uuid,
    /// The tests that ran, in their order.
    pub tests: Vec<TestedHook>,
}

/// One event for which hooks run: an installation, upgrade, rollback, deletion, or a run of tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Fence of the desired row that asked for it. Another fence is another attempt, in which all hooks run again.
    pub fence: i64,
    /// Which event it is.
    pub kind: EventKind,
    /// The hooks that have begun, by moment and address.
    pub runs: BTreeMap<String, Run>,
    /// Of a deletion: when it began, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<i64>,
    /// Of tests: the run that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<Uuid>,
    /// Of tests: what the pods of a hook have printed, by its address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub logs: BTreeMap<String, String>,
}

/// For which event a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// Nothing of the app was there.
    Install,
    /// Another version was there.
    Upgrade,
    /// Another version was there, to an earlier revision of which somebody goes back.
    Rollback,
    /// The app is being deleted.
    Delete,
    /// The tests of its chart are run.
    Test,
}

/// What became of one hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Run {
    /// It was applied, or is about to be.
    Started,
    /// It has ended well.
    Succeeded,
    /// It has failed, and why.
    Failed(String),
    /// It has failed, and the deletion goes on without it.
    Ignored,
}

/// Adds the reason why a hook of a deletion failed to what the binding leaves behind (`kept`).
pub async fn note(store: &Store, binding: Uuid, why: &str) -> StoreResult<()> {
    sqlx::query("update binding set kept = array_append(kept, $2) where id = $1")
        .bind(binding)
        .bind(why)
        .execute(&mut *store.acquire().await?)
        .await?;
    Ok(())
}

/// Records how far the hooks of a binding are.
pub async fn set(store: &Store, binding: Uuid, progress: &Progress) -> StoreResult<()> {
    sqlx::query("update binding set hooks = $2 where id = $1")
        .bind(binding)
        .bind(Json(progress))
        .execute(&mut *store.acquire().await?)
        .await?;
    Ok(())
}
