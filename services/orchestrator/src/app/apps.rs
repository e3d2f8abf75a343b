//! The list of all apps with their copies on clusters.

use std::collections::HashMap;

use drover_api::apps::{AppBinding, AppList, AppRefusal, AppView};
use drover_api::bindings::{BindingStatus, Phase};
use drover_api::scheduling::MemberKey;
use drover_workflow::Workflow;
use uuid::Uuid;

use super::{App, Error, bounds};
use crate::store::binding::Role;
use crate::store::overview::{self, BindingRow};
use crate::store::{bounds as told, refused_destination};
use crate::workflows::readiness::describe;
use crate::workflows::{Grow, Instantiate, Relocate, Terminate, Test, Update};

impl App {
    /// Apps of every group that was approved at least once; of one project if it is named.
    ///
    /// # Errors
    /// A query failed.
    pub async fn apps(&self, project: Option<&str>) -> Result<AppList, Error> {
        let mut tx = self.store.begin().await?;
        // One snapshot for all three lists: an app may move between two queries.
        sqlx::query("set transaction isolation level repeatable read, read only").execute(&mut *tx).await?;
        let groups = overview::groups(&mut tx, project).await?;
        let ids: Vec<Uuid> = groups.iter().map(|group| group.dig_id).collect();
        let mut apps: HashMap<Uuid, Vec<String>> = HashMap::new();
        for (dig, app) in overview::apps(&mut tx, &ids).await? {
            apps.entry(dig).or_default().push(app);
        }
        let told = told::of_digs(&mut tx, &ids).await?;
        let mut copies: HashMap<(Uuid, String), Vec<AppBinding>> = HashMap::new();
        for copy in overview::copies(&mut tx, &ids).await? {
            let status = self.environment.statuses.get(copy.id);
            let (of, unclaimed) = ((copy.dig_id, copy.app.clone()), self.unclaimed.of(copy.id));
            let bounds = told.get(&copy.id).map(bounds::shown).unwrap_or_default();
            copies.entry(of).or_default().push(AppBinding { unclaimed, bounds, ..binding(copy, status.as_deref()) });
        }
        let mut refused: HashMap<(Uuid, String), Vec<AppRefusal>> = HashMap::new();
        for one in refused_destination::recent(&mut tx).await? {
            refused.entry((one.dig, one.app)).or_default().push(AppRefusal { member: one.member, reason: one.reason });
        }
        tx.rollback().await?;
        let mut suffering = self.relief_attempts.suffering();

        let mut items = Vec::new();
        for group in groups {
            let Some([project, composite_app, version, dig]) = names(&group.path) else {
                return Err(Error::Internal(format!("{} is not the path of a deployment intent group", group.path)));
            };
            let settled = if group.failed.is_some() && group.state != "Instantiated" { "Failed".to_owned() } else { group.state.clone() };
            let state = group.kind.as_deref().map_or(settled, |kind| state_during(kind, group.waiting));
            let reason = group.failed.filter(|_| group.kind.is_none());
            for app in apps.remove(&group.dig_id).unwrap_or_default() {
                let bindings = copies.remove(&(group.dig_id, app.clone())).unwrap_or_default();
                items.push(AppView {
                    project: project.to_owned(),
                    composite_app: composite_app.to_owned(),
                    version: version.to_owned(),
                    dig: dig.to_owned(),
                    state: state.clone(),
                    reason: reason.clone(),
                    operation: group.operation,
                    refused: refused.remove(&(group.dig_id, app.clone())).unwrap_or_default(),
                    suffering: bindings.iter().filter_map(|copy| suffering.remove(&copy.binding)).flatten().collect(),
                    bindings,
                    app,
                });
            }
        }
        Ok(AppList { items })
    }
}

/// The state to show for a group that an operation is changing.
pub(super) fn state_during(kind: &str, waiting_for_room: bool) -> String {
    match kind {
        Instantiate::KIND | Update::KIND if waiting_for_room => "WaitingForRoom",
        Grow::KIND => "WaitingForRoom",
        Instantiate::KIND => "Instantiating",
        Update::KIND => "Updating",
        Relocate::KIND => "Relocating",
        Terminate::KIND => "Terminating",
        Test::KIND => "Testing",
        other => other,
    }
    .to_owned()
}

