//! Dry runs: what a verb would do now. No service writes anything.

use std::collections::BTreeMap;

use drover_api::ledger::{LedgerChange, LedgerTransaction};
use drover_api::plans::{PlanDocument, PlanOrder};
use drover_api::scheduling::{AppRequest, Decision, MemberKey, PlanKind, RefusedDestination};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::basis::Basis;
use super::newcomer::NewApps;
use super::preflight::Refusal;
use super::revisions::{self, ObjectDiff, Objects};
use super::{App, Error, GroupPath, approve, group, lifecycle};
use crate::store::binding::{self, Role};
use crate::store::deployment::{self, DeploymentState};
use crate::store::grants;
use crate::store::revision::Requester;
use crate::store::{bundle, hold, refused_destination};
use crate::workflows::{self, surge, update};

/// What instantiate would do.
#[derive(Debug, Serialize, ToSchema)]
pub struct Preview {
    /// The decision of placement.
    pub decision: Decision,
    /// The moves that would make room, if no allowed cluster has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanDocument>,
    /// The decision if less preferred clusters are allowed too, where no plan is feasible (`whenFull: preferred`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overflow: Option<Decision>,
    /// What this answer depends on.
    pub basis: Basis,
    /// What clusters would refuse of the objects. Absent if they would accept all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
}

/// What terminate or update would change.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct Change {
    /// Apps that would be changed on the cluster where they run.
    pub applied: Vec<AppOnMember>,
    /// Apps that would be added.
    pub added: Vec<String>,
    /// Apps that would be removed.
    pub removed: Vec<AppOnMember>,
    /// Why the new revision does not fit beside the other applications where it runs. Absent if it fits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub misfits: Vec<String>,
    /// The moves that would make room for it there. Absent if it fits, or if there are none: the update is refused then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanDocument>,
    /// Where the added apps would be placed, with the room as it is before the update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newcomer: Option<Preview>,
    /// What the clusters where the application runs would refuse of the new objects. Absent if they would accept all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
    /// The objects that the update would add, change or remove. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectDiff>,
    /// What this answer depends on. Absent for terminate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// An app on a cluster.
#[derive(Debug, Serialize, ToSchema)]
pub struct AppOnMember {
    pub app: String,
    pub member: MemberKey,
}

fn on_member(binding: &binding::Binding) -> AppOnMember {
    AppOnMember { app: binding.app.clone(), member: binding.member.clone() }
}

/// An order for a plan that is only shown.
pub(super) fn dry_plan(
    kind: PlanKind,
    (excluded, refused): (BTreeMap<Uuid, String>, Vec<RefusedDestination>),
    released: Vec<Uuid>,
    by: &Requester,
) -> PlanOrder {
    PlanOrder {
        kind,
        excluded,
        refused,
        released,
        dry_run: true,
        patient: false,
        operation: None,
        after_seq: None,
        search: Default::default(),
        movable_projects: by.movable_projects.clone(),
    }
}

impl App {
    /// What instantiate would do now.
    ///
    /// # Errors
    /// The group does not exist or is in another state, its documents are inconsistent, or another service is unavailable.
    pub async fn preview(&self, path: &GroupPath, by: &Requester) -> Result<Preview, Error> {
        let mut tx = self.store.begin().await?;
        let group = group::at(&mut tx, path).await?;
        let state = deployment::load(&mut tx, group.dig.id, false).await?.state;
        if !matches!(state, DeploymentState::Approved | DeploymentState::Terminated | DeploymentState::InstantiateStopped) {
            return Err(Error::WrongState { verb: "instantiate", state, allowed: lifecycle::INSTANTIABLE });
        }
        let mut apps = approve::approved_requests(&mut tx, &group).await?;
        let approved = deployment::approved_apps(&mut tx, group.dig.id).await?;
        let rights = grants::of_group(&mut tx, group.dig.id).await?;
        let excluded = hold::busy(&mut tx).await?;
        let refused = refused_destination::recent(&mut tx).await?;
        tx.rollback().await?;
        let advice = self.advice(path, true).await?;
        apps.iter_mut().for_each(|request| advice.add_to(&mut request.terms, &request.app));
        let candidates = self.stored(approved).await?;
        self.newcomer(NewApps { dig: group.dig, apps, together: BTreeMap::new(), rights, candidates: &candidates, excluded, refused, by })
            .await
    }

    /// What instantiate would do if the group were approved first. Nothing is written.
    ///
    /// # Errors
    /// As for approve; or another service is unavailable.
    pub async fn preview_of_documents(&self, path: &GroupPath, by: &Requester) -> Result<Preview, Error> {
        let mut prepared = self.approve(path, true).await?;
        self.advise(path, &mut prepared, true).await?;
        let mut tx = self.store.begin().await?;
        let rights = grants::of_group(&mut tx, prepared.group.dig.id).await?;
        let excluded = hold::busy(&mut tx).await?;
        let refused = refused_destination::recent(&mut tx).await?;
        tx.rollback().await?;
        let (dig, apps, candidates) = (prepared.group.dig.clone(), prepared.requests(), prepared.candidates());
        self.newcomer(NewApps { dig, apps, together: BTreeMap::new(), rights, candidates: &candidates, excluded, refused, by }).await
    }

