//! Helpers of several benchmarks: registering members, deploying apps, waiting. All through the public REST API.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use drover_api::ledger::ClusterCapacity;
use drover_api::operations::{Operation, OperationState};
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

use drover::hub::{Client, is_status, segment};

/// Number of concurrent requests while something is prepared.
const AT_ONCE: usize = 16;

/// The provider of the member with this number; the first is the most preferred.
pub fn provider(at: usize) -> String {
    format!("provider-{at}")
}

/// The member with this number, `<provider>+<cluster>`.
pub fn key(at: usize, providers: usize) -> String {
    format!("{}+{}", provider(at % providers), cluster(at))
}

/// The cluster with this number.
pub fn cluster(at: usize) -> String {
    format!("member-{at:04}")
}

/// Registers a member per kubeconfig, distributed over `providers` providers, with the labels of its number.
///
/// # Errors
/// A request fails.
pub async fn register(
    client: &Client,
    kubeconfigs: &[PathBuf],
    providers: usize,
    labels: impl Fn(usize) -> Vec<String> + Copy,
) -> Result<()> {
    for at in 0..providers {
        let priority = 1 + at * 9 / providers;
        let body = json!({"metadata": {"name": provider(at)}, "spec": {"priority": priority}});
        client.ensure("/v2/cluster-providers", &body).await?;
    }
    each(kubeconfigs.len(), async |at| {
        let clusters = format!("/v2/cluster-providers/{}/clusters", segment(&provider(at % providers)));
        let file = tokio::fs::read(&kubeconfigs[at]).await.with_context(|| format!("cannot read {}", kubeconfigs[at].display()))?;
        let file = base64::engine::general_purpose::STANDARD.encode(file);
        there(client, &clusters, &json!({"metadata": {"name": cluster(at)}, "file": file})).await?;
        for label in labels(at) {
            there(client, &format!("{clusters}/{}/labels", cluster(at)), &json!({"clusterLabel": label})).await?;
        }
        Ok(())
    })
    .await
}

/// Creates an item unless it exists. On a busy machine Drover may answer 503 to some of many requests at once; these are sent again.
async fn there(client: &Client, collection: &str, body: &Value) -> Result<()> {
    until(Duration::from_secs(60), async || match client.ensure(collection, body).await {
        Err(error) if is_status(&error, 503) => Ok(None),
        done => done.map(Some),
    })
    .await
}

/// Calls `one` for each number below `count`, several at the same time.
///
/// # Errors
/// The first error of any call.
pub async fn each(count: usize, one: impl AsyncFn(usize) -> Result<()>) -> Result<()> {
    let one = &one;
    futures::stream::iter(0..count).map(|at| Ok(async move { one(at).await })).try_buffer_unordered(AT_ONCE).try_collect().await
}

/// Repeats `ask` until it returns a value.
///
/// # Errors
/// `ask` fails, or the time limit is reached.
pub async fn until<T>(limit: Duration, ask: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        if began.elapsed() > limit {
            bail!("timed out after {limit:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

const PROJECT: &str = "/v2/projects/bench";

/// Creates the project with a logical cloud of these members (`<provider>+<cluster>`).
///
/// # Errors
/// A request fails.
pub async fn project(client: &Client, members: &[String]) -> Result<()> {
    client.ensure("/v2/projects", &json!({"metadata": {"name": "bench"}})).await?;
    let clouds = format!("{PROJECT}/logical-clouds");
    client.ensure(&clouds, &json!({"metadata": {"name": "all"}, "spec": {"namespace": "default", "level": "0"}})).await?;
    each(members.len(), async |at| {
        let (provider, cluster) = members[at].split_once('+').context("a member's key")?;
        let reference = json!({"metadata": {"name": cluster}, "spec": {"clusterProvider": provider, "cluster": cluster}});
        client.ensure(&format!("{clouds}/all/cluster-references"), &reference).await
    })
    .await?;
    client.post(&format!("{clouds}/all/instantiate"), None).await?;
    Ok(())
}

/// An app with one Deployment.
#[derive(Clone, Debug)]
pub struct App {
    /// Name of the app and of its Deployment.
    pub name: String,
    /// EMCO's placement intent.
    pub intent: Value,
    /// Pods in each member.
    pub replicas: u32,
    /// What each of them is like.
    pub pod: Pod,
}

/// A pod.
#[derive(Clone, Copy, Debug)]
pub struct Pod {
    /// CPU that it requests.
    pub millicores: u32,
    /// Memory that it requests.
    pub mebibytes: u32,
    /// Seconds until a simulated one is ready.
    pub start: u32,
}

impl Pod {
    /// A small one that starts without delay.
    pub const SMALL: Self = Self { millicores: 10, mebibytes: 16, start: 0 };
}

/// A placement intent for all members with a label, of the first `providers` providers.
pub fn all_with(label: &str, providers: usize) -> Value {
    let element = |at| json!({"clusterProvider": provider(at), "clusterLabel": label});
    json!({"allOf": (0..providers).map(element).collect::<Vec<_>>()})
}

impl App {
    /// An app whose pods are small and start without delay.
    pub fn new(name: String, intent: Value, replicas: u32) -> Self {
        Self { name, intent, replicas, pod: Pod::SMALL }
    }

    /// Its Deployment.
    pub fn manifest(&self) -> Value {
        let labels = json!({"app": self.name});
        let requests = json!({"cpu": format!("{}m", self.pod.millicores), "memory": format!("{}Mi", self.pod.mebibytes)});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": self.name},
            "spec": {"replicas": self.replicas, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels, "annotations": {"kit/start-delay": format!("{}s", self.pod.start)}},
                "spec": {"containers": [{"name": "app", "image": "registry.example/app:1", "resources": {"requests": requests}}]}}},
        })
    }

    /// Creates all documents of the app, and approves them.
    ///
    /// # Errors
    /// A request fails.
    pub async fn prepare(&self, client: &Client) -> Result<()> {
        prepare(client, &self.name, std::slice::from_ref(self), None).await
    }

    /// Allows Drover to move the app.
    ///
    /// # Errors
    /// Drover refuses the request.
    pub async fn let_move(&self, client: &Client) -> Result<()> {
        let_move(client, &self.name, std::slice::from_ref(self), 5).await
    }

    /// Instantiates the app; returns the id of the operation.
    ///
    /// # Errors
    /// The request fails.
    pub async fn instantiate(&self, client: &Client) -> Result<String> {
        ask(client, &self.name, "instantiate").await
    }

    /// Removes the app from all members, and waits until it is gone.
    ///
    /// # Errors
    /// The request or the operation fails.
    pub async fn terminate(&self, client: &Client) -> Result<()> {
        succeeded(client, &ask(client, &self.name, "terminate").await?).await
    }

    /// Instantiates the app and waits until it is Ready.
    ///
    /// # Errors
    /// The request or the operation fails.
    pub async fn deploy(&self, client: &Client) -> Result<()> {
        let operation = self.instantiate(client).await?;
        succeeded(client, &operation).await
    }
}

