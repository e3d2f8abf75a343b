//! Starts operations. The check of the state, the hold and the row of the workflow are written in one transaction.

use std::collections::BTreeMap;

use drover_workflow::StartError;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{App, Error, Group, GroupPath, approve, dependencies, group};
use crate::store::binding::{self, Role};
use crate::store::deployment::{self, DeploymentState};
use crate::store::hold;
use crate::workflows::{After, Delivery, Instantiate, Terminate, Update, instantiate, terminate, update};

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Store(error) => Self::Store(error),
            StartError::Input(reason) => Self::Internal(reason),
        }
    }
}

impl App {
    /// Starts to instantiate a group, with this plan if one is given. Returns the id of the operation.
    ///
    /// # Errors
    /// The group does not exist, is in another state or is being changed by an operation, or a query failed. Also:
    /// its documents are inconsistent.
    pub async fn instantiate(&self, path: &GroupPath, plan: Option<Uuid>) -> Result<Uuid, Error> {
        let mut tx = self.store.begin().await?;
        let group = group::at(&mut tx, path).await?;
        let id = self.instantiate_in(&mut tx, &group, plan).await?;
        tx.commit().await?;
        self.engine.nudge();
        Ok(id)
    }

    pub(super) async fn instantiate_in(&self, tx: &mut PgConnection, group: &Group, plan: Option<Uuid>) -> Result<Uuid, Error> {
        let id = Uuid::now_v7();
        let before = deployment::load(&mut *tx, group.dig.id, true).await?;
        hold::take(&mut *tx, id, &[group.dig.id]).await??;
        let apps = match before.state {
            DeploymentState::Approved | DeploymentState::Terminated => self.deliveries(&mut *tx, group).await?,
            state => return Err(Error::WrongState { verb: "instantiate", state, allowed: &["Approved", "Terminated"] }),
        };
        if binding::of_dig(&mut *tx, group.dig.id).await?.iter().any(|binding| binding.role == Role::Current) {
            return Err(Error::Internal(format!("{} is {} but some of its apps are running", group.subject(), before.state)));
        }
        let revision = deployment::next_revision(&mut *tx, group.dig.id).await?;
        let order = instantiate::Order { dig: group.dig.clone(), revision, apps, plan };
        self.engine.start_in_tx::<Instantiate>(tx, id, &order).await?;
        Ok(id)
    }

    /// Starts to terminate a group. Returns the id of the operation.
    ///
    /// # Errors
    /// The group does not exist, is in another state or is being changed by an operation, or a query failed.
    pub async fn terminate(&self, path: &GroupPath) -> Result<Uuid, Error> {
        let id = Uuid::now_v7();
        let mut tx = self.store.begin().await?;
        let group = group::at(&mut tx, path).await?;
        let before = deployment::load(&mut tx, group.dig.id, true).await?;
        hold::take(&mut tx, id, &[group.dig.id]).await??;
        if before.state != DeploymentState::Instantiated {
            return Err(Error::WrongState { verb: "terminate", state: before.state, allowed: &["Instantiated"] });
        }
        // Inconsistent documents must not prevent termination.
        let after = match dependencies::of(&mut tx, &group).await {
            Err(Error::Inconsistent(_)) => BTreeMap::new(),
            other => other?,
        };
        let order = terminate::Order { dig: group.dig, revision: before.revision, after };
        self.engine.start_in_tx::<Terminate>(&mut tx, id, &order).await?;
        tx.commit().await?;
        self.engine.nudge();
        Ok(id)
    }

    /// Starts to update a group in place to what its documents say now. They are rendered before the hold is taken. Returns the id
    /// of the operation and the new revision.
    ///
    /// # Errors
    /// The group does not exist, is in another state or is being changed by an operation, or a query failed. Also:
    /// its documents are inconsistent, or an app cannot be rendered.
    pub async fn update(&self, path: &GroupPath) -> Result<(Uuid, i64), Error> {
        let prepared = self
            .prepare(path, |state| match state {
                DeploymentState::Instantiated => Ok(()),
                state => Err(Error::WrongState { verb: "update", state, allowed: &["Instantiated"] }),
            })
            .await?;
        let (id, group) = (Uuid::now_v7(), &prepared.group);
        let mut tx = self.store.begin().await?;
        let before = deployment::load(&mut tx, group.dig.id, true).await?;
        hold::take(&mut tx, id, &[group.dig.id]).await??;
        if before.state != DeploymentState::Instantiated {
            return Err(Error::WrongState { verb: "update", state: before.state, allowed: &["Instantiated"] });
        }
        prepared.store_bundles(&mut tx).await?;
        let order = update_order(&mut tx, &prepared, before.revision).await?;
        let revision = order.revision;
        self.engine.start_in_tx::<Update>(&mut tx, id, &order).await?;
        tx.commit().await?;
        self.engine.nudge();
        Ok((id, revision))
    }

    async fn deliveries(&self, tx: &mut PgConnection, group: &Group) -> Result<Vec<Delivery>, Error> {
        let apps = deployment::approved_apps(&mut *tx, group.dig.id).await?;
        let requests = approve::approved_requests(&mut *tx, group).await?;
        let after = dependencies::of(tx, group).await?;
        Ok(apps
            .into_iter()
            .zip(requests)
            .map(|(app, request)| Delivery {
                after: after.get(&app.app).cloned().unwrap_or_default(),
                digest: app.digest,
                namespace: app.namespace,
                request,
            })
            .collect())
    }
}

/// The changes of an update. Bindings whose app exists before and after stay on their members.
pub(super) async fn update_order(tx: &mut PgConnection, prepared: &approve::Prepared, from_revision: i64) -> Result<update::Order, Error> {
    let group = &prepared.group;
    let requests: BTreeMap<String, _> = prepared.requests().into_iter().map(|request| (request.app.clone(), request)).collect();
    let after: BTreeMap<String, Vec<After>> = dependencies::of(&mut *tx, group).await?;
    let running: Vec<_> =
        binding::of_dig(&mut *tx, group.dig.id).await?.into_iter().filter(|binding| binding.role == Role::Current).collect();
    let (mut kept, mut added, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    for old in &running {
        match prepared.apps.iter().find(|app| app.app == old.app) {
            None => dropped.push(old.id),
            // The namespace of a running app does not change.
            Some(app) => {
                let request = requests[&app.app].clone();
                if app.digest != old.digest || request != old.request {
                    kept.push(update::Kept { old: old.clone(), digest: app.digest.clone(), request });
                }
            }
        }
    }
    for app in prepared.apps.iter().filter(|app| !running.iter().any(|old| old.app == app.app)) {
        added.push(Delivery {
            request: requests[&app.app].clone(),
            digest: app.digest.clone(),
            namespace: app.namespace.clone(),
            after: after.get(&app.app).cloned().unwrap_or_default(),
        });
    }
    let revision = deployment::next_revision(tx, group.dig.id).await?;
    Ok(update::Order { dig: group.dig.clone(), from_revision, revision, kept, added, dropped, approved: prepared.apps.clone(), after })
}