    /// What terminate would remove now.
    ///
    /// # Errors
    /// The group does not exist or is in another state, or a query failed.
    pub async fn preview_terminate(&self, path: &GroupPath) -> Result<Change, Error> {
        let mut tx = self.store.begin().await?;
        let group = group::at(&mut tx, path).await?;
        let state = deployment::load(&mut tx, group.dig.id, false).await?.state;
        if !matches!(state, DeploymentState::Instantiated | DeploymentState::InstantiateStopped) {
            return Err(Error::WrongState { verb: "terminate", state, allowed: lifecycle::TERMINABLE });
        }
        let bindings = binding::of_dig(&mut tx, group.dig.id).await?;
        Ok(Change {
            removed: bindings.iter().filter(|binding| binding.role == Role::Current).map(on_member).collect(),
            ..Change::default()
        })
    }

    /// What update would change now.
    ///
    /// # Errors
    /// The group does not exist or is in another state, its documents are inconsistent, or another service is unavailable.
    /// Also: an app cannot be rendered.
    pub async fn preview_update(&self, path: &GroupPath, by: &Requester) -> Result<Change, Error> {
        let mut prepared = self
            .prepare(path, true, |state| match state {
                DeploymentState::Instantiated => Ok(()),
                state => Err(Error::WrongState { verb: "update", state, allowed: &["Instantiated"] }),
            })
            .await?;
        self.advise(path, &mut prepared, true).await?;
        let labelled = self.labelled_for(&prepared.revision()).await?;
        let mut tx = self.store.begin().await?;
        let running = binding::of_dig(&mut tx, prepared.group.dig.id).await?;
        let placement = self.services.placement.as_ref();
        let order =
            lifecycle::update_order(&mut tx, (placement, &self.environment.statuses), &prepared.group, &prepared.revision(), &labelled, 0)
                .await?;
        let excluded = hold::busy(&mut tx).await?;
        let refused = refused_destination::recent(&mut tx).await?;
        let rights = grants::of_group(&mut tx, prepared.group.dig.id).await?;
        let (mut old, mut new) = (Objects::default(), Objects::default());
        for copy in running.iter().filter(|binding| binding.role == Role::Current) {
            old.add(&copy.app, bundle::objects(&mut tx, self.store.key()?, &copy.digest).await?);
        }
        tx.rollback().await?;
        prepared.apps.iter().zip(&prepared.bundles).for_each(|(app, rendered)| new.add(&app.app, rendered.objects.iter().cloned()));
        let candidates = prepared.candidates();
        let misfits = match order.raise() {
            changes if changes.is_empty() => Vec::new(),
            changes => self.misfits(changes).await?,
        };
        let plan = match misfits.is_empty() {
            true => None,
            false => self.surge_plan(&order, (excluded.clone(), refused.clone()), by).await?,
        };
        let apps: Vec<AppRequest> = order.added.iter().map(|delivery| delivery.request.clone()).collect();
        let newcomer = if apps.is_empty() {
            None
        } else {
            let (dig, together, rights) = (order.dig.clone(), order.together.clone(), rights.clone());
            Some(self.newcomer(NewApps { dig, apps, together, rights, candidates: &candidates, excluded, refused, by }).await?)
        };
        let places = order.kept.iter().map(|kept| (kept.old.app.clone(), kept.old.member.clone())).collect();
        let mut refusals = self.refusals(&order.dig, rights, &candidates, places).await;
        // Nothing is moved for them.
        refusals.iter_mut().for_each(|refusal| refusal.may_end = false);
        let kept: Vec<AppRequest> = order.kept.iter().map(|kept| kept.request.clone()).collect();
        let basis = newcomer.as_ref().map(|newcomer| newcomer.basis.clone()).unwrap_or_default().with(&kept);
        Ok(Change {
            misfits,
            plan,
            refusals,
            newcomer,
            objects: revisions::differences(&old, &new),
            basis: Some(basis),
            applied: order.kept.iter().map(|kept| on_member(&kept.old)).collect(),
            added: order.added.iter().map(|delivery| delivery.app().to_owned()).collect(),
            removed: running.iter().filter(|binding| order.dropped.contains(&binding.id)).map(on_member).collect(),
        })
    }

    /// The moves that would make room for an update where it runs, if there are any.
    async fn surge_plan(
        &self,
        order: &update::Order,
        (excluded, refused): (BTreeMap<Uuid, String>, Vec<RefusedDestination>),
        by: &Requester,
    ) -> Result<Option<PlanDocument>, Error> {
        let (apps, released) = surge::wanted(&order.kept);
        let kind = PlanKind::Newcomer { dig: order.dig.clone(), apps };
        let order = dry_plan(kind, (excluded, refused), released, by);
        let document = self.services.migration.plan(Uuid::now_v7(), &order).await?;
        Ok(document.plan.as_ref().is_some_and(|plan| !plan.waves.is_empty()).then_some(document))
    }

    /// The reasons why the ledger would refuse these changes.
    async fn misfits(&self, changes: Vec<LedgerChange>) -> Result<Vec<String>, Error> {
        // The highest fence: the check must not fail as a late write.
        let transaction = LedgerTransaction { operation: Uuid::nil(), fence: i64::MAX, changes };
        match self.services.placement.transact_dry(&transaction).await {
            Ok(_) => Ok(Vec::new()),
            Err(error) if error.code() == Some("ledger_conflict") => Ok(workflows::reasons(&error)),
            Err(error) => Err(error.into()),
        }
    }
}
