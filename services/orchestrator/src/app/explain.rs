//! Why an app runs where it does. Placement explains its decisions; which members refused the app's objects is recorded here.

use drover_api::ledger::{ExplainQuestion, Explanation};

use super::{App, Error};
use crate::store::refusal;

impl App {
    /// Explains an app of the deployment intent group or composite app `group`.
    ///
    /// # Errors
    /// Nothing was ever decided about the app, placement is unavailable, or a query failed.
    pub async fn explain(&self, project: &str, group: &str, app: &str) -> Result<Explanation, Error> {
        let mut connection = self.store.acquire().await?;
        let refused = refusal::remembered(&mut connection, project, group).await?;
        drop(connection);
        let question = ExplainQuestion { project: project.to_owned(), group: group.to_owned(), app: app.to_owned(), refused };
        self.services.placement.explain(&question).await.map_err(|error| match error.is_not_found() {
            true => Error::NotFound { what: format!("a decision about {group}/{app} in project {project}") },
            false => error.into(),
        })
    }
}
