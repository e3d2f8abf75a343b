//! Starts operations. The check of the state, the hold and the row of the workflow are written in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::scheduling::{AppRequest, MemberKey, PlacementTerms};
use drover_workflow::{StartError, Started, Workflow};
use sqlx::PgConnection;
use uuid::Uuid;

use super::actions::clusters::LabelledMembers;
use super::basis::Basis;
use super::controllers::{self, ControllerAnswer, ControllerKind, GroupAdvice};
use super::terms::CloudMembers;
use super::{App, Error, Group, GroupPath, approve, calls, dependencies, everywhere, group, intent_change, logical_cloud, terms};
use crate::demand::following;
use crate::peers::Placement;
use crate::statuses::Statuses;
use crate::store::binding::{self, Binding, Role};
use crate::store::deployment::{self, ApprovedApp, DeploymentState};
use crate::store::hold;
use crate::store::revision::{self, NewRevision, Requester, RevisionApp};
use crate::workflows::{After, Delivery, Instantiate, Terminate, Update, instantiate, terminate, update};

/// The states from which a group can be instantiated.
pub(super) const INSTANTIABLE: &[&str] = &["Approved", "Terminated", "InstantiateStopped"];
/// The states from which a group can be terminated; also after an instantiation that failed.
pub(super) const TERMINABLE: &[&str] = &["Instantiated", "InstantiateStopped"];

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Store(error) => Self::Store(error),
            StartError::Input(reason) => Self::Internal(reason),
        }
    }
}

impl App {
    /// Starts to instantiate a group. Returns the id of the operation.
    ///
    /// # Errors
    /// The group does not exist, is in another state or is being changed by an operation, or a query failed. Also:
    /// its documents are inconsistent.
    pub async fn instantiate(&self, path: &GroupPath, by: &Requester, basis: Option<&Basis>) -> Result<Uuid, Error> {
        let changed = match basis {
            Some(basis) => basis.changes(&self.preview(path, by).await?.basis),
            None => Vec::new(),
        };
        let mut tx = self.store.begin().await?;
        let mut held = Held::take(&mut tx, path).await?;
        let mut advice = GroupAdvice::default();
        if !controllers::named(&mut tx, &held.group, ControllerKind::Placement).await?.is_empty() {
            // Controllers are other services, which are asked without a connection.
            tx.rollback().await?;
            advice = self.advice(path, false).await?;
            tx = self.store.begin().await?;
            held = Held::take(&mut tx, path).await?;
        }
        let started = self.instantiate_in(&mut tx, &held, &Placing { by, changed, advice, plan: None }).await?;
        tx.commit().await?;
        Ok(started.run())
    }

    /// As [`App::instantiate`], in the transaction in which the group's hold was taken. What is returned is to be run after the commit.
    pub(super) async fn instantiate_in(&self, tx: &mut PgConnection, held: &Held, placing: &Placing<'_>) -> Result<Started, Error> {
        let Held { operation: id, state, ref group } = *held;
        let cloud = terms::cloud(&mut *tx, group).await?;
        let apps = match state {
            DeploymentState::Approved | DeploymentState::Terminated | DeploymentState::InstantiateStopped => {
                deliveries(&mut *tx, group, &cloud, &placing.advice).await?
            }
            _ => return Err(Error::WrongState { verb: "instantiate", state, allowed: INSTANTIABLE }),
        };
        logical_cloud::require(&mut *tx, &cloud.document, &cloud.members).await?;
        let revised: Vec<RevisionApp> = apps.iter().map(revision_app).collect();
        let new = NewRevision {
            dig: group.dig.id,
            operation: id,
            kind: Instantiate::KIND,
            from_revision: None,
            requested_by: placing.by,
            description: "",
            controllers: &placing.advice.answers,
            with_approved_actions: true,
            apps: &revised,
        };
        let revision = revision::draw(&mut *tx, &new).await?;
        let order = instantiate::Order { dig: group.dig.clone(), revision, apps, plan: placing.plan, changed: placing.changed.clone() };
        Ok(self.engine.start_here_in_tx::<Instantiate>(tx, id, &order).await?)
    }

