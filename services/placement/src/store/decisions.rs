//! Stored decisions and receipts.

use std::collections::HashMap;
use std::sync::Arc;

use drover_api::ledger::LedgerReceipt;
use drover_scheduling::{Decision, DecisionRequest};
use drover_store::{Store, StoreError, StoreResult, Timestamp};
use sqlx::types::Json;
use uuid::Uuid;

use super::packed;
use super::requests::{Digest, requests};

/// Decisions that are read at once when one about an app is searched.
const PAGE: i64 = 16;

/// A decision with its request.
pub struct StoredDecision {
    pub request: DecisionRequest,
    pub answer: Decision,
    pub created_at: Timestamp,
}

#[derive(sqlx::FromRow)]
struct Row {
    requests: Vec<u8>,
    answer: Vec<u8>,
    operation: Uuid,
    fence: i64,
    overflow: bool,
    created_at: Timestamp,
}

impl Row {
    async fn complete(self, store: &Store, answer: Decision) -> StoreResult<StoredDecision> {
        let digests: Vec<Digest> = self.requests.as_chunks().0.to_vec();
        let known = requests(store, digests.clone()).await?;
        let apps = digests.iter().map(|digest| known.get(digest).map(|request| request.as_ref().clone()));
        let request = DecisionRequest {
            dig: answer.dig.clone(),
            apps: apps.collect::<Option<_>>().ok_or(StoreError::NotFound)?,
            overflow: self.overflow,
            refused: Vec::new(),
            operation: self.operation,
            fence: self.fence,
        };
        Ok(StoredDecision { request, answer, created_at: self.created_at })
    }
}

/// The JSON of the stored answers among these decision ids, with the present names of fields. Planned each time, because a cached plan does not suit a table that grows fast.
///
/// # Errors
/// The store fails, or an answer is damaged.
pub async fn decisions(store: &Store, ids: &[Uuid]) -> StoreResult<HashMap<Uuid, Arc<[u8]>>> {
    let rows: Vec<(Uuid, Vec<u8>)> = sqlx::query_as("select id, answer from decision where id = any($1)")
        .persistent(false)
        .bind(ids)
        .fetch_all(&mut *store.acquire().await?)
        .await?;
    // Not as they are stored: an earlier version may have written other names of fields.
    let json = |answer: &[u8]| -> StoreResult<Arc<[u8]>> { Ok(packed::json(&packed::unpack::<Decision>(answer)?).into()) };
    rows.into_iter().map(|(id, answer)| Ok((id, json(&answer)?))).collect()
}

/// The stored receipts among these transaction ids.
///
/// # Errors
/// The store fails.
pub async fn receipts(store: &Store, ids: &[Uuid]) -> StoreResult<HashMap<Uuid, LedgerReceipt>> {
    let rows: Vec<(Uuid, Json<LedgerReceipt>)> = sqlx::query_as("select id, answer from receipt where id = any($1)")
        .persistent(false)
        .bind(ids)
        .fetch_all(&mut *store.acquire().await?)
        .await?;
    Ok(rows.into_iter().map(|(id, answer)| (id, answer.0)).collect())
}

/// A decision by its id, if there is one.
///
/// # Errors
/// The store fails, or the decision is damaged.
pub async fn decision(store: &Store, id: Uuid) -> StoreResult<Option<StoredDecision>> {
    let query = sqlx::query_as("select requests, answer, operation, fence, overflow, created_at from decision where id = $1");
    let Some(row): Option<Row> = query.bind(id).fetch_optional(&mut *store.acquire().await?).await? else { return Ok(None) };
    let answer = packed::unpack(&row.answer)?;
    row.complete(store, answer).await.map(Some)
}

/// The last decision about an app of the deployment intent group or composite app `group` that was made with at most this fence, if there
/// is one.
///
/// # Errors
/// The store fails, or a decision is damaged.
pub async fn last_about(store: &Store, project: &str, group: &str, app: &str, fence: i64) -> StoreResult<Option<StoredDecision>> {
    let mut before = i64::MAX;
    loop {
        let query = sqlx::query_as(include_str!("sql/decisions_about.sql")).bind(project).bind(group).bind(before).bind(PAGE);
        let rows: Vec<Row> = query.fetch_all(&mut *store.acquire().await?).await?;
        let last = (rows.len() as i64) < PAGE;
        for row in rows {
            let answer: Decision = packed::unpack(&row.answer)?;
            if row.fence <= fence && answer.apps.iter().any(|part| part.app == app) {
                return row.complete(store, answer).await.map(Some);
            }
            before = answer.seq;
        }
        if last {
            return Ok(None);
        }
    }
}
