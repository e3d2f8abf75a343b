//! Finds bindings that shall go and are gone, also days later: gives their room back, forgets them. A binding that was
//! never told to go (its operation could not any more) is told so here.

use std::collections::HashSet;
use std::time::Duration;

use drover_api::bindings::{DesiredState, Phase};
use uuid::Uuid;

use crate::app::App;
use crate::store::binding::{self, Binding};
use crate::store::next_fence;
use crate::workflows::{SettleError, settle};

/// How often it looks without a signal.
const PERIOD: Duration = Duration::from_secs(10);

/// Runs for ever.
pub async fn run(app: App) {
    let mut failing = false;
    loop {
        app.retire.wait(PERIOD).await;
        let outcome = once(&app).await;
        if let (Err(error), false) = (&outcome, failing) {
            tracing::warn!(error = %drover_service::problem::chain(error), "bindings that shall go are not being settled, trying on");
        }
        failing = outcome.is_err();
    }
}

/// One look.
pub async fn once(app: &App) -> Result<(), SettleError> {
    let mut connection = app.store.pool().acquire().await.map_err(drover_store::StoreError::from)?;
    let retiring = binding::retiring(&mut connection).await?;
    let running: HashSet<Uuid> = sqlx::query_scalar("select id from workflow where ended_at is null and id = any($1)")
        .bind(retiring.iter().map(|binding| binding.operation).collect::<Vec<_>>())
        .fetch_all(&mut *connection)
        .await
        .map_err(drover_store::StoreError::from)?
        .into_iter()
        .collect();
    drop(connection);
    for binding in &retiring {
        match app.environment.statuses.get(binding.id).map(|status| status.phase) {
            Some(Phase::Gone) => settle(&app.environment, binding).await?,
            Some(Phase::Deleting | Phase::Unreachable) => {}
            // Its operation sees to it.
            _ if running.contains(&binding.operation) => {}
            _ => send_away(app, binding).await?,
        }
    }
    let forgettable = binding::forgettable(&mut *app.store.pool().acquire().await.map_err(drover_store::StoreError::from)?).await?;
    for id in forgettable {
        app.services.synchronizer.forget_binding(id).await?;
        let mut tx = app.store.begin().await?;
        binding::delete(&mut tx, &[id]).await?;
        tx.commit().await.map_err(drover_store::StoreError::from)?;
    }
    Ok(())
}

async fn send_away(app: &App, binding: &Binding) -> Result<(), SettleError> {
    let mut tx = app.store.begin().await?;
    let fence = next_fence(&mut tx).await?;
    tx.commit().await.map_err(drover_store::StoreError::from)?;
    app.services.synchronizer.put_binding(&binding.desired(DesiredState::Absent, fence)).await?;
    Ok(())
}