/// The deployment intent group of an application, which has its name.
fn group(name: &str) -> String {
    let name = segment(name);
    format!("{PROJECT}/composite-apps/{name}/v1/deployment-intent-groups/{name}")
}

/// Creates all documents of an application of several apps, and approves them.
///
/// # Errors
/// A request fails.
pub async fn prepare(client: &Client, name: &str, apps: &[App], when_full: Option<&str>) -> Result<()> {
    let composite = format!("{PROJECT}/composite-apps/{}/v1", segment(name));
    let named = |name: &str| json!({"metadata": {"name": name}});
    let body = json!({"metadata": {"name": name}, "spec": {"compositeAppVersion": "v1"}});
    client.post(&format!("{PROJECT}/composite-apps"), Some(&body)).await?;
    for app in apps {
        let file = base64::engine::general_purpose::STANDARD.encode(app.manifest().to_string());
        client.post(&format!("{composite}/apps"), Some(&json!({"metadata": {"name": app.name}, "file": file}))).await?;
    }
    client.post(&format!("{composite}/composite-profiles"), Some(&named("profile"))).await?;
    let spec = json!({"compositeProfile": "profile", "version": name, "logicalCloud": "all", "overrideValues": []});
    client.post(&format!("{composite}/deployment-intent-groups"), Some(&json!({"metadata": {"name": name}, "spec": spec}))).await?;
    let group = group(name);
    client.post(&format!("{group}/generic-placement-intents"), Some(&named("placement"))).await?;
    for app in apps {
        let mut spec = json!({"app": app.name, "intent": app.intent});
        if let Some(word) = when_full {
            spec["whenFull"] = word.into();
        }
        let body = json!({"metadata": {"name": app.name}, "spec": spec});
        client.post(&format!("{group}/generic-placement-intents/placement/app-intents"), Some(&body)).await?;
    }
    let body = json!({"metadata": {"name": "intents"}, "spec": {"intent": {"genericPlacementIntent": "placement"}}});
    client.post(&format!("{group}/intents"), Some(&body)).await?;
    client.post(&format!("{group}/approve"), None).await.map(drop)
}

/// Allows Drover to move apps of an application.
///
/// # Errors
/// Drover refuses the request.
pub async fn let_move(client: &Client, name: &str, apps: &[App], priority: u8) -> Result<()> {
    let intents = format!("{}/migration-intents", group(name));
    client.post(&intents, Some(&json!({"metadata": {"name": "move"}}))).await?;
    for app in apps {
        let body = json!({"metadata": {"name": app.name}, "spec": {"app": app.name, "migration": true, "priority": priority}});
        client.post(&format!("{intents}/move/app-intents"), Some(&body)).await?;
    }
    Ok(())
}

/// Asks for a step in the life of an application, for example `instantiate`; returns the id of the operation.
///
/// # Errors
/// The request fails.
pub async fn ask(client: &Client, name: &str, verb: &str) -> Result<String> {
    let answer = client.post(&format!("{}/{verb}", group(name)), None).await?;
    let location = answer.location.context("the response names no operation")?;
    Ok(location.rsplit('/').next().unwrap_or_default().to_owned())
}

/// Waits until an operation has succeeded.
///
/// # Errors
/// The operation failed.
pub async fn succeeded(client: &Client, id: &str) -> Result<()> {
    let operation = ended(client, id).await?;
    match operation.state {
        OperationState::Succeeded => Ok(()),
        _ => bail!("{} failed: {} {:?}", operation.subject, operation.message, operation.reasons),
    }
}

/// Waits until an operation has ended.
///
/// # Errors
/// Drover does not answer.
pub async fn ended(client: &Client, id: &str) -> Result<Operation> {
    loop {
        let operation: Operation = client.get(&format!("/v2/operations/{id}?wait=30s")).await?;
        if operation.finished_at.is_some() {
            return Ok(operation);
        }
    }
}

/// Waits until `count` members with `nodes` nodes each are known.
///
/// # Errors
/// The time limit is reached.
pub async fn members_known(client: &Client, count: usize, nodes: usize) -> Result<()> {
    let known = async || {
        let clusters: Vec<ClusterCapacity> = client.get("/v2/clusters?view=capacity").await?;
        let known = clusters.iter().filter(|cluster| cluster.age_ms.is_some() && cluster.nodes.len() == nodes).count();
        Ok((known == count).then_some(()))
    };
    until(Duration::from_secs(300), known).await.with_context(|| format!("placement does not see {count} members of {nodes} nodes"))
}
