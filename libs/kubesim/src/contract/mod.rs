//! The behaviour of a Kubernetes API server on which Drover relies, as cases that always run against kubesim, and against a real server
//! if there is one. A case that fails only against kubesim shows a defect of the simulator.
//!
//! The cases create namespaces and a tainted node of their own (label `type=kwok`, so that kwok manages it on a real server),
//! and delete them. They need the rights of a cluster administrator.

mod apply;
mod objects;
mod stateful;
mod watches;
mod workloads;

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

/// Why a case failed.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The server refused a request that it must accept, or could not be reached.
    #[error(transparent)]
    Kube(#[from] kube::Error),
    /// A watch broke while waiting.
    #[error(transparent)]
    Wait(#[from] kube::runtime::wait::Error),
    /// The server did not behave as expected.
    #[error("{0}")]
    Expectation(String),
}

/// The result of a case.
pub type Outcome = Result<(), Broken>;

/// One case of the contract.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    run: fn(Fixture) -> BoxFuture<'static, Outcome>,
}

/// Fails the case unless the condition holds.
macro_rules! must {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err($crate::contract::Broken::Expectation(format!($($why)+)));
        }
    };
}
/// A table of cases from functions of the same names.
macro_rules! table {
    ($($name:ident),+ $(,)?) => {
        pub const CASES: &[$crate::contract::Case] =
            &[$($crate::contract::Case { name: stringify!($name), run: |fixture| Box::pin($name(fixture)) }),+];
    };
}
use {must, table};

/// All cases, those that wait longest first.
pub fn cases() -> Vec<Case> {
    [workloads::CASES, stateful::CASES, objects::CASES, apply::CASES, watches::CASES].concat()
}

/// How many cases run at the same time. Most of them wait most of the time, above all for metrics.
const AT_ONCE: usize = 8;

/// How long a case waits for anything. Only against hanging: a busy machine needs over a minute to delete a namespace.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs every case (whose name contains `filter`), a few at a time, each in a namespace of its own.
///
/// # Errors
/// When the server cannot be used at all. Failures of single cases are in the list.
pub async fn run_all(client: kube::Client, filter: &str) -> Result<Vec<(&'static str, Outcome, Duration)>, Broken> {
    let run = format!("{:06x}", rand::random_range(0..0xff_ffffu32));
    let node = format!("contract-{run}");
    let nodes = all(&client, "", "v1", "Node");
    let taints = json!([{"key": "drover-contract", "value": run, "effect": "NoSchedule"}]);
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let mut object = crate::nodes::new(&node, &json!({"drover-contract": run}), &taints, &room);
    object["metadata"]["annotations"] = json!({"metrics.k8s.io/resource-metrics-path": format!("/metrics/nodes/{node}/metrics/resource")});
    nodes.create(&PostParams::default(), &typed(object)).await?;
    let ready = |node: Option<&DynamicObject>| node.is_some_and(|n| condition(n, "Ready") == "True" && of(n, "/spec/taints/1").is_null());
    until(&nodes, &node, ready, "the node gets ready").await?;
    let runs = cases().into_iter().filter(|case| case.name.contains(filter)).enumerate().map(|(at, case)| {
        let namespace = format!("contract-{run}-{at}");
        run_one(case, Fixture { client: client.clone(), namespace, run: run.clone(), node: node.clone() })
    });
    let outcomes = futures::stream::iter(runs).buffer_unordered(AT_ONCE).try_collect().await?;
    nodes.delete(&node, &DeleteParams::default()).await?;
    Ok(outcomes)
}

async fn run_one(case: Case, fixture: Fixture) -> Result<(&'static str, Outcome, Duration), Broken> {
    let (namespaces, namespace) = (all(&fixture.client, "", "v1", "Namespace"), fixture.namespace.clone());
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    namespaces.create(&PostParams::default(), &typed(object)).await?;
    let start = Instant::now();
    let outcome = (case.run)(fixture).await;
    let took = start.elapsed();
    // Not waited for: only the case about namespaces waits for their deletion.
    match namespaces.delete(&namespace, &DeleteParams::default()).await {
        Ok(_) => {}
        Err(e) if code(&e) == 404 => {}
        Err(e) => return Err(e.into()),
    }
    Ok((case.name, outcome, took))
}