    /// Starts to terminate a group. An instantiation that is going on is undone instead, and so is what a failed one has left; volume claims
    /// stay then. Returns the id of the operation.
    ///
    /// # Errors
    /// The group does not exist, is in another state or is being changed by another operation, or a query failed.
    pub async fn terminate(&self, path: &GroupPath, delete_volumes: bool) -> Result<Uuid, Error> {
        if let Some(id) = self.undo_instantiation(path, DeploymentState::Terminated).await? {
            return Ok(id);
        }
        let id = Uuid::now_v7();
        let mut tx = self.store.begin().await?;
        let group = group::at(&mut tx, path).await?;
        let before = deployment::load(&mut tx, group.dig.id, true).await?;
        hold::take(&mut tx, id, &[group.dig.id]).await??;
        let possible = match before.state {
            DeploymentState::Instantiated | DeploymentState::InstantiateStopped => true,
            _ => self.failed_instantiation_in(&mut tx, &group, before.state).await?.is_some(),
        };
        if !possible {
            return Err(Error::WrongState { verb: "terminate", state: before.state, allowed: TERMINABLE });
        }
        self.terminate_in(&mut tx, group, before.revision, id, delete_volumes).await?;
        tx.commit().await?;
        self.engine.nudge();
        Ok(id)
    }

    /// Starts the termination of a group whose hold is taken.
    pub(crate) async fn terminate_in(
        &self,
        tx: &mut PgConnection,
        group: Group,
        revision: i64,
        id: Uuid,
        delete_volumes: bool,
    ) -> Result<(), Error> {
        // Inconsistent documents must not prevent termination.
        let after = match dependencies::of(&mut *tx, &group).await {
            Err(Error::Inconsistent(_)) => BTreeMap::new(),
            other => other?,
        };
        self.engine.start_in_tx::<Terminate>(tx, id, &terminate::Order { dig: group.dig, revision, after, delete_volumes }).await?;
        Ok(())
    }

    /// Starts to update a group in place to what its documents say now. They are rendered before the hold is taken. Returns the id
    /// of the operation and the new revision.
    ///
    /// # Errors
    /// The group does not exist, is in another state or is being changed by an operation, or a query failed. Also:
    /// its documents are inconsistent, or an app cannot be rendered.
    pub async fn update(&self, path: &GroupPath, by: &Requester, basis: Option<&Basis>) -> Result<(Uuid, i64), Error> {
        let changed = match basis {
            Some(basis) => basis.changes(&self.preview_update(path, by).await?.basis.unwrap_or_default()),
            None => Vec::new(),
        };
        let mut prepared = self
            .prepare(path, false, |state| match state {
                DeploymentState::Instantiated => Ok(()),
                state => Err(Error::WrongState { verb: "update", state, allowed: &["Instantiated"] }),
            })
            .await?;
        self.advise(path, &mut prepared, false).await?;
        let labelled = self.labelled_for(&prepared.revision()).await?;
        let mut tx = self.store.begin().await?;
        prepared.store_bundles(&mut tx, self.store.key()?).await?;
        let answers = &prepared.answers;
        let change = RevisionChange { verb: Update::KIND, from_revision: None, by, description: "", answers, labelled, changed };
        let started = self.change_in(&mut tx, &prepared.group, &prepared.revision(), &change).await?;
        tx.commit().await?;
        self.engine.nudge();
        Ok(started)
    }

