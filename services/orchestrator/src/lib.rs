//! The project tree and its lifecycle; the only service that writes into other services.
//!
//! Users write documents (`resources`). `approve` turns them into bundles of objects and demands (`render`, `demand`). Only steps
//! of durable workflows (`workflows`) and the tasks `retire` and `sweep` write into other services. Invariant: each claim in the
//! ledger and each object in a member belongs to a row of `binding` or to an operation that still runs.

pub mod agents;
pub mod app;
mod config;
pub mod demand;
pub mod environment;
mod group_path;
mod http;
mod operation_metrics;
pub mod peers;
pub mod render;
pub mod resources;
mod routes;
pub mod statuses;
pub mod store;
pub mod tasks;
pub mod traffic;
mod wake_signal;
pub mod workflows;

use std::sync::Arc;
use std::time::Duration;

use drover_api::traffic::{RouteReport, TrafficTarget};
use drover_resources::Documents;
use drover_service::{Common, FeedReader, Running};
use drover_store::{MigrationSet, Store, StoreConfig};
use drover_workflow::{Engine, Settings};

use app::{App, Parts};
pub use config::{Config, Deadlines};
use environment::{Environment, OPERATION_ENDED, Wakes};
pub use http::traces::spans_of;
use operation_metrics::OperationMetrics;
use peers::Services;
use render::{Helm, Renderer};
pub use routes::{openapi, routes};
use statuses::Statuses;
use traffic::Traffic;
use wake_signal::WakeSignal;

/// Migrations of orchestrator's tables, those of documents first.
pub fn migrations() -> [MigrationSet; 3] {
    [
        drover_resources::migrations(),
        drover_workflow::migrations(),
        MigrationSet::new("orchestrator", sqlx::migrate!("../../migrations/orchestrator")),
    ]
}

/// Starts the service against the real other services.
///
/// # Errors
/// The database cannot be reached or migrated, or the address cannot be bound.
pub async fn start(config: Config, common: Common) -> anyhow::Result<Running> {
    let common = common.scoped("orchestrator");
    let services = Services::over_rest(&common);
    let helm = Helm::new(config.helm.clone(), Duration::from_secs(config.helm_seconds));
    start_with(config, common, services, Arc::new(helm)).await
}

/// Starts the service with these peers and this renderer: for tests and for `drover up`.
///
/// # Errors
/// The database cannot be reached or migrated, or the address cannot be bound.
pub async fn start_with(config: Config, common: Common, services: Services, renderer: Arc<dyn Renderer>) -> anyhow::Result<Running> {
    let app = work(&config, &common, services, renderer, Settings::new(config.instance.clone())).await?;
    let listener = drover_service::bind(config.listen, &common).await?;
    Ok(drover_service::serve(listener, drover_service::router(routes(app.environment.traffic.routes()).with_state(app), &common), &common))
}

/// Starts the store, the engine and the tasks, without listening. They end with `common`.
///
/// # Errors
/// The database cannot be reached or migrated.
pub async fn work(
    config: &Config,
    common: &Common,
    services: Services,
    renderer: Arc<dyn Renderer>,
    engine: Settings,
) -> anyhow::Result<App> {
    let store = Store::connect(&StoreConfig::new("orchestrator", common.database_url.clone()), &migrations()).await?;
    let store = store.with_key(Arc::new(config.seal.key()?));
    store::bundle::seal_all(&store).await?;
    drover_resources::seal_all(&store, resources::KINDS.iter().chain(&resources::controllers::kept::KEPT)).await?;
    common.readiness.check("database", {
        let store = store.clone();
        move || {
            let store = store.clone();
            async move { store.check().await.map_err(|error| error.to_string()) }
        }
    });
    let (wakes, woken) = Wakes::channel();
    let metrics = OperationMetrics::register(&common.metrics);
    let engine = Settings { tasks: common.tasks.clone(), ..engine };
    let data_path = config.traffic.iter().map(|url| (TrafficTarget::DataPath, common.peer("traffic", url), url));
    let synchronizer = &common.peers.resource_synchronizer;
    let gateways = (TrafficTarget::Gateway, common.peer("resource-synchronizer", synchronizer), synchronizer);
    let (mut carriers, mut reports) = (Vec::new(), Vec::<FeedReader<RouteReport>>::new());
    for (target, peer, url) in data_path.chain([gateways]) {
        let reader = FeedReader::new(peer, "/internal/feeds/traffic");
        carriers.push((target, url.clone(), reader.contact()));
        reports.push(reader);
    }
    let app = App::new(parts(store, services, renderer, config, engine, metrics, (wakes, Traffic::new(carriers))).await?);
    // Before anybody can ask: the data path would take an empty feed for the end of all routes.
    app.publish_routes(&mut Default::default()).await?;
    tasks::spawn(&app, common, config, woken, reports);
    stop_with(common, app.engine.clone());
    Ok(app)
}

async fn parts(
    store: Store,
    services: Services,
    renderer: Arc<dyn Renderer>,
    config: &Config,
    engine: Settings,
    metrics: OperationMetrics,
    (wakes, traffic): (Wakes, Traffic),
) -> anyhow::Result<Parts> {
    let environment = Arc::new(Environment {
        store: store.clone(),
        services: services.clone(),
        statuses: Statuses::default(),
        traffic,
        deadlines: config.deadlines(),
        wakes: wakes.clone(),
    });
    let registry = workflows::registry(&environment).on_end(move |ended| {
        metrics.count(ended);
        wakes.wake(OPERATION_ENDED);
    });
    let engine = Engine::start(store.clone(), registry, engine).await?;
    Ok(Parts {
        documents: Documents::new(
            store.clone(),
            app::guard::Guards { migration: services.migration.clone(), traffic: environment.traffic.clone() },
        ),
        store,
        services,
        renderer,
        environment,
        engine,
        retire: WakeSignal::default(),
        controllers: app::controllers::ControllerCalls { allowed: config.controller_origins.clone() },
        measured: app::measured::Measured::default(),
        agent_reports: app::agents::Reports::default(),
        resized: app::claims::Resized::default(),
        unclaimed: app::claims::Unclaimed::default(),
        growth: app::growth::GrowthAttempts::default(),
        relief_attempts: app::reliefs::ReliefAttempts::default(),
        dividing: app::bounds::Dividing::default(),
        bounds_patience: f64::from(config.bounds_seconds),
    })
}

/// Stops the engine with the service: running steps finish, everything else is resumed at the next start.
fn stop_with(common: &Common, engine: Engine) {
    let shutdown = common.shutdown.clone();
    common.tracker.spawn(async move {
        shutdown.cancelled().await;
        engine.stop().await;
    });
}
