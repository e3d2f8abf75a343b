//! Users of the demo: requests to every app that may move, without a pause, through the data path.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use drover_api::traffic::RouteList;
use serde_json::json;
use tokio::task::JoinSet;

use drover::session::Session;

/// Between two requests to an app; every second one is on a new connection.
const PAUSE: Duration = Duration::from_millis(10);
const TIMEOUT: Duration = Duration::from_secs(20);

/// The port and the apps of the routes.
pub struct Users {
    port: u16,
    apps: Vec<App>,
    running: JoinSet<()>,
}

struct App {
    name: String,
    host: String,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    served: AtomicU64,
    failed: AtomicU64,
    /// The first failure, in words.
    why: Mutex<Option<String>>,
}

impl Users {
    /// Nobody yet; all routes are to have one port that is free.
    ///
    /// # Errors
    /// No port is free.
    pub fn new() -> Result<Self> {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        Ok(Self { port, apps: Vec::new(), running: JoinSet::new() })
    }

    /// Gives an app a route.
    ///
    /// # Errors
    /// The request fails.
    pub async fn route(&mut self, session: &Session, group: &str, application: &str, app: &str) -> Result<()> {
        let host = format!("{app}.{application}.example");
        let spec = json!({"app": app, "service": app, "servicePort": 80, "host": host, "port": self.port});
        session.client.upsert(&format!("{group}/routes"), app, &json!({"metadata": {"name": app}, "spec": spec})).await?;
        self.apps.push(App { name: format!("{application}/{app}"), host, counts: Arc::default() });
        Ok(())
    }

    /// Whether all routes serve.
    ///
    /// # Errors
    /// The request fails.
    pub async fn are_served(&self, session: &Session) -> Result<bool> {
        let routes = session.client.get::<RouteList>("/v2/routes").await?.items;
        Ok(routes.len() == self.apps.len() && routes.iter().all(|route| route.state == "serving"))
    }

    /// Begins to send requests.
    ///
    /// # Errors
    /// There can be no client.
    pub fn begin(&mut self) -> Result<()> {
        for app in &self.apps {
            let here = std::net::SocketAddr::from(([127, 0, 0, 1], self.port));
            let client = || reqwest::Client::builder().no_proxy().timeout(TIMEOUT).resolve(&app.host, here);
            let clients = [client().build()?, client().pool_max_idle_per_host(0).build()?];
            let (url, counts) = (format!("http://{}:{}/", app.host, self.port), app.counts.clone());
            self.running.spawn(async move {
                for client in clients.iter().cycle() {
                    let failure = match client.get(&url).send().await {
                        Ok(answer) if answer.status().is_success() => None,
                        Ok(answer) => Some(format!("{} {}", answer.status(), answer.text().await.unwrap_or_default())),
                        Err(error) => Some(format!("{error:?}")),
                    };
                    match failure {
                        None => drop(counts.served.fetch_add(1, Ordering::Relaxed)),
                        Some(failure) => {
                            counts.failed.fetch_add(1, Ordering::Relaxed);
                            counts.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
                        }
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        Ok(())
    }

    /// Ends, and tells how many requests were served and failed, of the apps with these names, and why the first one failed.
    pub fn end(mut self, apps: &[String]) -> (u64, u64, BTreeMap<String, String>) {
        self.running.abort_all();
        let (mut served, mut failed, mut why) = (0, 0, BTreeMap::new());
        for app in self.apps.iter().filter(|app| apps.contains(&app.name)) {
            served += app.counts.served.load(Ordering::Relaxed);
            failed += app.counts.failed.load(Ordering::Relaxed);
            if let Some(failure) = app.counts.why.lock().unwrap_or_else(PoisonError::into_inner).clone() {
                why.insert(app.name.clone(), failure);
            }
        }
        (served, failed, why)
    }
}