    /// Starts to change a group to these apps. Returns the id of the operation and the new revision.
    pub(super) async fn change_in(
        &self,
        tx: &mut PgConnection,
        group: &Group,
        apps: &[RevisionApp],
        change: &RevisionChange<'_>,
    ) -> Result<(Uuid, i64), Error> {
        let id = Uuid::now_v7();
        let before = deployment::load(&mut *tx, group.dig.id, true).await?;
        hold::take(&mut *tx, id, &[group.dig.id]).await??;
        if before.state != DeploymentState::Instantiated {
            return Err(Error::WrongState { verb: change.verb, state: before.state, allowed: &["Instantiated"] });
        }
        self.require_cloud(&mut *tx, group).await?;
        let placement = self.services.placement.as_ref();
        let order = update_order(&mut *tx, (placement, &self.environment.statuses), group, apps, &change.labelled, before.revision).await?;
        let new = NewRevision {
            dig: group.dig.id,
            operation: id,
            kind: change.verb,
            from_revision: change.from_revision,
            requested_by: change.by,
            description: change.description,
            controllers: change.answers,
            with_approved_actions: false,
            apps,
        };
        let (changed, rollback) = (change.changed.clone(), change.from_revision.is_some());
        let order = update::Order { revision: revision::draw(&mut *tx, &new).await?, changed, rollback, ..order };
        self.engine.start_in_tx::<Update>(tx, id, &order).await?;
        Ok((id, order.revision))
    }

    /// The clusters of the logical cloud, with their labels if the intents of these apps name any.
    pub(super) async fn labelled_for(&self, apps: &[RevisionApp]) -> Result<LabelledMembers, Error> {
        let members: BTreeSet<MemberKey> = apps.iter().flat_map(|app| app.terms.logical_cloud.iter().cloned()).collect();
        let labels = apps.iter().any(|app| intent_change::names_labels(&app.terms.intent));
        self.labelled(&members.into_iter().collect::<Vec<_>>(), labels).await
    }

    /// Refuses to deploy into a logical cloud that is not there.
    async fn require_cloud(&self, tx: &mut PgConnection, group: &Group) -> Result<(), Error> {
        let cloud = terms::cloud(&mut *tx, group).await?;
        logical_cloud::require(tx, &cloud.document, &cloud.members).await
    }
}

/// The apps of a group as they are to be delivered.
async fn deliveries(tx: &mut PgConnection, group: &Group, cloud: &CloudMembers, advice: &GroupAdvice) -> Result<Vec<Delivery>, Error> {
    let approved = deployment::approved(&mut *tx, group.dig.id).await?;
    if approved.running {
        return Err(Error::Internal(format!("{} can be instantiated but some of its apps are running", group.subject())));
    }
    let mut requests = approve::requests_of(&mut *tx, group, cloud, &approved.apps).await?;
    requests.iter_mut().for_each(|request| advice.add_to(&mut request.terms, &request.app));
    let after = dependencies::of(tx, group).await?;
    let delivery = |(app, request): (ApprovedApp, AppRequest)| Delivery {
        after: after.get(&app.app).cloned().unwrap_or_default(),
        digest: app.digest,
        namespace: app.namespace,
        request,
    };
    Ok(approved.apps.into_iter().zip(requests).map(delivery).collect())
}

/// A group that is to be instantiated by an operation, which has taken its hold.
pub(super) struct Held {
    operation: Uuid,
    /// The group's state before.
    state: DeploymentState,
    group: Group,
}

impl Held {
    /// Takes the hold of the group at this path for a new operation. What is around the group is read afterwards.
    ///
    /// # Errors
    /// The group does not exist or is being changed by another operation, or a query failed.
    pub async fn take(tx: &mut PgConnection, path: &GroupPath) -> Result<Self, Error> {
        let group = group::at(&mut *tx, path).await?;
        Self::of(tx, group).await
    }

    /// As [`Held::take`], of this group.
    pub async fn of(tx: &mut PgConnection, group: Group) -> Result<Self, Error> {
        let operation = Uuid::now_v7();
        let (before, taken) = hold::take_locked(tx, operation, group.dig.id).await?;
        taken?;
        let state = before.state;
        Ok(Self { operation, state, group: group.renewed() })
    }
}

/// How a group is to be placed.
pub(super) struct Placing<'a> {
    /// Who asks for it.
    pub by: &'a Requester,
    /// What has changed since a dry run.
    pub changed: Vec<String>,
    /// What placement controllers say.
    pub advice: GroupAdvice,
    /// A plan that a user chose.
    pub plan: Option<Uuid>,
}

