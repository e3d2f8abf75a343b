//! Removes bindings that are to go but whose operation has ended: sends them away if their operation did not, releases their
//! claims when they are gone (this may be days later, when a member is reachable again), and deletes their rows a minute after.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use drover_api::bindings::{DesiredState, Phase};
use drover_service::TaskHandle;
use drover_store::StoreResult;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::app::App;
use crate::store::binding::{self, Binding};
use crate::store::next_fence;
use crate::workflows::{SettleError, settle};

/// Longest time between two passes.
const PERIOD: Duration = Duration::from_secs(10);

/// How many bindings are worked on at once with the same service. Each may wait for it until the call times out.
const CONCURRENCY: usize = 8;

/// Looks for work at each signal and at least every [`PERIOD`]; never returns. A binding that fails or hangs holds up no other one:
/// bindings that become due meanwhile are begun at once.
pub async fn run(app: App, task: TaskHandle) {
    let mut work = Work::new(&app);
    let mut failing = HashSet::new();
    loop {
        tokio::select! {
            () = app.retire.wait(PERIOD) => {
                task.active();
                match Due::read(&app).await {
                    Ok(due) => work.begin(due),
                    Err(error) => tracing::warn!(error = %drover_service::problem::chain(&error), "retiring bindings could not be read, will retry"),
                }
            }
            Some(ended) = work.ongoing.join_next() => {
                task.active();
                let (id, outcome) = ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
                work.ids.remove(&id);
                match outcome {
                    Ok(()) => {
                        failing.remove(&id);
                    }
                    // A binding that goes on failing is a warning only once.
                    Err(error) => if failing.insert(id) {
                        tracing::warn!(binding.id = %id, error = %drover_service::problem::chain(&error), "a retiring binding could not be settled, will retry");
                    }
                }
            }
        }
    }
}

/// The bindings that are being worked on, each once at a time.
struct Work {
    app: App,
    ids: HashSet<Uuid>,
    /// Tasks of their own: work that waits for a connection must be able to take it while [`Due::read`] waits for one behind it.
    ongoing: JoinSet<(Uuid, Result<(), SettleError>)>,
    // A limit per service: when one of them is down, the work with the other goes on.
    placement: Arc<Semaphore>,
    synchronizer: Arc<Semaphore>,
}

impl Work {
    fn new(app: &App) -> Self {
        let limit = || Arc::new(Semaphore::new(CONCURRENCY));
        Self { app: app.clone(), ids: HashSet::new(), ongoing: JoinSet::new(), placement: limit(), synchronizer: limit() }
    }

    fn begin(&mut self, due: Due) {
        for binding in due.gone {
            let environment = self.app.environment.clone();
            self.add(binding.id, self.placement.clone(), async move { settle(&environment, &binding).await });
        }
        for binding in due.not_sent {
            let app = self.app.clone();
            self.add(binding.id, self.synchronizer.clone(), async move { send_away(&app, &binding).await });
        }
        for id in due.forgettable {
            let app = self.app.clone();
            self.add(id, self.synchronizer.clone(), async move { forget(&app, id).await });
        }
    }

    fn add(&mut self, id: Uuid, limit: Arc<Semaphore>, work: impl Future<Output = Result<(), SettleError>> + Send + 'static) {
        if !self.ids.insert(id) {
            return;
        }
        self.ongoing.spawn(async move {
            // The semaphore is never closed, so that there always is a permit in the end.
            let _permit = limit.acquire().await;
            (id, work.await)
        });
    }
}

/// Bindings that are due.
struct Due {
    /// Gone from their member: their claims are to be released.
    gone: Vec<Binding>,
    /// The synchronizer does not know yet that they are to go, and no running operation will tell it.
    not_sent: Vec<Binding>,
    /// Released long enough ago that no late write can come any more.
    forgettable: Vec<Uuid>,
}

impl Due {
    async fn read(app: &App) -> StoreResult<Self> {
        let mut connection = app.store.acquire().await?;
        let retiring = binding::retiring(&mut connection).await?;
        let operations: Vec<Uuid> = retiring.iter().map(|binding| binding.operation).collect();
        let running: Vec<Uuid> = sqlx::query_scalar("select id from workflow where ended_at is null and id = any($1)")
            .bind(operations)
            .fetch_all(&mut *connection)
            .await?;
        let running: HashSet<Uuid> = running.into_iter().collect();
        let forgettable = binding::forgettable(&mut connection).await?;
        let mut due = Self { gone: Vec::new(), not_sent: Vec::new(), forgettable };
        for binding in retiring {
            match app.environment.statuses.get(binding.id).map(|status| status.phase) {
                Some(Phase::Gone) => due.gone.push(binding),
                Some(Phase::Deleting | Phase::Unreachable) => {}
                // Its operation sends it away.
                _ if running.contains(&binding.operation) => {}
                _ => due.not_sent.push(binding),
            }
        }
        Ok(due)
    }
}

async fn send_away(app: &App, binding: &Binding) -> Result<(), SettleError> {
    let fence = next_fence(&mut *app.store.acquire().await?).await?;
    app.services.synchronizer.put_binding(binding.desired(DesiredState::Absent, fence)).await?;
    Ok(())
}

async fn forget(app: &App, id: Uuid) -> Result<(), SettleError> {
    app.services.synchronizer.forget_binding(id).await?;
    let mut db = app.store.acquire().await?;
    binding::delete(&mut db, &[id]).await?;
    Ok(())
}
