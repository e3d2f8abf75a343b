//! Brings about what logical clouds of level 1 are to have in their clusters: sends it to resource-synchronizer, and when it is there, lets
//! cluster-manager make the user. Removes both when the cloud is terminated. Every write may be repeated, so a pass that ends early loses
//! nothing.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use drover_api::bindings::{Bundle, DesiredBinding, DesiredBindings, DesiredState, Phase};
use drover_api::members::UserOrder;
use drover_api::scheduling::DigRef;
use drover_service::{PeerError, TaskHandle};
use uuid::Uuid;

use super::batch::each;
use crate::app::{App, Error};
use crate::store::cloud_copy::{self, CloudCopy};
use crate::store::{bundle, next_fence};

/// Time between two passes.
const PERIOD: Duration = Duration::from_millis(500);
/// How the binding of a logical cloud names its app.
const APP: &str = "logical-cloud";

/// Makes a pass every [`PERIOD`]; never returns.
pub async fn run(app: App, task: TaskHandle) {
    let mut failing: HashSet<Uuid> = HashSet::new();
    loop {
        tokio::time::sleep(PERIOD).await;
        task.active();
        match once(&app).await {
            Ok(outcomes) => {
                for (id, outcome) in outcomes {
                    match outcome {
                        Ok(()) => drop(failing.remove(&id)),
                        // A part that goes on failing is a warning only once.
                        Err(error) if failing.insert(id) => {
                            tracing::warn!(binding.id = %id, error = %drover_service::problem::chain(&error), "a part of a logical cloud could not be advanced, will retry");
                        }
                        Err(_) => {}
                    }
                }
            }
            Err(error) => {
                tracing::debug!(error = %drover_service::problem::chain(&error), "logical clouds could not be read, will retry");
            }
        }
    }
}

/// One pass over everything that is not as it is to be.
///
/// # Errors
/// The database could not be read.
pub async fn once(app: &App) -> Result<Vec<(Uuid, Result<(), Error>)>, Error> {
    let due = cloud_copy::unsettled(&mut *app.store.acquire().await?).await?;
    Ok(each(due.into_iter().map(|copy| (copy.id, copy)).collect(), |copy| advance(app, copy)).await)
}

async fn advance(app: &App, copy: CloudCopy) -> Result<(), Error> {
    let Some(fence) = copy.fence else { return send(app, &copy).await };
    let status = app.environment.statuses.get(copy.id).filter(|status| status.fence >= fence);
    let phase = status.as_ref().map(|status| status.phase);
    let reason = || status.as_ref().and_then(|status| status.reason.clone());
    match (copy.present, phase) {
        (true, Some(Phase::Ready)) => issue(app, &copy).await,
        (true, Some(Phase::Failed)) => record(app, &copy, false, reason(), true).await,
        (true, _) => record(app, &copy, false, reason(), false).await,
        (false, Some(Phase::Gone)) => {
            app.services.cluster_manager.forget_user(&copy.member.0, copy.id).await?;
            app.services.synchronizer.forget_binding(copy.id).await?;
            let mut connection = app.store.acquire().await?;
            Ok(cloud_copy::delete(&mut connection, copy.id).await?)
        }
        (false, _) => record(app, &copy, false, reason(), false).await,
    }
}

/// Sends what is desired now.
async fn send(app: &App, copy: &CloudCopy) -> Result<(), Error> {
    let mut tx = app.store.begin().await?;
    let fence = next_fence(&mut tx).await?;
    let (state, bundle) = match copy.present {
        true => {
            let objects = bundle::objects(&mut tx, app.store.key()?, &copy.digest).await?;
            (DesiredState::Present, Some(Bundle { digest: copy.digest.as_str().into(), objects }))
        }
        false => (DesiredState::Absent, None),
    };
    tx.commit().await?;
    app.services.synchronizer.put_bindings(&DesiredBindings { bundle, bindings: vec![desired(copy, state, fence)] }).await?;
    cloud_copy::sent(&mut *app.store.acquire().await?, copy, fence).await?;
    Ok(())
}

fn desired(copy: &CloudCopy, state: DesiredState, fence: i64) -> DesiredBinding {
    let dig = DigRef {
        id: copy.cloud_id,
        project: copy.project.clone(),
        composite_app: APP.to_owned(),
        version: String::new(),
        name: copy.cloud.clone(),
    };
    DesiredBinding {
        id: copy.id,
        dig: Arc::new(dig),
        app: APP.to_owned(),
        member: copy.member.0.clone(),
        namespace: copy.namespace.clone(),
        digest: copy.digest.as_str().into(),
        state,
        fence,
        // What it may have was checked when it was instantiated.
        grants: None,
        act_as: None,
        share: None,
        rollback: false,
        delete_volumes: false,
        names: false,
    }
}

/// Lets the user be made, whose roles are there.
async fn issue(app: &App, copy: &CloudCopy) -> Result<(), Error> {
    if copy.user_name.is_empty() {
        return record(app, copy, true, None, false).await;
    }
    let order = UserOrder { user_name: copy.user_name.clone(), namespace: copy.namespace.clone() };
    match app.services.cluster_manager.issue_user(&copy.member.0, copy.id, &order).await {
        Ok(user) if user.expires.is_some() => record(app, copy, true, None, false).await,
        Ok(user) => record(app, copy, false, user.reason, false).await,
        Err(error) => {
            let lasting = matches!(&error, PeerError::Refused { .. }) && !error.is_retryable();
            let why = error.problem().map_or_else(|| error.to_string(), |problem| problem.detail.clone());
            record(app, copy, false, Some(why), lasting).await
        }
    }
}

async fn record(app: &App, copy: &CloudCopy, settled: bool, trouble: Option<String>, failed: bool) -> Result<(), Error> {
    let mut connection = app.store.acquire().await?;
    Ok(cloud_copy::record(&mut connection, copy, settled, trouble.as_deref(), failed).await?)
}
