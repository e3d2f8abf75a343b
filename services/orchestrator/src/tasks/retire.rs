//! Removes bindings that are to go but whose operation has ended: sends them away if their operation did not, releases their
//! claims when they are gone (this may be days later, when a member is reachable again), and deletes their rows a minute after.

use std::collections::HashSet;
use std::time::Duration;

use drover_api::bindings::{DesiredState, Phase};
use drover_service::TaskHandle;
use drover_store::{StoreError, StoreResult};
use uuid::Uuid;

use super::batch::each;
use crate::app::App;
use crate::store::binding::{self, Binding};
use crate::store::next_fence;
use crate::workflows::{SettleError, settle};

/// Longest time between two passes.
const PERIOD: Duration = Duration::from_secs(10);

/// Makes a pass at each signal and at least every [`PERIOD`]; never returns.
pub async fn run(app: App, task: TaskHandle) {
    let mut failing = HashSet::new();
    loop {
        app.retire.wait(PERIOD).await;
        task.active();
        match once(&app).await {
            Ok(failures) => {
                // A binding that goes on failing is a warning only once.
                for (id, error) in failures.iter().filter(|(id, _)| !failing.contains(id)) {
                    tracing::warn!(binding.id = %id, error = %drover_service::problem::chain(error), "a retiring binding could not be settled, will retry");
                }
                failing = failures.into_iter().map(|(id, _)| id).collect();
            }
            Err(error) => {
                tracing::warn!(error = %drover_service::problem::chain(&error), "retiring bindings could not be read, will retry")
            }
        }
    }
}

/// One pass over all bindings that are to go. Returns those that failed, each with its error; they do not hold up the others.
///
/// # Errors
/// The bindings could not be read from the database.
pub async fn once(app: &App) -> StoreResult<Vec<(Uuid, SettleError)>> {
    let due = Due::read(app).await?;
    // Placement and the synchronizer are called side by side: when one of them is down, the work at the other goes on.
    let (settled, sent, forgotten) = tokio::join!(
        each(due.gone, |binding| async move { settle(&app.environment, &binding).await }),
        each(due.not_sent, |binding| async move { send_away(app, &binding).await }),
        each(due.forgettable, |id| forget(app, id)),
    );
    let outcomes = settled.into_iter().chain(sent).chain(forgotten);
    Ok(outcomes.filter_map(|(id, outcome)| Some((id, outcome.err()?))).collect())
}

/// What a pass has to do.
struct Due {
    /// Gone from their member: their claims are to be released.
    gone: Vec<(Uuid, Binding)>,
    /// The synchronizer does not know yet that they are to go, and no running operation will tell it.
    not_sent: Vec<(Uuid, Binding)>,
    /// Released long enough ago that no late write can come any more.
    forgettable: Vec<(Uuid, Uuid)>,
}

impl Due {
    async fn read(app: &App) -> StoreResult<Self> {
        let mut connection = app.store.pool().acquire().await?;
        let retiring = binding::retiring(&mut connection).await?;
        let operations: Vec<Uuid> = retiring.iter().map(|binding| binding.operation).collect();
        let running: Vec<Uuid> = sqlx::query_scalar("select id from workflow where ended_at is null and id = any($1)")
            .bind(operations)
            .fetch_all(&mut *connection)
            .await?;
        let running: HashSet<Uuid> = running.into_iter().collect();
        let forgettable = binding::forgettable(&mut connection).await?.into_iter().map(|id| (id, id)).collect();
        let mut due = Self { gone: Vec::new(), not_sent: Vec::new(), forgettable };
        for binding in retiring {
            match app.environment.statuses.get(binding.id).map(|status| status.phase) {
                Some(Phase::Gone) => due.gone.push((binding.id, binding)),
                Some(Phase::Deleting | Phase::Unreachable) => {}
                // Its operation sends it away.
                _ if running.contains(&binding.operation) => {}
                _ => due.not_sent.push((binding.id, binding)),
            }
        }
        Ok(due)
    }
}

async fn send_away(app: &App, binding: &Binding) -> Result<(), SettleError> {
    let mut tx = app.store.begin().await?;
    let fence = next_fence(&mut tx).await?;
    tx.commit().await.map_err(StoreError::from)?;
    app.services.synchronizer.put_binding(&binding.desired(DesiredState::Absent, fence)).await?;
    Ok(())
}

async fn forget(app: &App, id: Uuid) -> Result<(), SettleError> {
    app.services.synchronizer.forget_binding(id).await?;
    let mut tx = app.store.begin().await?;
    binding::delete(&mut tx, &[id]).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}
