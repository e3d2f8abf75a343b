//! Finds out which project a request is about, where neither its path nor its answer says so before it is too late.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use drover_api::access::Role;
use drover_api::apps::AppList;
use drover_api::operations::Operation;
use drover_api::plans::{PlanDocument, PlanSubject, PlanWish};
use drover_service::clients::migration;
use drover_service::{Answer, PeerError, Principal, Problem, codes, segment};
use serde_json::Value;
use uuid::Uuid;

use super::rules::{Owner, decoded};
use super::visible::View;
use super::{Access, forbidden};
use crate::routes::Upstream;

impl Access {
    /// Whether the principal may do this where the request belongs. `body` is that of the request, for [`Owner::PlanWish`].
    ///
    /// # Errors
    /// It may not: `not_found` if it may not even know, `forbidden` else; or a service does not answer.
    pub(super) async fn permits(&self, principal: &Principal, role: Role, owner: Owner, path: &str, body: &[u8]) -> Result<(), Problem> {
        match owner {
            Owner::PlanWish => match serde_json::from_slice(body) {
                Ok(PlanWish::Newcomer { project, .. }) => {
                    in_project(principal, role, &project, || format!("There is no project {project}"))
                }
                Ok(PlanWish::Drain { .. } | PlanWish::Rebalance {}) => everywhere(principal, Role::Operator),
                // The service says what is wrong with it.
                Err(_) => Ok(()),
            },
            Owner::Plan | Owner::PlanToApply => {
                let plan = self.plan(id(path)?).await?;
                let PlanSubject::Newcomer(dig) = &plan.kind else { return everywhere(principal, Role::Operator) };
                in_project(principal, role, &dig.project, || format!("There is no plan {}", plan.id))?;
                let moves = plan.plan.iter().flat_map(|plan| plan.waves.iter().flatten());
                let foreign = moves.filter(|one| !principal.may(role, Some(&one.dig.project))).count();
                if owner == Owner::PlanToApply && foreign > 0 && !principal.may(Role::Mover, Some(&dig.project)) {
                    let mut problem = forbidden(principal, Role::Mover, Some(&dig.project));
                    problem = problem.reason(format!("the plan moves {foreign} apps of other projects"));
                    return Err(problem);
                }
                Ok(())
            }
            Owner::Operation => {
                let id = id(path)?;
                let operation: Operation = found(self.0.services.peer(Upstream::Orchestrator).get(&format!("/v2/operations/{id}")).await)?;
                let project = operation.subject.split_once('/').map(|(project, _)| project);
                match project {
                    Some(project) => in_project(principal, role, project, || format!("There is no operation {id}")),
                    None if principal.projects().is_some() => Err(codes::NOT_FOUND.problem(format!("There is no operation {id}"))),
                    None => everywhere(principal, if role == Role::Viewer { role } else { Role::Operator }),
                }
            }
            Owner::Copy => self.owns_copy(principal, role, path).await,
        }
    }

    async fn plan(&self, id: Uuid) -> Result<PlanDocument, Problem> {
        let migration: migration::Client = self.0.services.peer(Upstream::Migration).into();
        found(migration.plan_get(&id).await.answer(&migration))
    }

    /// A copy belongs to a project if one of the project's apps has it there.
    async fn owns_copy(&self, principal: &Principal, role: Role, path: &str) -> Result<(), Problem> {
        let Some(projects) = principal.projects() else { return everywhere(principal, role) };
        let segments: Vec<&str> = path.split('/').collect();
        // /v2/cluster-providers/P/clusters/C/copies/B/…
        let [_, _, _, provider, _, cluster, _, binding, ..] = segments.as_slice() else { return Err(no_copy()) };
        let member = format!("{}+{}", decoded(provider), decoded(cluster));
        let binding: Uuid = decoded(binding).parse().map_err(|_| no_copy())?;
        let orchestrator = self.0.services.peer(Upstream::Orchestrator);
        for project in projects.into_iter().filter(|project| principal.may(role, Some(project))) {
            let apps: AppList = orchestrator.get(&format!("/v2/apps?project={}", segment(project))).await?;
            let mut copies = apps.items.iter().filter(|app| app.project == project).flat_map(|app| &app.bindings);
            if copies.any(|copy| copy.binding == binding && copy.member.0 == member) {
                return Ok(());
            }
        }
        Err(no_copy())
    }

    /// What the principal sees.
    ///
    /// # Errors
    /// orchestrator does not answer.
    pub(super) async fn view(&self, principal: &Principal) -> Result<View, Problem> {
        let projects = principal.projects().map(|projects| projects.into_iter().map(str::to_owned).collect());
        let mut view = View::new(projects);
        if !view.is_whole() {
            view.learn(&*self.apps().await?);
        }
        Ok(view)
    }

    /// The list of all apps, at most a second old.
    async fn apps(&self) -> Result<Arc<Value>, Problem> {
        let known = self.0.apps.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, apps)) = known.filter(|(read, _)| read.elapsed() < Duration::from_secs(1)) {
            return Ok(apps);
        }
        let apps: Arc<Value> = Arc::new(self.0.services.peer(Upstream::Orchestrator).get("/v2/apps").await?);
        *self.0.apps.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), Arc::clone(&apps)));
        Ok(apps)
    }
}

fn in_project(principal: &Principal, role: Role, project: &str, unknown: impl Fn() -> String) -> Result<(), Problem> {
    match (principal.may(role, Some(project)), principal.may(Role::Viewer, Some(project))) {
        (true, _) => Ok(()),
        (false, true) => Err(forbidden(principal, role, Some(project))),
        (false, false) => Err(codes::NOT_FOUND.problem(unknown())),
    }
}

fn everywhere(principal: &Principal, role: Role) -> Result<(), Problem> {
    if principal.may(role, None) { Ok(()) } else { Err(forbidden(principal, role, None)) }
}

/// The id in `/v2/<collection>/<id>`.
fn id(path: &str) -> Result<Uuid, Problem> {
    let text = path.split('/').nth(3).map(decoded).unwrap_or_default();
    text.parse().map_err(|_| codes::NOT_FOUND.problem(format!("There is no id {text:?}")))
}

fn no_copy() -> Problem {
    codes::NOT_FOUND.problem("There is no such copy of an app of your projects on this cluster")
}

fn found<T>(result: Result<T, PeerError>) -> Result<T, Problem> {
    result.map_err(|error| match error.problem() {
        Some(problem) if error.is_not_found() => codes::NOT_FOUND.problem(problem.detail.clone()),
        _ => error.into(),
    })
}