/// How a revision came to be.
pub(super) struct RevisionChange<'a> {
    /// `update` or `rollback`.
    pub verb: &'static str,
    /// Of a rollback: the revision that it goes back to.
    pub from_revision: Option<i64>,
    pub by: &'a Requester,
    pub description: &'a str,
    /// What controllers answered.
    pub answers: &'a [ControllerAnswer],
    /// The labels of the clusters, which intents may name.
    pub labelled: LabelledMembers,
    /// What has changed since a dry run.
    pub changed: Vec<String>,
}

fn revision_app(delivery: &Delivery) -> RevisionApp {
    let Delivery { request, digest, namespace, .. } = delivery;
    let (app, digest, namespace) = (request.app.clone(), digest.clone(), namespace.clone());
    RevisionApp { app: ApprovedApp { app, digest, namespace, demand: request.demand.clone() }, terms: request.terms.clone() }
}

/// The changes that lead to these apps. A copy stays on its member as long as the app's intent allows that; otherwise a copy that the
/// intent allows is started first, and the old one is removed when that is ready. `revision` is 0: it is drawn when the order is stored.
pub(super) async fn update_order(
    tx: &mut PgConnection,
    (placement, statuses): (&dyn Placement, &Statuses),
    group: &Group,
    apps: &[RevisionApp],
    labelled: &LabelledMembers,
    from_revision: i64,
) -> Result<update::Order, Error> {
    let after: BTreeMap<String, Vec<After>> = dependencies::of(&mut *tx, group).await?;
    let running: Vec<_> =
        binding::of_dig(&mut *tx, group.dig.id).await?.into_iter().filter(|binding| binding.role == Role::Current).collect();
    let (mut kept, mut added) = (Vec::new(), Vec::new());
    let gone = |old: &&Binding| !apps.iter().any(|app| app.app.app == old.app);
    let mut dropped: Vec<Uuid> = running.iter().filter(gone).map(|old| old.id).collect();
    for revised @ RevisionApp { app, terms } in apps {
        let copies: Vec<&Binding> = running.iter().filter(|old| old.app == app.app).collect();
        let is_new = copies.iter().any(|copy| copy.request.terms.intent != terms.intent);
        let asks = everywhere::spreads(&terms.intent) || (is_new && everywhere::has_open_parts(&terms.intent));
        let wanted = match asks && !copies.is_empty() {
            true => everywhere::resolved(placement, &group.dig, &revised.request(), &copies).await?,
            false => None,
        };
        let wanted = wanted.unwrap_or_else(|| terms.intent.clone());
        let change = intent_change::of(&copies, &wanted, labelled);
        let request =
            |intent| AppRequest { app: app.app.clone(), demand: app.demand.clone(), terms: PlacementTerms { intent, ..terms.clone() } };
        for old in copies {
            if !change.stays.contains(&old.member) {
                dropped.push(old.id);
                continue;
            }
            // The namespace of a running app does not change, and neither does the number of replicas that somebody else has chosen.
            let mut request = request(terms.intent.clone());
            if let Some(status) = statuses.get(old.id) {
                request.demand = following(&app.demand, &status.scaled);
            }
            if app.digest != old.digest || request != old.request {
                kept.push(update::Kept { old: old.clone(), digest: app.digest.clone(), request });
            }
        }
        if let Some(intent) = change.adds {
            added.push(Delivery {
                request: request(intent),
                digest: app.digest.clone(),
                namespace: app.namespace.clone(),
                after: after.get(&app.app).cloned().unwrap_or_default(),
            });
        }
    }
    let new: BTreeSet<&str> = added.iter().map(Delivery::app).filter(|app| running.iter().all(|old| old.app != *app)).collect();
    let together = calls::kept_together(apps, &new);
    let approved = apps.iter().map(|app| app.app.clone()).collect();
    Ok(update::Order {
        dig: group.dig.clone(),
        from_revision,
        revision: 0,
        kept,
        added,
        together,
        dropped,
        approved,
        after,
        changed: Vec::new(),
        rollback: false,
    })
}
