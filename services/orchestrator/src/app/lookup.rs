//! Lookups for other services.

use drover_api::digs::{DigTerms, DocumentRef};
use sqlx::PgConnection;

use super::{App, Error, GroupPath, approve, group};
use crate::store::deployment::{self, DeploymentState};

/// The document at a path, of any kind.
///
/// # Errors
/// The query failed.
pub async fn document(tx: &mut PgConnection, path: &str) -> Result<Option<DocumentRef>, Error> {
    let row: Option<(uuid::Uuid, String)> =
        sqlx::query_as("select id, kind from resource where path = $1").bind(path).fetch_optional(tx).await?;
    Ok(row.map(|(id, kind)| DocumentRef { id, kind, path: path.to_owned() }))
}

impl App {
    /// The apps of an approved group with their demands, and with their terms as the documents are now.
    ///
    /// # Errors
    /// The group does not exist or was never approved, its documents are inconsistent, or a query failed.
    pub async fn dig_terms(&self, path: &GroupPath) -> Result<DigTerms, Error> {
        let mut db = self.store.acquire().await?;
        let group = group::at(&mut db, path).await?;
        let deployment = deployment::load(&mut db, group.dig.id, false).await?;
        if deployment.state == DeploymentState::Created {
            return Err(Error::WrongState {
                verb: "a plan",
                state: deployment.state,
                allowed: &["Approved", "Instantiated", "Terminated"],
            });
        }
        let mut apps = approve::approved_requests(&mut db, &group).await?;
        drop(db);
        let advice = self.advice(path, true).await?;
        apps.iter_mut().for_each(|request| advice.add_to(&mut request.terms, &request.app));
        Ok(DigTerms { dig: group.dig, state: deployment.state.to_string(), revision: deployment.revision, apps })
    }
}
