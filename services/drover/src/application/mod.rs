//! An application as the command line makes it, and what commands do with its EMCO resources. The modules below know the names that are
//! given here; this module knows none of them, and none of them knows a command.

pub mod before;
pub mod deployed;
pub mod dry_run;
pub mod moves;
pub mod prepare;
pub mod remove;
pub mod routes;
pub mod source;
pub mod values;
pub mod wishes;
mod zero;

use anyhow::{Context, Result};

use crate::hub::{Answer, segment};
use crate::session::Session;

/// Version of the composite app.
const VERSION: &str = "v1";
/// Name of every resource of which an application has one.
pub(crate) const NAME: &str = "default";

/// An application as `deploy` makes it: names of its EMCO resources.
pub struct Application {
    project: String,
    /// `…/composite-apps/{name}/v1`.
    pub composite: String,
    /// `…/deployment-intent-groups/{name}`.
    pub group: String,
    pub name: String,
}

impl Application {
    /// The application `name` of the session's project.
    pub fn new(session: &Session, name: &str) -> Self {
        let project = format!("/v2/projects/{}", segment(&session.project));
        let composite = format!("{project}/composite-apps/{}/{VERSION}", segment(name));
        let group = format!("{composite}/deployment-intent-groups/{}", segment(name));
        Self { project, composite, group, name: name.to_owned() }
    }

    /// `/v2/projects/{project}`.
    pub fn project(&self) -> &str {
        &self.project
    }

    /// Collections of the intents that `prepare` makes, one for each app.
    pub fn intents(&self) -> [String; 2] {
        ["generic-placement-intents", "migration-intents"].map(|kind| format!("{}/{kind}/{NAME}/app-intents", self.group))
    }
}

/// EMCO state of the group; `None` if there is no such group.
///
/// # Errors
/// The request fails.
pub async fn state(session: &Session, application: &Application) -> Result<Option<String>> {
    let status = session.client.find(&format!("{}/status", application.group)).await?;
    Ok(status.and_then(|status| Some(status["states"]["actions"].as_array()?.last()?["state"].as_str()?.to_owned())))
}

/// Approves the group unless it is instantiated; the verb that is to be called next.
///
/// # Errors
/// A request fails.
pub async fn verb(session: &Session, application: &Application) -> Result<&'static str> {
    if state(session, application).await?.as_deref() == Some("Instantiated") {
        return Ok("update");
    }
    session.client.post(&format!("{}/approve", application.group), None).await?;
    Ok("instantiate")
}

/// The id of the operation that an accepted verb started.
///
/// # Errors
/// The response has no `Location`.
pub fn operation_of(answer: &Answer) -> Result<String> {
    let location = answer.location.as_deref().context("the response names no operation")?;
    Ok(location.rsplit('/').next().unwrap_or(location).to_owned())
}

/// Names of a collection's documents; empty if there is no such collection.
///
/// # Errors
/// The request fails.
pub async fn names(session: &Session, collection: &str) -> Result<Vec<String>> {
    let Some(list) = session.client.find(collection).await? else { return Ok(Vec::new()) };
    Ok(list.as_array().into_iter().flatten().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect())
}
