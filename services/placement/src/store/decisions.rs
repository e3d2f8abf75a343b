//! Decisions and receipts as they were answered.

use std::collections::HashMap;
use std::sync::Arc;

use drover_api::ledger::LedgerReceipt;
use drover_scheduling::{Decision, DecisionRequest};
use drover_store::{Store, StoreResult, Timestamp};
use sqlx::types::Json;
use uuid::Uuid;

/// A decision as it was asked for and answered.
#[derive(sqlx::FromRow)]
pub struct StoredDecision {
    /// What was asked.
    pub request: Json<DecisionRequest>,
    /// What was answered.
    pub answer: Json<Decision>,
    /// When.
    pub created_at: Timestamp,
}

/// The stored answers among these decision ids. Planned each time, as a table that grows fast wants it.
pub async fn decisions(store: &Store, ids: &[Uuid]) -> StoreResult<HashMap<Uuid, Arc<Decision>>> {
    let rows: Vec<(Uuid, Json<Decision>)> =
        sqlx::query_as("select id, answer from decision where id = any($1)").persistent(false).bind(ids).fetch_all(store.pool()).await?;
    Ok(rows.into_iter().map(|(id, answer)| (id, Arc::new(answer.0))).collect())
}

/// The stored receipts among these transaction ids.
pub async fn receipts(store: &Store, ids: &[Uuid]) -> StoreResult<HashMap<Uuid, LedgerReceipt>> {
    let rows: Vec<(Uuid, Json<LedgerReceipt>)> =
        sqlx::query_as("select id, answer from receipt where id = any($1)").persistent(false).bind(ids).fetch_all(store.pool()).await?;
    Ok(rows.into_iter().map(|(id, answer)| (id, answer.0)).collect())
}

/// A decision by its id.
pub async fn decision(store: &Store, id: Uuid) -> StoreResult<Option<StoredDecision>> {
    Ok(sqlx::query_as("select request, answer, created_at from decision where id = $1").bind(id).fetch_optional(store.pool()).await?)
}

/// The last decision about an app of the deployment intent group or composite app of this name.
pub async fn last_about(store: &Store, project: &str, group: &str, app: &str) -> StoreResult<Option<StoredDecision>> {
    Ok(sqlx::query_as(include_str!("sql/decision_of_app.sql")).bind(project).bind(group).bind(app).fetch_optional(store.pool()).await?)
}
