//! Sends the REST requests of EMCO that a user's script would: one call creates all documents of an application.

use std::time::Duration;

use base64::Engine;
use drover::hub::{Client, Problem, code};
use drover_api::operations::Operation;
pub use drover_testkit::free_port;
use reqwest::Method;
use serde_json::{Value, json};

use crate::apps::App;

/// How long an operation may take. It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How long Drover may answer that it is overloaded.
const OVERLOADED: Duration = Duration::from_secs(120);

/// An application as a deployment intent group of its own: its apps, and where and how they may run.
#[derive(Clone, Debug)]
pub struct Group {
    pub project: String,
    /// The name of both the composite app and the deployment intent group.
    pub name: String,
    pub apps: Vec<App>,
    /// The clusters where its apps may run, as `provider/cluster`.
    pub any_of: Vec<String>,
    /// The value of `whenFull` in its placement intents.
    pub when_full: Option<&'static str>,
    /// Its migration intent, if it has one: whether its apps may be moved, and their priority.
    pub movable: Option<(bool, u8)>,
    /// All clusters that its project may use, as `provider/cluster`.
    pub clusters: Vec<String>,
}

/// All three members as `provider/cluster`.
pub const ANYWHERE: [&str; 3] = ["onprem/private-a", "onprem/private-b", "aws/public-c"];

impl Group {
    /// A group with one app that may run on any member, without a migration intent.
    pub fn new(name: &str, app: App) -> Self {
        Self::of(name, vec![app])
    }
    /// A group with several apps that may run on any member, without a migration intent.
    pub fn of(name: &str, apps: Vec<App>) -> Self {
        let clusters: Vec<String> = ANYWHERE.map(str::to_owned).into();
        Self { project: "e2e".into(), name: name.into(), apps, any_of: clusters.clone(), when_full: None, movable: None, clusters }
    }
    /// Restricts its apps to these members (`provider/cluster`).
    pub fn on(mut self, members: &[&str]) -> Self {
        self.any_of = members.iter().map(|m| (*m).to_owned()).collect();
        self
    }
    /// Allows its apps to be moved, with this priority.
    pub fn movable(mut self, priority: u8) -> Self {
        self.movable = Some((true, priority));
        self
    }
    /// Forbids its apps to be moved.
    pub fn pinned(mut self) -> Self {
        self.movable = Some((false, 10));
        self
    }
    /// Sets `whenFull: preferred`.
    pub fn preferred(mut self) -> Self {
        self.when_full = Some("preferred");
        self
    }
    /// Sets its project.
    pub fn in_project(mut self, project: &str) -> Self {
        self.project = project.into();
        self
    }
    /// Sets the clusters that its project may use (`provider/cluster`).
    pub fn among(mut self, clusters: &[&str]) -> Self {
        self.clusters = clusters.iter().map(|cluster| (*cluster).to_owned()).collect();
        self
    }

    /// The path of its composite app.
    pub fn composite(&self) -> String {
        format!("/v2/projects/{}/composite-apps/{}/v1", self.project, self.name)
    }
    /// The path of its deployment intent group.
    pub fn path(&self) -> String {
        format!("{}/deployment-intent-groups/{}", self.composite(), self.name)
    }

    /// Uploads its apps; those that exist are replaced.
    pub async fn upload(&self, client: &Client) -> anyhow::Result<()> {
        for app in &self.apps {
            let file = base64::engine::general_purpose::STANDARD.encode(app.manifests());
            let body = json!({"metadata": {"name": app.name}, "file": file});
            client.upsert(&format!("{}/apps", self.composite()), &app.name, &body).await?;
        }
        Ok(())
    }

    /// Creates all of its documents and approves it, again while Drover is overloaded.
    pub async fn approve(&self, client: &Client) -> anyhow::Result<()> {
        patiently(async || {
            self.prepare_without_apps(client).await?;
            self.upload(client).await?;
            self.approve_as_uploaded(client).await
        })
        .await
    }

