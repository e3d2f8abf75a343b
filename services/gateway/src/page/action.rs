//! Buttons that change something: the request that each sends, and the question before it. The questions say what the command line says.

use askama::Template;
use serde_json::json;
use uuid::Uuid;

/// A button. `page.js` asks the question, sends the request as the signed-in user, and opens what it led to.
#[derive(Template)]
#[template(path = "button.html")]
pub struct Action {
    pub label: &'static str,
    /// What it is about, so that two buttons of one label are told apart by those who hear them.
    pub what: String,
    pub method: &'static str,
    pub path: String,
    /// JSON; empty for none.
    pub body: String,
    /// The question to which the user must agree.
    pub question: String,
}

impl Action {
    /// Asks for the plan that empties a cluster. Nothing moves yet.
    pub fn drain(provider: &str, cluster: &str) -> Self {
        let body = json!({"kind": "drain", "clusterProvider": provider, "cluster": cluster}).to_string();
        let question = format!("Make a plan that moves all apps away from {cluster}? Nothing moves before the plan is applied.");
        Self { label: "Drain", what: cluster.to_owned(), method: "POST", path: "/v2/plans".to_owned(), body, question }
    }

    /// Closes a cluster to new copies of apps, or opens it.
    pub fn cordon(provider: &str, cluster: &str, is_closed: bool) -> Self {
        let path = format!("/v2/cluster-providers/{provider}/clusters/{cluster}/cordon");
        if is_closed {
            let question = format!("Open {cluster} to new copies of apps?");
            return Self { label: "Uncordon", what: cluster.to_owned(), method: "DELETE", path, body: String::new(), question };
        }
        let question = format!("Close {cluster} to new copies of apps? What runs there stays.");
        Self {
            label: "Cordon",
            what: cluster.to_owned(),
            method: "PUT",
            path,
            body: json!({"reason": "closed on the web page"}).to_string(),
            question,
        }
    }

    /// Carries out a plan.
    pub fn apply(plan: Uuid, moves: usize, drained: Option<&str>) -> Self {
        let closes = drained.map(|cluster| format!(" It also closes {cluster} to new copies until it is uncordoned.")).unwrap_or_default();
        let apps = if moves == 1 { "app" } else { "apps" };
        let question =
            format!("Apply this plan? It moves {moves} {apps}; each one serves at its destination before its old copy goes.{closes}");
        Self {
            label: "Apply",
            what: "the plan".to_owned(),
            method: "POST",
            path: format!("/v2/plans/{plan}/apply"),
            body: String::new(),
            question,
        }
    }

    /// Forgets a plan.
    pub fn discard(plan: Uuid) -> Self {
        let question = "Discard this plan? Nothing moves.".to_owned();
        Self {
            label: "Discard",
            what: "the plan".to_owned(),
            method: "DELETE",
            path: format!("/v2/plans/{plan}"),
            body: String::new(),
            question,
        }
    }

    /// Stops and undoes an operation.
    pub fn cancel(operation: Uuid) -> Self {
        let question = "Cancel this operation? What it has done so far is undone.".to_owned();
        Self {
            label: "Cancel",
            what: "the operation".to_owned(),
            method: "POST",
            path: format!("/v2/operations/{operation}/cancel"),
            body: String::new(),
            question,
        }
    }

    /// Brings a group (its path) back to a revision.
    pub fn rollback(group: &str, revision: i64) -> Self {
        let body = json!({"metadata": {"description": ""}, "spec": {"revision": revision}}).to_string();
        let question = format!("Go back to revision {revision}? The old pods go when the new ones are ready.");
        Self {
            label: "Roll back",
            what: format!("to revision {revision}"),
            method: "POST",
            path: format!("{group}/rollback"),
            body,
            question,
        }
    }
}
