//! Looks for room that nobody explains: claims whose operation has ended and that no binding stands for. There should be
//! none; each one found is said and given back.

use std::collections::HashSet;
use std::time::Duration;

use drover_api::ledger::{ClaimHead, LedgerChange, LedgerTransaction};
use drover_store::StoreError;
use uuid::Uuid;

use crate::app::App;
use crate::store::{binding, hold, next_fence};
use crate::workflows::SettleError;

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(60);

/// Runs for ever.
pub async fn run(app: App) {
    loop {
        tokio::time::sleep(PERIOD).await;
        if let Err(error) = once(&app).await {
            tracing::debug!(error = %drover_service::problem::chain(&error), "claims could not be swept");
        }
    }
}

/// One look; returns the claims that were given back.
pub async fn once(app: &App) -> Result<Vec<Uuid>, SettleError> {
    // Claims first: whatever explains one was written before it ended its operation.
    let claims = app.services.placement.claims().await?;
    let ids: Vec<Uuid> = claims.iter().map(|claim| claim.id).collect();
    let operations: Vec<Uuid> = claims.iter().map(|claim| claim.operation).collect();
    let mut connection = app.store.pool().acquire().await.map_err(StoreError::from)?;
    let ended: HashSet<Uuid> = sqlx::query_scalar("select id from workflow where ended_at is not null and id = any($1)")
        .bind(&operations)
        .fetch_all(&mut *connection)
        .await
        .map_err(StoreError::from)?
        .into_iter()
        .collect();
    // A move that has ended may have claimed for a newcomer whose own operation still runs.
    let held: HashSet<Uuid> = hold::all(&mut connection).await?.into_iter().map(|(dig, _)| dig).collect();
    let explained: HashSet<Uuid> = binding::explained(&mut connection, &ids).await?.into_iter().collect();
    drop(connection);

    let stray: Vec<&ClaimHead> = claims
        .iter()
        .filter(|claim| ended.contains(&claim.operation) && !held.contains(&claim.dig) && !explained.contains(&claim.id))
        .collect();
    for claim in &stray {
        tracing::warn!(claim.id = %claim.id, cluster.id = %claim.member, app = %claim.app, operation.id = %claim.operation,
            "a claim that nothing explains is given back");
        let mut tx = app.store.begin().await?;
        let fence = next_fence(&mut tx).await?;
        tx.commit().await.map_err(StoreError::from)?;
        let release = LedgerTransaction { operation: claim.operation, fence, changes: vec![LedgerChange::Release { claim: claim.id }] };
        app.services.placement.transact(Uuid::new_v5(&claim.id, b"release"), &release).await?;
    }
    Ok(stray.iter().map(|claim| claim.id).collect())
}