    /// Approves it with the apps that are uploaded, which need not be its own.
    pub async fn approve_as_uploaded(&self, client: &Client) -> anyhow::Result<()> {
        self.intents(client).await?;
        client.post(&format!("{}/approve", self.path()), None).await.map(drop)
    }

    /// Creates its documents except the apps and their intents.
    pub async fn prepare_without_apps(&self, client: &Client) -> anyhow::Result<()> {
        let named = |name: &str| json!({"metadata": {"name": name}});
        let project = format!("/v2/projects/{}", self.project);
        client.ensure("/v2/projects", &named(&self.project)).await?;
        let cloud = json!({"metadata": {"name": "all"}, "spec": {"namespace": "default", "level": "0"}});
        client.ensure(&format!("{project}/logical-clouds"), &cloud).await?;
        for member in &self.clusters {
            let (provider, cluster) = member.split_once('/').unwrap_or_default();
            let spec = json!({"clusterProvider": provider, "cluster": cluster});
            let body = json!({"metadata": {"name": cluster}, "spec": spec});
            client.ensure(&format!("{project}/logical-clouds/all/cluster-references"), &body).await?;
        }
        // A logical cloud that is instantiated already refuses this.
        let _ = client.post(&format!("{project}/logical-clouds/all/instantiate"), None).await;
        let composite = json!({"metadata": {"name": self.name}, "spec": {"compositeAppVersion": "v1"}});
        client.ensure(&format!("{project}/composite-apps"), &composite).await?;
        client.ensure(&format!("{}/composite-profiles", self.composite()), &named("profile")).await?;
        let spec = json!({"compositeProfile": "profile", "version": self.name, "logicalCloud": "all", "overrideValues": []});
        let group = json!({"metadata": {"name": self.name}, "spec": spec});
        client.ensure(&format!("{}/deployment-intent-groups", self.composite()), &group).await?;
        client.ensure(&format!("{}/generic-placement-intents", self.path()), &named("placement")).await?;
        let intents = json!({"metadata": {"name": "intents"}, "spec": {"intent": {"genericPlacementIntent": "placement"}}});
        client.ensure(&format!("{}/intents", self.path()), &intents).await
    }

    /// Updates the documents to the apps and placement intents that this group has now, and deletes those of the `dropped` apps.
    pub async fn change(&self, client: &Client, dropped: &[&str]) -> anyhow::Result<()> {
        self.upload(client).await?;
        for app in dropped {
            client.delete(&format!("{}/generic-placement-intents/placement/app-intents/{app}", self.path())).await?;
            client.delete(&format!("{}/apps/{app}", self.composite())).await?;
        }
        for app in &self.apps {
            client.upsert(&self.placements(), &app.name, &self.placement(app)).await?;
        }
        self.intents(client).await
    }

    fn placements(&self) -> String {
        format!("{}/generic-placement-intents/placement/app-intents", self.path())
    }

    fn placement(&self, app: &App) -> Value {
        let element = |member: &String| {
            let (provider, cluster) = member.split_once('/').unwrap_or_default();
            json!({"clusterProvider": provider, "cluster": cluster})
        };
        let any_of: Vec<Value> = app.any_of.as_ref().unwrap_or(&self.any_of).iter().map(element).collect();
        let mut spec = json!({"app": app.name, "intent": {"anyOf": any_of}});
        if let Some(word) = self.when_full {
            spec["whenFull"] = word.into();
        }
        json!({"metadata": {"name": app.name}, "spec": spec})
    }

    async fn intents(&self, client: &Client) -> anyhow::Result<()> {
        for app in &self.apps {
            client.ensure(&self.placements(), &self.placement(app)).await?;
        }
        if let Some((migration, priority)) = self.movable {
            let collection = format!("{}/migration-intents", self.path());
            client.ensure(&collection, &json!({"metadata": {"name": "migration"}})).await?;
            for app in &self.apps {
                let spec = json!({"app": app.name, "migration": migration, "priority": priority});
                let body = json!({"metadata": {"name": app.name}, "spec": spec});
                client.ensure(&format!("{collection}/migration/app-intents"), &body).await?;
            }
        }
        Ok(())
    }

