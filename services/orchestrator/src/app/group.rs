//! A deployment intent group with the documents above it, read in one transaction.

use std::sync::Arc;

use drover_api::scheduling::DigRef;
use drover_resources::{Below, Document, TypedDocument};
use serde::de::DeserializeOwned;
use sqlx::PgConnection;
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::{Error, GroupPath};
use crate::resources::composite_app::CompositeAppSpec;
use crate::resources::controllers::traffic::TRAFFIC_GROUP_INTENT;
use crate::resources::deployment_intent_group::DeploymentIntentGroupSpec;
use crate::resources::project::ProjectSpec;
use crate::resources::{
    APP, APP_INTENT, CALL_GRAPH, CLUSTER_REFERENCE, COMPOSITE_APP, CONTROLLER, DEPENDENCY, DIG, GENERIC_PLACEMENT_INTENT, GROUP_INTENT,
    LOGICAL_CLOUD, PROJECT, ROUTE,
};

/// A group and the documents above it.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its id and names, as sent to other services.
    pub dig: DigRef,
    pub document: TypedDocument<DeploymentIntentGroupSpec>,
    pub composite_app: TypedDocument<CompositeAppSpec>,
    pub project: TypedDocument<ProjectSpec>,
    below: Arc<OnceCell<Below>>,
}

impl Group {
    /// What placement reads of the documents around the group: apps, dependencies and call graphs of its composite app, its own intents
    /// and routes, its logical cloud with the cluster references, and all controllers. Read when it is asked for the first time.
    ///
    /// # Errors
    /// The query failed.
    pub async fn below(&self, tx: &mut PgConnection) -> Result<&Below, Error> {
        let (app, group, cloud) = (&*self.composite_app.path, &*self.document.path, self.logical_cloud_path());
        let of_app = [&APP, &DEPENDENCY, &CALL_GRAPH].map(|kind| (kind, app));
        let of_group = [&GROUP_INTENT, &GENERIC_PLACEMENT_INTENT, &APP_INTENT, &ROUTE, &TRAFFIC_GROUP_INTENT].map(|kind| (kind, group));
        let of_cloud = [&LOGICAL_CLOUD, &CLUSTER_REFERENCE].map(|kind| (kind, &*cloud));
        let controllers = format!("/v2/{}", CONTROLLER.segment);
        let wanted = [&of_app[..], &of_group, &of_cloud, &[(&CONTROLLER, &*controllers)]].concat();
        Ok(self.below.get_or_try_init(|| Below::read(tx, &wanted)).await?)
    }

    /// The same group for another transaction, in which what is around it is read again.
    pub fn renewed(&self) -> Self {
        Self { below: Arc::default(), ..self.clone() }
    }

    /// Path of the document of its logical cloud.
    pub fn logical_cloud_path(&self) -> String {
        format!("{}/{}/{}", self.project.path, LOGICAL_CLOUD.segment, self.document.spec.logical_cloud)
    }

    /// The group as shown to users: `project/app/version/group`.
    pub fn subject(&self) -> String {
        crate::workflows::subject(&self.dig)
    }
}

/// The group at this path.
///
/// # Errors
/// The group does not exist, or a query failed.
pub async fn at(tx: &mut PgConnection, path: &GroupPath) -> Result<Group, Error> {
    let path = path.path();
    let (document, above) = with_parents(tx, &path).await?;
    let document = document.ok_or_else(|| Error::NotFound { what: format!("deployment intent group {path}") })?;
    of(document, above)
}

/// The group of this id.
///
/// # Errors
/// The group does not exist, or a query failed.
pub async fn by_id(tx: &mut PgConnection, id: Uuid) -> Result<Group, Error> {
    let document = drover_resources::by_id(&mut *tx, &DIG, id)
        .await?
        .ok_or_else(|| Error::NotFound { what: format!("deployment intent group {id}") })?;
    let (_, above) = with_parents(tx, &document.path).await?;
    of(document, above)
}

type Parents = (Option<TypedDocument<CompositeAppSpec>>, Option<TypedDocument<ProjectSpec>>);

/// The group at a path, and the documents above it, with one query.
async fn with_parents(tx: &mut PgConnection, path: &str) -> Result<(Option<TypedDocument<DeploymentIntentGroupSpec>>, Parents), Error> {
    let (composite_app, project) = (COMPOSITE_APP.within(path).unwrap_or_default(), PROJECT.within(path).unwrap_or_default());
    let mut found = drover_resources::at_paths(tx, &[&DIG, &COMPOSITE_APP, &PROJECT], &[path, composite_app, project]).await?;
    let mut take = |path: &str| found.iter().position(|document| document.path == path).map(|at| found.swap_remove(at));
    let (document, composite_app, project) = (take(path), take(composite_app), take(project));
    Ok((typed(document)?, (typed(composite_app)?, typed(project)?)))
}

fn typed<T: DeserializeOwned>(document: Option<Document>) -> Result<Option<TypedDocument<T>>, Error> {
    Ok(document.map(drover_resources::typed).transpose()?)
}

fn of(document: TypedDocument<DeploymentIntentGroupSpec>, above: Parents) -> Result<Group, Error> {
    let (Some(composite_app), Some(project)) = above else {
        return Err(Error::Internal(format!("{} has no parent documents", document.path)));
    };
    let dig = DigRef {
        id: document.id,
        project: project.name.clone(),
        composite_app: composite_app.name.clone(),
        version: composite_app.spec.composite_app_version.clone(),
        name: document.name.clone(),
    };
    Ok(Group { dig, document, composite_app, project, below: Arc::default() })
}
