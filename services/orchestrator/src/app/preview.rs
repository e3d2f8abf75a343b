//! Dry runs: what a verb would do now. Nothing is written, anywhere.

use drover_api::plans::{PlanDocument, PlanOrder};
use drover_api::scheduling::{Decision, DecisionRequest, MemberKey, Outcome, PlanKind, WhenFull};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{App, Error, GroupPath, approve, group};
use crate::store::binding::{self, Role};
use crate::store::deployment::{self, State};
use crate::store::hold;

/// What instantiate would do.
#[derive(Debug, Serialize, ToSchema)]
pub struct Preview {
    /// What would be decided.
    pub decision: Decision,
    /// What would be moved, where nothing has room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanDocument>,
    /// What would be decided with less preferred clusters too, where no plan is feasible (`whenFull: preferred`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overflow: Option<Decision>,
}

/// What terminate or update would change.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct Change {
    /// Apps that would be applied anew where they are.
    pub applied: Vec<AppOnMember>,
    /// Apps that would be placed as new ones.
    pub added: Vec<String>,
    /// Apps that would go.
    pub removed: Vec<AppOnMember>,
}

/// An app on a cluster.
#[derive(Debug, Serialize, ToSchema)]
pub struct AppOnMember {
    /// App.
    pub app: String,
    /// Cluster.
    pub member: MemberKey,
}

fn on_member(binding: &binding::Binding) -> AppOnMember {
    AppOnMember { app: binding.app.clone(), member: binding.member.clone() }
}

impl App {
    /// Instantiate, as it would be decided now.
    pub async fn preview(&self, path: &GroupPath) -> Result<Preview, Error> {
        let mut tx = self.store.begin().await?;
        let group = group::at(&mut tx, path).await?;
        let state = deployment::load(&mut tx, group.dig.id, false).await?.state;
        if !matches!(state, State::Approved | State::Terminated) {
            return Err(Error::WrongState { verb: "instantiate", state, allowed: &["Approved", "Terminated"] });
        }
        let apps = approve::approved_requests(&mut tx, &group).await?;
        let excluded =
            hold::all(&mut tx).await?.into_iter().map(|(dig, holder)| (dig, format!("operation {holder} works on it"))).collect();
        tx.rollback().await?;

        let mut request = DecisionRequest { dig: group.dig.clone(), apps: apps.clone(), overflow: false, operation: Uuid::nil(), fence: 0 };
        let decision = self.services.placement.decide_dry(&request).await?;
        let mut preview = Preview { plan: None, overflow: None, decision };
        let insists = apps.iter().any(|app| app.terms.when_full == WhenFull::Preferred);
        // Who insists on a provider that is silent does not wait while others have room.
        if preview.decision.outcome == Outcome::NoRoom || (preview.decision.outcome == Outcome::Unknown && insists) {
            let order =
                PlanOrder { kind: PlanKind::Newcomer { dig: group.dig, apps }, excluded, dry_run: true, patient: false, after_seq: None };
            let plan = self.services.migration.plan(Uuid::now_v7(), &order).await?;
            if plan.plan.is_none() && insists {
                request.overflow = true;
                preview.overflow = Some(self.services.placement.decide_dry(&request).await?);
            }
            preview.plan = Some(plan);
        }
        Ok(preview)
    }

    /// Terminate.
    pub async fn preview_terminate(&self, path: &GroupPath) -> Result<Change, Error> {
        let mut tx = self.store.begin().await?;
        let group = group::at(&mut tx, path).await?;
        let state = deployment::load(&mut tx, group.dig.id, false).await?.state;
        if state != State::Instantiated {
            return Err(Error::WrongState { verb: "terminate", state, allowed: &["Instantiated"] });
        }
        let bindings = binding::of_dig(&mut tx, group.dig.id).await?;
        Ok(Change {
            removed: bindings.iter().filter(|binding| binding.role == Role::Current).map(on_member).collect(),
            ..Change::default()
        })
    }

    /// Update.
    pub async fn preview_update(&self, path: &GroupPath) -> Result<Change, Error> {
        let prepared = self
            .prepare(path, |state| match state {
                State::Instantiated => Ok(()),
                state => Err(Error::WrongState { verb: "update", state, allowed: &["Instantiated"] }),
            })
            .await?;
        let mut tx = self.store.begin().await?;
        let running = binding::of_dig(&mut tx, prepared.group.dig.id).await?;
        let order = super::lifecycle::update_order(&mut tx, &prepared, 0).await?;
        tx.rollback().await?;
        Ok(Change {
            applied: order.kept.iter().map(|kept| on_member(&kept.old)).collect(),
            added: order.added.iter().map(|delivery| delivery.app().to_owned()).collect(),
            removed: running.iter().filter(|binding| order.dropped.contains(&binding.id)).map(on_member).collect(),
        })
    }
}