/// The names in the path of a group.
pub(super) fn names(path: &str) -> Option<[&str; 4]> {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["", "v2", "projects", project, "composite-apps", composite_app, version, "deployment-intent-groups", dig] => {
            Some([project, composite_app, version, dig])
        }
        _ => None,
    }
}

fn binding(copy: BindingRow, status: Option<&BindingStatus>) -> AppBinding {
    let phase = phase(copy.role, status);
    let reason =
        status.filter(|_| !["Ready", "Deleting"].contains(&phase.as_str())).map(describe).filter(|words| *words != phase.to_lowercase());
    let scaled = status.map(|status| status.scaled.clone()).unwrap_or_default();
    let since = Some(copy.created_at.to_string());
    let (member, keeping) = (MemberKey(copy.member), copy.keeping);
    AppBinding { binding: copy.id, member, since, phase, reason, scaled, unclaimed: None, bounds: Vec::new(), keeping }
}

/// The phase to show for a copy: the synchronizer's, unless that is older than the copy's role.
pub(super) fn phase(role: Role, status: Option<&BindingStatus>) -> String {
    let phase = match (role, status.map(|status| status.phase)) {
        (Role::Gone, _) | (Role::Retiring, Some(Phase::Gone)) => Phase::Gone,
        (Role::Retiring, Some(Phase::Unreachable)) => Phase::Unreachable,
        // The synchronizer's status may still be from before it was to be removed.
        (Role::Retiring, _) => Phase::Deleting,
        (_, Some(phase)) => phase,
        (Role::Target, None) => Phase::Pending,
        // It serves, but the synchronizer has not reported it since this process started.
        (Role::Current, None) => return "Unknown".to_owned(),
    };
    format!("{phase:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statuses::in_phase;

    fn status(phase: Phase) -> BindingStatus {
        BindingStatus { reason: Some("because".into()), ..in_phase(Uuid::nil(), phase) }
    }

    #[test]
    fn phase_of_a_retiring_copy_is_deleting() {
        let shown = |role, phase: Option<Phase>| super::phase(role, phase.map(status).as_ref());
        assert_eq!(shown(Role::Current, Some(Phase::Ready)), "Ready");
        assert_eq!(shown(Role::Retiring, Some(Phase::Ready)), "Deleting");
        assert_eq!(shown(Role::Retiring, Some(Phase::Unreachable)), "Unreachable");
        assert_eq!(shown(Role::Target, None), "Pending");
        assert_eq!(shown(Role::Current, None), "Unknown");
    }

    #[test]
    fn binding_has_a_reason_only_if_not_ready() {
        let copy = |role| BindingRow {
            id: Uuid::nil(),
            dig_id: Uuid::nil(),
            app: "cart".into(),
            member: "a+b".into(),
            role,
            created_at: drover_store::now(),
            keeping: Vec::new(),
        };
        assert_eq!(binding(copy(Role::Current), Some(&status(Phase::Failed))).reason.as_deref(), Some("because"));
        assert_eq!(binding(copy(Role::Current), Some(&status(Phase::Ready))).reason, None);
        let silent = BindingStatus { reason: None, ..status(Phase::Applying) };
        assert_eq!(binding(copy(Role::Target), Some(&silent)).reason, None);
    }

    #[test]
    fn state_during_names_the_running_verb() {
        assert_eq!(state_during("instantiate", false), "Instantiating");
        assert_eq!(state_during("instantiate", true), "WaitingForRoom");
        assert_eq!(state_during("relocate", false), "Relocating");
        assert_eq!(names("/v2/projects/p/composite-apps/ca/v1/deployment-intent-groups/g"), Some(["p", "ca", "v1", "g"]));
        assert_eq!(names("/v2/projects/p"), None);
    }
}
