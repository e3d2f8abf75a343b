//! Status of a group in EMCO's format: from its documents and bindings, read in one transaction, and from the synchronizer's
//! latest statuses. No other service and no member is called.

use std::time::Duration;

use drover_api::bindings::ObjectStatus;
use drover_api::status::{DigAction, DigStates, DigStatus};
use drover_store::Timestamp;
use drover_workflow::{ListFilter, Workflow};
use futures::stream::{self, Stream};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::status_view::{AppCopy, StatusQuery};
use super::{App, Error, Group, GroupPath, apps, group};
use crate::store::binding::{self, Role};
use crate::store::bundle;
use crate::store::deployment::{self, DeploymentAction, DeploymentState};
use crate::store::overview::{self, RunningOperation};
use crate::workflows::{Instantiate, Terminate};

/// How often a watched status is read.
const WATCH: Duration = Duration::from_secs(1);

impl App {
    /// Status of a group.
    ///
    /// # Errors
    /// The group or something that a filter names does not exist, or a query failed.
    pub async fn status(&self, path: &GroupPath, wanted: &StatusQuery) -> Result<DigStatus, Error> {
        let mut tx = self.store.begin().await?;
        sqlx::query("set transaction isolation level repeatable read, read only").execute(&mut *tx).await?;
        let group = group::at(&mut tx, path).await?;
        let deployment = deployment::load(&mut tx, group.dig.id, false).await?;
        let states = states(created_at(&mut tx, group.dig.id).await?, deployment::actions(&mut tx, group.dig.id).await?);
        let running = overview::running(&mut tx, group.dig.id).await?;
        let states = as_accepted(states, running.as_ref());
        let copies = self.copies(&mut tx, &group).await?;
        let apps: Vec<String> = overview::apps(&mut tx, &[group.dig.id]).await?.into_iter().map(|(_, app)| app).collect();
        tx.rollback().await?;

        if let Some(earlier) = wanted.earlier(&states)? {
            return Ok(DigStatus { deployed_status: Some(earlier), states, ..named(&group) });
        }
        wanted.check(&apps, &copies)?;
        let deployed = match &running {
            // What an instantiation has done is being removed.
            Some(running) if running.undoing && running.kind == Instantiate::KIND => Some("Terminating".to_owned()),
            Some(running) => Some(apps::state_during(&running.kind, running.waiting)),
            None => self.settled(&group, deployment.state).await?,
        };
        let operation = running.map(|running| running.operation);
        let status = DigStatus { states, operation, deployed_status: deployed, ..named(&group) };
        Ok(wanted.show(status, &apps, &copies))
    }

    /// Streams the status of a group: as it is now, and after each change. A failure ends the stream.
    ///
    /// # Errors
    /// As [`App::status`].
    pub async fn watch_status(&self, path: GroupPath, wanted: StatusQuery) -> Result<impl Stream<Item = DigStatus> + use<>, Error> {
        let first = self.status(&path, &wanted).await?;
        let start = (self.clone(), path, wanted, None, Some(first));
        Ok(stream::unfold(start, |(app, path, wanted, mut last, first)| async move {
            let mut next = first;
            loop {
                let status = match next.take() {
                    Some(status) => status,
                    None => {
                        tokio::time::sleep(WATCH).await;
                        app.status(&path, &wanted).await.ok()?
                    }
                };
                if last.as_ref() != Some(&status) {
                    last = Some(status.clone());
                    return Some((status, (app, path, wanted, last, None)));
                }
            }
        }))
    }

    /// The deployed status of a group that no operation is changing; none if it was never instantiated.
    async fn settled(&self, group: &Group, state: DeploymentState) -> Result<Option<String>, Error> {
        Ok(match state {
            DeploymentState::Created => None,
            DeploymentState::Instantiated | DeploymentState::Terminated => Some(state.to_string()),
            // Stopping undid the instantiation.
            DeploymentState::InstantiateStopped => Some(DeploymentState::Terminated.to_string()),
            // This state is the same before and after a failed instantiation; the last operation tells which.
            DeploymentState::Approved => {
                let last = self
                    .engine
                    .list(&ListFilter { subject: Some(group.subject()), roots: true, limit: 1, ..ListFilter::default() })
                    .await?;
                let of_this = |input: &Value| input["dig"]["id"].as_str().and_then(|id| id.parse::<Uuid>().ok()) == Some(group.dig.id);
                last.first().filter(|last| of_this(&last.input)).and_then(|last| match last.kind.as_str() {
                    Instantiate::KIND => Some("InstantiateFailed".to_owned()),
                    Terminate::KIND => Some("Terminated".to_owned()),
                    _ => None,
                })
            }
        })
    }

