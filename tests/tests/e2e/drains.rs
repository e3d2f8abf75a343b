//! Emptying a cluster, step by step: the plan, its operation, the end of it.

use std::time::Duration;

use drover_api::operations::Operation;
use drover_e2e::System;
use drover_e2e::emco::{ended, operation_id};
use drover_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(120);

/// A plan that empties a cluster. What it needs to know may be read a little later, so it is asked for until there is one.
pub async fn plan(system: &System, provider: &str, cluster: &str) -> Value {
    let order = json!({"kind": "drain", "clusterProvider": provider, "cluster": cluster});
    eventually(PATIENCE, async || {
        let plan = system.client.post("/v2/plans", Some(&order)).await.ok()?.body;
        (plan["state"] == "proposed").then_some(plan)
    })
    .await
}

/// Applies a plan, and returns the operation.
pub async fn begin(system: &System, plan: &Value) -> String {
    operation_id(&system.client, Method::POST, &format!("/v2/plans/{}/apply", plan["id"].as_str().unwrap())).await.unwrap()
}

/// Waits for the end of the operation that empties a cluster, and opens the cluster again.
pub async fn end(system: &System, id: &str, provider: &str, cluster: &str) -> Operation {
    let operation = ended(&system.client, id).await.unwrap();
    system.client.delete(&format!("/v2/cluster-providers/{provider}/clusters/{cluster}/cordon")).await.unwrap();
    system.opened(cluster).await;
    operation
}