/// The client, the namespace and the node of a case.
pub(crate) struct Fixture {
    client: kube::Client,
    namespace: String,
    run: String,
    node: String,
}

impl Fixture {
    /// Objects of a kind in the case's namespace.
    fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)))
    }

    fn config_maps(&self) -> Api<DynamicObject> {
        self.api("", "v1", "ConfigMap")
    }

    fn pods(&self) -> Api<DynamicObject> {
        self.api("", "v1", "Pod")
    }

    fn deployments(&self) -> Api<DynamicObject> {
        self.api("apps", "v1", "Deployment")
    }

    fn config_map(&self, name: &str, data: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": name}}, "data": data})
    }

    /// A pod template that fits only on the node of the contract.
    fn template(&self, app: &str, cpu: &str, annotations: Value) -> Value {
        json!({"metadata": {"labels": {"app": app}, "annotations": annotations},
            "spec": {"nodeSelector": {"drover-contract": self.run},
                "tolerations": [{"key": "drover-contract", "operator": "Exists"}],
                "containers": [{"name": "main", "image": "example.invalid/main:1", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]}})
    }

    fn deployment(&self, name: &str, replicas: u32, cpu: &str) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": self.template(name, cpu, json!({}))}})
    }
}

fn all(client: &kube::Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)))
}

fn typed(object: Value) -> DynamicObject {
    serde_json::from_value(object).expect("the cases write well-formed objects")
}

/// The value at a pointer below the object's own fields.
fn of<'a>(object: &'a DynamicObject, pointer: &str) -> &'a Value {
    object.data.pointer(pointer).unwrap_or(&Value::Null)
}

fn condition<'a>(object: &'a DynamicObject, kind: &str) -> &'a str {
    let conditions = of(object, "/status/conditions").as_array();
    conditions.into_iter().flatten().find(|c| c["type"] == kind).and_then(|c| c["status"].as_str()).unwrap_or("")
}

fn version(object: &DynamicObject) -> &str {
    object.metadata.resource_version.as_deref().unwrap_or("")
}

/// The HTTP status of an error; 0 if it has none.
fn code(error: &kube::Error) -> u16 {
    if let kube::Error::Api(status) = error { status.code } else { 0 }
}

/// Fails unless the request was refused with this status and reason.
fn refused<T>(result: Result<T, kube::Error>, want: u16, reason: &str) -> Outcome {
    match result {
        Err(kube::Error::Api(status)) if status.code == want && (reason.is_empty() || status.reason == reason) => Ok(()),
        Err(other) => Err(Broken::Expectation(format!("expected {want} {reason}, got {other:?}"))),
        Ok(_) => Err(Broken::Expectation(format!("expected {want} {reason}, but it was accepted"))),
    }
}

/// Waits until the condition holds for the object.
async fn until(
    api: &Api<DynamicObject>,
    name: &str,
    holds: impl Fn(Option<&DynamicObject>) -> bool + Send,
    what: &str,
) -> Result<Option<DynamicObject>, Broken> {
    let wait = await_condition(api.clone(), name, move |object: Option<&DynamicObject>| holds(object));
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(object) => Ok(object?),
        Err(_) => {
            let now = api.get_opt(name).await?;
            let now = now.map(|object| object.data.to_string()).unwrap_or_default();
            Err(Broken::Expectation(format!("waited {PATIENCE:?} in vain until {what}; {name} is {now}")))
        }
    }
}

/// Repeats the check until it passes, for conditions that cannot be watched.
async fn eventually<F: Future<Output = Result<bool, Broken>>>(what: &str, check: impl Fn() -> F) -> Outcome {
    let end = Instant::now() + PATIENCE;
    while !check().await? {
        must!(Instant::now() < end, "waited {PATIENCE:?} in vain until {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