    async fn copies(&self, tx: &mut PgConnection, group: &Group) -> Result<Vec<AppCopy>, Error> {
        let bindings = binding::of_dig(&mut *tx, group.dig.id).await?;
        let stands = |app: &str, member: &drover_api::scheduling::MemberKey| {
            bindings.iter().any(|other| other.role != Role::Retiring && other.app == app && other.member == *member)
        };
        let mut copies = Vec::new();
        for binding in &bindings {
            // One entry per cluster: a copy that is being removed is left out if the cluster has a newer one.
            if binding.role == Role::Retiring && stands(&binding.app, &binding.member) {
                continue;
            }
            let status = self.environment.statuses.get(binding.id);
            let objects = match status.as_ref().map(|status| status.objects.clone()).filter(|objects| !objects.is_empty()) {
                Some(objects) => objects,
                None => bundle::objects_in(&mut *tx, self.store.key()?, &binding.digest, &binding.member)
                    .await?
                    .iter()
                    .map(|object| unseen(object, &binding.namespace))
                    .collect(),
            };
            copies.push(AppCopy {
                binding: binding.id,
                app: binding.app.clone(),
                member: binding.member.clone(),
                role: binding.role,
                status,
                objects,
            });
        }
        Ok(copies)
    }
}

fn named(group: &Group) -> DigStatus {
    DigStatus {
        project: group.dig.project.clone(),
        composite_app: group.dig.composite_app.clone(),
        composite_app_version: group.dig.version.clone(),
        composite_profile: group.document.spec.composite_profile.clone(),
        name: group.dig.name.clone(),
        ..DigStatus::default()
    }
}

/// An object of a bundle that the synchronizer has not reported yet.
pub(super) fn unseen(object: &Value, namespace: &str) -> ObjectStatus {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api = text(&object["apiVersion"]);
    let (group, version) = api.split_once('/').unwrap_or(("", &api));
    ObjectStatus {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text(&object["kind"]),
        namespace: object["metadata"]["namespace"].as_str().unwrap_or(namespace).to_owned(),
        name: text(&object["metadata"]["name"]),
        applied: false,
        ready: false,
        reason: None,
    }
}

/// The history as EMCO's clients expect it: a group is Instantiated or Terminated as soon as that is accepted. How far it is, the deployed
/// status says; if an instantiation fails, its entry is gone.
fn as_accepted(mut states: DigStates, running: Option<&RunningOperation>) -> DigStates {
    let Some(running) = running.filter(|running| !running.undoing) else { return states };
    let instance = running.operation.to_string();
    let state = match running.kind.as_str() {
        Instantiate::KIND => DeploymentState::Instantiated,
        Terminate::KIND => DeploymentState::Terminated,
        _ => return states,
    };
    if states.actions.iter().all(|action| action.instance != instance) {
        let (time, revision) = (running.started_at.to_string(), running.revision.unwrap_or_default());
        states.actions.push(DigAction { state: state.to_string(), instance: instance.clone(), time, revision });
        states.statusctxid = instance;
    }
    states
}

async fn created_at(tx: &mut PgConnection, dig: Uuid) -> Result<Timestamp, Error> {
    Ok(sqlx::query_scalar("select created_at from resource where id = $1").bind(dig).fetch_one(tx).await?)
}

/// The history, beginning with the creation, which has no row.
fn states(created: Timestamp, actions: Vec<DeploymentAction>) -> DigStates {
    let instance = actions.iter().rev().find_map(|action| action.instance).map(|id| id.to_string()).unwrap_or_default();
    let first = DigAction { state: DeploymentState::Created.to_string(), instance: String::new(), time: created.to_string(), revision: 0 };
    let later = actions.into_iter().map(|action| DigAction {
        state: action.state,
        instance: action.instance.map(|id| id.to_string()).unwrap_or_default(),
        time: action.at.to_string(),
        revision: action.revision,
    });
    DigStates { statusctxid: instance, actions: std::iter::once(first).chain(later).collect() }
}
