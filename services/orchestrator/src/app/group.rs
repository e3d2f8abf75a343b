//! A deployment intent group with the documents above it, read in one transaction.

use drover_api::scheduling::DigRef;
use drover_resources::TypedDocument;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Error, GroupPath};
use crate::resources::composite_app::CompositeAppSpec;
use crate::resources::deployment_intent_group::DeploymentIntentGroupSpec;
use crate::resources::project::ProjectSpec;
use crate::resources::{COMPOSITE_APP, DIG, PROJECT};

/// A group and the documents above it.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its id and names, as sent to other services.
    pub dig: DigRef,
    pub document: TypedDocument<DeploymentIntentGroupSpec>,
    pub composite_app: TypedDocument<CompositeAppSpec>,
    pub project: TypedDocument<ProjectSpec>,
}

impl Group {
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
    let document = drover_resources::get(&mut *tx, &DIG, &path.path())
        .await?
        .ok_or_else(|| Error::NotFound { what: format!("deployment intent group {}", path.path()) })?;
    around(tx, document).await
}

/// The group of this id.
///
/// # Errors
/// The group does not exist, or a query failed.
pub async fn by_id(tx: &mut PgConnection, id: Uuid) -> Result<Group, Error> {
    let document = drover_resources::by_id(&mut *tx, &DIG, id)
        .await?
        .ok_or_else(|| Error::NotFound { what: format!("deployment intent group {id}") })?;
    around(tx, document).await
}

async fn around(tx: &mut PgConnection, document: TypedDocument<DeploymentIntentGroupSpec>) -> Result<Group, Error> {
    let gone = || Error::Internal(format!("{} has no parent documents", document.path));
    let composite_app_path = COMPOSITE_APP.within(&document.path).ok_or_else(gone)?;
    let project_path = PROJECT.within(&document.path).ok_or_else(gone)?;
    let composite_app: TypedDocument<CompositeAppSpec> =
        drover_resources::get(&mut *tx, &COMPOSITE_APP, composite_app_path).await?.ok_or_else(gone)?;
    let project: TypedDocument<ProjectSpec> = drover_resources::get(&mut *tx, &PROJECT, project_path).await?.ok_or_else(gone)?;
    let dig = DigRef {
        id: document.id,
        project: project.name.clone(),
        composite_app: composite_app.name.clone(),
        version: composite_app.spec.composite_app_version.clone(),
        name: document.name.clone(),
    };
    Ok(Group { dig, document, composite_app, project })
}
