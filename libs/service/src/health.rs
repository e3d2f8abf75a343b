//! Readiness: the dependencies of a service, each by name, and its tasks that fail.
//!
//! `/healthz` says that the process answers, nothing more. `/readyz` runs every check and names each result; a task is named only
//! while it makes the service unready.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::feed::FeedContact;
use drover_tasks::Tasks;

type Check = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// The checks of a service; cheap to clone.
#[derive(Clone)]
pub struct Readiness {
    checks: Arc<RwLock<BTreeMap<String, Check>>>,
    tasks: Tasks,
}

/// The answer of `/readyz`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Ready {
    /// All checks passed and no task fails.
    pub ready: bool,
    /// `ok`, or what is wrong, by dependency; what is wrong with a task, by `task <name>`.
    pub checks: BTreeMap<String, String>,
}

impl Readiness {
    /// Time limit of a check; without an answer by then the service is not ready.
    const TIMEOUT: Duration = Duration::from_secs(2);

    /// No checks but these tasks.
    pub(crate) fn new(tasks: Tasks) -> Self {
        Self { checks: Arc::default(), tasks }
    }

    /// Adds a check of a dependency: `readiness.check("database", move || { let pool = pool.clone(); async move { … } })`.
    pub fn check<F, Fut>(&self, name: impl Into<String>, check: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        let check: Check = Arc::new(move || Box::pin(check()));
        self.checks.write().unwrap_or_else(PoisonError::into_inner).insert(name.into(), check);
    }

    /// Adds a service whose feed must have answered once, because nothing is known before of what that service owns. If it is silent
    /// later, that service is not ready, and this one still is.
    pub fn heard(&self, name: impl Into<String>, contact: FeedContact) {
        self.check(name, move || {
            let heard = contact.age().is_some();
            async move { if heard { Ok(()) } else { Err("its feed has not answered yet".to_owned()) } }
        });
    }

    /// Runs all checks at the same time.
    pub async fn probe(&self) -> Ready {
        let checks = self.checks.read().unwrap_or_else(PoisonError::into_inner).clone();
        let results = futures::future::join_all(checks.into_iter().map(|(name, check)| async move {
            let result = tokio::time::timeout(Self::TIMEOUT, check()).await;
            (name, result.unwrap_or_else(|_| Err("no answer in time".to_owned())))
        }));
        let mut results = results.await;
        results.extend(self.tasks.unready().into_iter().map(|(task, error)| (format!("task {task}"), Err(error))));
        Ready {
            ready: results.iter().all(|(_, result)| result.is_ok()),
            checks: results.into_iter().map(|(name, result)| (name, result.err().unwrap_or_else(|| "ok".to_owned()))).collect(),
        }
    }
}

impl IntoResponse for Ready {
    fn into_response(self) -> Response {
        let status = if self.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, axum::Json(self)).into_response()
    }
}
