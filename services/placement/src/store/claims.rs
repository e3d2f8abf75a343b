//! Reads claims.

use std::sync::Arc;

use drover_api::ledger::ClaimHead;
use drover_scheduling::{AppRequest, Claim, ClaimState, DigRef, Interner, MemberKey, PodsOnNode};
use drover_store::{Store, StoreError, StoreResult};
use sqlx::types::Json;
use uuid::Uuid;

use super::requests::{Digest, requests};

/// The changes of the ledger after a sequence number.
pub struct LedgerNews {
    /// The current head.
    pub head: i64,
    /// `claims` is the complete list: claims that are not in it are gone.
    pub all: bool,
    /// Claims that were created or changed.
    pub claims: Vec<Claim>,
    /// Released claims, with the fences they were released with.
    pub released: Vec<(Uuid, i64)>,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    dig_id: Uuid,
    project: String,
    composite_app: String,
    composite_app_version: String,
    dig: String,
    app: String,
    member: String,
    state: String,
    surging: bool,
    fence: i64,
    operation: Uuid,
    request: Digest,
    pods: Json<Vec<PodsOnNode>>,
}

impl Row {
    fn claim(self, request: Arc<AppRequest>, digs: &mut Interner<DigRef>) -> Claim {
        debug_assert_eq!(self.app, request.app, "the column is a copy");
        Claim {
            id: self.id,
            dig: digs.intern(DigRef {
                id: self.dig_id,
                project: self.project,
                composite_app: self.composite_app,
                version: self.composite_app_version,
                name: self.dig,
            }),
            request,
            member: MemberKey(self.member),
            // The column's check allows only these three.
            state: match self.state.as_str() {
                "promised" => ClaimState::Promised,
                "leaving" => ClaimState::Leaving,
                _ => ClaimState::Held,
            },
            pods: self.pods.0,
            surging: self.surging,
            fence: self.fence,
            operation: self.operation,
        }
    }
}

/// Claims of these rows, with the requests of their apps.
async fn complete(store: &Store, rows: Vec<Row>) -> StoreResult<Vec<Claim>> {
    let known = requests(store, rows.iter().map(|row| row.request).collect()).await?;
    let mut digs = Interner::default();
    let claim = |row: Row| known.get(&row.request).cloned().ok_or(StoreError::NotFound).map(|request| row.claim(request, &mut digs));
    rows.into_iter().map(claim).collect()
}

/// The value of the column `state`.
pub(super) fn state_column(state: ClaimState) -> &'static str {
    match state {
        ClaimState::Held => "held",
        ClaimState::Promised => "promised",
        ClaimState::Leaving => "leaving",
    }
}

/// The changes after `seq` in one snapshot with the head; `None` if there are none. Without `seq`, or if tombstones after it were
/// deleted, all claims are returned.
///
/// # Errors
/// The store fails.
pub async fn news(store: &Store, seq: Option<i64>) -> StoreResult<Option<LedgerNews>> {
    if let Some(seq) = seq {
        let head: i64 = sqlx::query_scalar("select seq from head").fetch_one(&mut *store.acquire().await?).await?;
        if head == seq {
            return Ok(None);
        }
    }
    let mut tx = store.begin().await?;
    sqlx::query("set transaction isolation level repeatable read read only").execute(&mut *tx).await?;
    let (head, tidied): (i64, i64) = sqlx::query_as("select seq, tidied from head").fetch_one(&mut *tx).await?;
    let since = seq.filter(|seq| *seq >= tidied && *seq <= head);
    let rows: Vec<Row> = sqlx::query_as(include_str!("sql/claims_since.sql")).bind(since.unwrap_or(-1)).fetch_all(&mut *tx).await?;
    let released = sqlx::query_as("select id, fence from tombstone where seq > $1").bind(since.unwrap_or(-1)).fetch_all(&mut *tx).await?;
    tx.commit().await?;
    Ok(Some(LedgerNews { head, all: since.is_none(), claims: complete(store, rows).await?, released }))
}

/// Claims, filtered by deployment intent group, member and operation.
///
/// # Errors
/// The store fails.
pub async fn find(store: &Store, dig: Option<Uuid>, member: Option<&MemberKey>, operation: Option<Uuid>) -> StoreResult<Vec<Claim>> {
    let rows: Vec<Row> = sqlx::query_as(include_str!("sql/claims_where.sql"))
        .bind(dig)
        .bind(member.map(|key| key.0.as_str()))
        .bind(operation)
        .fetch_all(&mut *store.acquire().await?)
        .await?;
    complete(store, rows).await
}

/// All claims without the requests of their apps.
///
/// # Errors
/// The store fails.
pub async fn heads(store: &Store) -> StoreResult<Vec<ClaimHead>> {
    let rows: Vec<(Uuid, Uuid, String, String, Uuid)> =
        sqlx::query_as("select id, dig_id, app, member, operation from claim").fetch_all(&mut *store.acquire().await?).await?;
    Ok(rows.into_iter().map(|(id, dig, app, member, operation)| ClaimHead { id, dig, app, member, operation }).collect())
}
