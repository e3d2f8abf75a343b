//! Releases stray claims: those whose operation has ended and that no binding explains. There should be none; each one found
//! is a warning in the log.

use std::collections::HashSet;
use std::time::Duration;

use drover_api::ledger::{ClaimHead, LedgerChange, LedgerTransaction};
use drover_service::TaskHandle;
use drover_store::StoreError;
use uuid::Uuid;

use super::batch::each;
use super::every::every;
use crate::app::App;
use crate::store::{binding, hold, next_fence};
use crate::workflows::SettleError;

/// Time between two passes.
const PERIOD: Duration = Duration::from_secs(60);

/// Makes a pass every [`PERIOD`]; never returns.
pub async fn run(app: App, task: TaskHandle) {
    let pass = || async { once(&app).await.map(drop) };
    every(PERIOD, task, "stray claims could not be looked for", pass).await;
}

/// One pass over all claims. Returns those that were released; one that fails is logged and does not hold up the others.
///
/// # Errors
/// Placement did not list its claims, or the database could not be read.
pub async fn once(app: &App) -> Result<Vec<Uuid>, SettleError> {
    // Claims are read first: whatever explains a claim is written before its operation ends.
    let claims = app.services.placement.claims().await?;
    let ids: Vec<Uuid> = claims.iter().map(|claim| claim.id).collect();
    let operations: Vec<Uuid> = claims.iter().map(|claim| claim.operation).collect();
    let mut connection = app.store.acquire().await?;
    let ended: HashSet<Uuid> = sqlx::query_scalar("select id from workflow where ended_at is not null and id = any($1)")
        .bind(&operations)
        .fetch_all(&mut *connection)
        .await
        .map_err(StoreError::from)?
        .into_iter()
        .collect();
    // A relocation that has ended may have claimed room for a newcomer whose own operation still runs.
    let held: HashSet<Uuid> = hold::all(&mut connection).await?.into_iter().map(|(dig, _)| dig).collect();
    let explained: HashSet<Uuid> = binding::explained(&mut connection, &ids).await?.into_iter().collect();
    drop(connection);

    let stray = claims
        .into_iter()
        .filter(|claim| ended.contains(&claim.operation) && !held.contains(&claim.dig) && !explained.contains(&claim.id))
        .map(|claim| (claim.id, claim))
        .collect();
    let mut released = Vec::new();
    for (id, outcome) in each(stray, |claim| release(app, claim)).await {
        match outcome {
            Ok(()) => released.push(id),
            Err(error) => {
                tracing::warn!(claim.id = %id, error = %drover_service::problem::chain(&error), "a stray claim could not be released, will retry");
            }
        }
    }
    Ok(released)
}

async fn release(app: &App, claim: ClaimHead) -> Result<(), SettleError> {
    tracing::warn!(claim.id = %claim.id, cluster.id = %claim.member, app = %claim.app, operation.id = %claim.operation,
        "releasing a stray claim: its operation has ended and no binding has its id");
    let fence = next_fence(&mut *app.store.acquire().await?).await?;
    let release = LedgerTransaction { operation: claim.operation, fence, changes: vec![LedgerChange::Release { claim: claim.id }] };
    app.services.placement.transact(Uuid::new_v5(&claim.id, b"release"), &release).await?;
    Ok(())
}