    /// Requests a lifecycle verb and returns the id of its operation.
    pub async fn verb(&self, client: &Client, verb: &str) -> anyhow::Result<String> {
        operation_id(client, Method::POST, &format!("{}/{verb}", self.path())).await
    }

    /// Requests a lifecycle verb, again while Drover is overloaded, and returns the id of its operation.
    pub async fn insist(&self, client: &Client, verb: &str) -> anyhow::Result<String> {
        patiently_again(async |again| match self.verb(client, verb).await {
            // An earlier request was accepted, and only its answer was lost.
            Err(error) if again && code(&error) == Some("busy") => {
                let holder = error.downcast_ref::<Problem>().and_then(|problem| problem.0.instance.clone()).unwrap_or_default();
                Ok(holder.rsplit('/').next().unwrap_or_default().to_owned())
            }
            asked => asked,
        })
        .await
    }

    /// Approves and instantiates it, and returns the operation when that has ended.
    pub async fn deploy(&self, client: &Client) -> anyhow::Result<Operation> {
        self.approve(client).await?;
        self.instantiate(client).await
    }

    /// As [`Group::deploy`], with this route of its only app's Service. The app may move although others may call it by name.
    pub async fn deploy_with_route(&self, client: &Client, mut route: Value) -> anyhow::Result<Operation> {
        let app = &self.apps[0].name;
        let project = json!({"metadata": {"name": self.project}, "spec": {"allowDependants": true}});
        patiently(async || client.upsert("/v2/projects", &self.project, &project).await).await?;
        self.approve(client).await?;
        (route["app"], route["service"], route["servicePort"]) = (json!(app), json!(app), json!(80));
        let route = json!({"metadata": {"name": self.name}, "spec": route});
        patiently(async || client.upsert(&format!("{}/routes", self.path()), &self.name, &route).await).await?;
        self.instantiate(client).await
    }

    async fn instantiate(&self, client: &Client) -> anyhow::Result<Operation> {
        let id = self.insist(client, "instantiate").await?;
        ended(client, &id).await
    }
}

/// Repeats a request while Drover answers that it is overloaded.
pub async fn patiently<T>(mut ask: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    patiently_again(async |_| ask().await).await
}

/// As [`patiently`]; `ask` is told whether there was an earlier request, which may have been carried out although its answer was lost.
pub async fn patiently_again<T>(mut ask: impl AsyncFnMut(bool) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let limit = tokio::time::Instant::now() + OVERLOADED;
    let mut again = false;
    loop {
        match ask(again).await {
            Err(error) if is_overload(&error) && tokio::time::Instant::now() < limit => {
                tokio::time::sleep(Duration::from_millis(200)).await;
                again = true;
            }
            answer => return answer,
        }
    }
}

fn is_overload(error: &anyhow::Error) -> bool {
    matches!(code(error), Some("store_unavailable" | "peer_unavailable" | "busy_server" | "timeout"))
}

/// Sends a request that starts an operation, and returns the operation's id.
pub async fn operation_id(client: &Client, method: Method, path: &str) -> anyhow::Result<String> {
    let answer = client.call(method, path, None).await?;
    let location = answer.location.ok_or_else(|| anyhow::anyhow!("{path} answered {} without Location", answer.status))?;
    Ok(location.rsplit('/').next().unwrap_or_default().to_owned())
}

/// Waits until the operation has ended.
pub async fn ended(client: &Client, id: &str) -> anyhow::Result<Operation> {
    let limit = tokio::time::Instant::now() + TIMEOUT;
    loop {
        let operation: Operation = patiently(async || client.get(&format!("/v2/operations/{id}?wait=10s")).await).await?;
        if operation.finished_at.is_some() {
            return Ok(operation);
        }
        anyhow::ensure!(tokio::time::Instant::now() < limit, "operation {id} does not end: {operation:#?}");
    }
}
