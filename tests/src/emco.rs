//! EMCO's REST as a script would speak it: one call makes what an application needs.

use std::time::Duration;

use base64::Engine;
use drover::client::{Client, Problem, code};
use drover_api::operations::Operation;
use reqwest::Method;
use serde_json::{Value, json};

use crate::apps::App;

/// Only against hanging.
const PATIENCE: Duration = Duration::from_secs(600);

/// Where and how an application may run.
#[derive(Clone, Debug)]
pub struct Group {
    /// Project.
    pub project: String,
    /// Name of composite app and deployment intent group.
    pub name: String,
    /// Its apps.
    pub apps: Vec<App>,
    /// `provider/cluster` alternatives.
    pub any_of: Vec<String>,
    /// `whenFull`.
    pub when_full: Option<&'static str>,
    /// Migration intent: none, or (may move, priority).
    pub movable: Option<(bool, u8)>,
    /// `provider/cluster` of all that its project may use.
    pub clusters: Vec<String>,
}

/// All three members.
pub const ANYWHERE: [&str; 3] = ["onprem/private-a", "onprem/private-b", "aws/public-c"];

impl Group {
    /// One app of the same name, anywhere, without a migration intent.
    pub fn new(name: &str, app: App) -> Self {
        Self::of(name, vec![app])
    }
    /// Several apps.
    pub fn of(name: &str, apps: Vec<App>) -> Self {
        let clusters: Vec<String> = ANYWHERE.map(str::to_owned).into();
        Self { project: "e2e".into(), name: name.into(), apps, any_of: clusters.clone(), when_full: None, movable: None, clusters }
    }
    /// Only on these (`provider/cluster`).
    pub fn on(mut self, members: &[&str]) -> Self {
        self.any_of = members.iter().map(|m| (*m).to_owned()).collect();
        self
    }
    /// May be moved, with this intent priority.
    pub fn movable(mut self, priority: u8) -> Self {
        self.movable = Some((true, priority));
        self
    }
    /// Its owner refuses.
    pub fn pinned(mut self) -> Self {
        self.movable = Some((false, 10));
        self
    }
    /// `whenFull: preferred`.
    pub fn preferred(mut self) -> Self {
        self.when_full = Some("preferred");
        self
    }
    /// In this project.
    pub fn in_project(mut self, project: &str) -> Self {
        self.project = project.into();
        self
    }
    /// In a world of other clusters (`provider/cluster`).
    pub fn among(mut self, clusters: &[&str]) -> Self {
        self.clusters = clusters.iter().map(|cluster| (*cluster).to_owned()).collect();
        self
    }

    /// `/v2/projects/{p}/composite-apps/{n}/v1`.
    pub fn composite(&self) -> String {
        format!("/v2/projects/{}/composite-apps/{}/v1", self.project, self.name)
    }
    /// Its deployment intent group's path.
    pub fn path(&self) -> String {
        format!("{}/deployment-intent-groups/{}", self.composite(), self.name)
    }

    /// Uploads its apps (again).
    pub async fn upload(&self, client: &Client) -> anyhow::Result<()> {
        for app in &self.apps {
            let file = base64::engine::general_purpose::STANDARD.encode(app.manifests());
            let body = json!({"metadata": {"name": app.name}, "file": file});
            client.upsert(&format!("{}/apps", self.composite()), &app.name, &body).await?;
        }
        Ok(())
    }

    /// Makes all its resources, up to and with `approve`.
    pub async fn approve(&self, client: &Client) -> anyhow::Result<()> {
        self.prepare_without_apps(client).await?;
        self.upload(client).await?;
        self.intents(client).await?;
        client.post(&format!("{}/approve", self.path()), None).await.map(drop)
    }

    /// Makes what it needs beside apps and their intents.
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
        // Instantiating it again is refused, which is fine here.
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

    /// Makes the documents say what this group says now: its apps and their intents, without those that were dropped.
    pub async fn change(&self, client: &Client, dropped: &[&str]) -> anyhow::Result<()> {
        self.upload(client).await?;
        for app in dropped {
            client.delete(&format!("{}/generic-placement-intents/placement/app-intents/{app}", self.path())).await?;
            client.delete(&format!("{}/apps/{app}", self.composite())).await?;
        }
        self.intents(client).await
    }

    async fn intents(&self, client: &Client) -> anyhow::Result<()> {
        for app in &self.apps {
            let element = |member: &String| {
                let (provider, cluster) = member.split_once('/').unwrap_or_default();
                json!({"clusterProvider": provider, "cluster": cluster})
            };
            let any_of: Vec<Value> = self.any_of.iter().map(element).collect();
            let mut spec = json!({"app": app.name, "intent": {"anyOf": any_of}});
            if let Some(word) = self.when_full {
                spec["whenFull"] = word.into();
            }
            let body = json!({"metadata": {"name": app.name}, "spec": spec});
            client.ensure(&format!("{}/generic-placement-intents/placement/app-intents", self.path()), &body).await?;
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

    /// A lifecycle verb; the id of its operation.
    pub async fn verb(&self, client: &Client, verb: &str) -> anyhow::Result<String> {
        operation_id(client, Method::POST, &format!("{}/{verb}", self.path())).await
    }

    /// A lifecycle verb, asked again while Drover has too much on its hands; the id of its operation.
    pub async fn insist(&self, client: &Client, verb: &str) -> anyhow::Result<String> {
        let mut unheard = false;
        patiently(async || match self.verb(client, verb).await {
            // It was heard after all, only the answer was lost.
            Err(error) if unheard && code(&error) == Some("busy") => {
                let holder = error.downcast_ref::<Problem>().and_then(|problem| problem.0.instance.clone()).unwrap_or_default();
                Ok(holder.rsplit('/').next().unwrap_or_default().to_owned())
            }
            asked => {
                unheard |= asked.as_ref().is_err_and(is_overload);
                asked
            }
        })
        .await
    }

    /// Approves and instantiates; the operation when it has ended.
    pub async fn deploy(&self, client: &Client) -> anyhow::Result<Operation> {
        self.approve(client).await?;
        let id = self.verb(client, "instantiate").await?;
        ended(client, &id).await
    }
}

/// Asks again for as long as Drover says that it has too much on its hands, as whoever asks much at once has to.
pub async fn patiently<T>(mut ask: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let limit = tokio::time::Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(error) if is_overload(&error) && tokio::time::Instant::now() < limit => {
                tokio::time::sleep(Duration::from_millis(200)).await
            }
            answer => return answer,
        }
    }
}

fn is_overload(error: &anyhow::Error) -> bool {
    matches!(code(error), Some("store_unavailable" | "peer_unavailable" | "busy_server" | "timeout"))
}

/// Calls something that is accepted, and returns its operation's id.
pub async fn operation_id(client: &Client, method: Method, path: &str) -> anyhow::Result<String> {
    let answer = client.call(method, path, None).await?;
    let location = answer.location.ok_or_else(|| anyhow::anyhow!("{path} answered {} without Location", answer.status))?;
    Ok(location.rsplit('/').next().unwrap_or_default().to_owned())
}

/// The operation, when it has ended.
pub async fn ended(client: &Client, id: &str) -> anyhow::Result<Operation> {
    let limit = tokio::time::Instant::now() + PATIENCE;
    loop {
        let operation: Operation = patiently(async || client.get(&format!("/v2/operations/{id}?wait=10s")).await).await?;
        if operation.finished_at.is_some() {
            return Ok(operation);
        }
        anyhow::ensure!(tokio::time::Instant::now() < limit, "operation {id} does not end: {operation:#?}");
    }
}
