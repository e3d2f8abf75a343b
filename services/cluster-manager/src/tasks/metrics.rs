//! Reads metrics.k8s.io of members that serve it.

use std::collections::{BTreeMap, HashMap};

use drover_members::{amounts, labels};
use drover_quantity::Quantity;
use drover_scheduling::Amounts;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::app::Usage;
use crate::probe::DEADLINE;

#[derive(Deserialize)]
pub struct List<T> {
    pub items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    name: String,
    namespace: String,
}

#[derive(Deserialize)]
struct NodeMetrics {
    metadata: Meta,
    usage: BTreeMap<String, Quantity>,
}

#[derive(Deserialize)]
struct PodMetrics {
    metadata: Meta,
    containers: Vec<ContainerMetrics>,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    usage: BTreeMap<String, Quantity>,
}

/// Usage of all nodes and of Drover's pods; `None` where metrics.k8s.io does not answer.
pub async fn read(client: &Client) -> Option<Usage> {
    let nodes: List<NodeMetrics> = get(client, "/apis/metrics.k8s.io/v1beta1/nodes").await?;
    // Only Drover's pods: the usage of others is not needed, and there may be many.
    let ours = format!("/apis/metrics.k8s.io/v1beta1/pods?labelSelector={}", labels::BINDING.replace('/', "%2F"));
    let pods: List<PodMetrics> = get(client, &ours).await?;
    let nodes = nodes.items.into_iter().filter_map(|node| Some((node.metadata.name, used(&node.usage)?))).collect();
    let pods = pods.items.into_iter().filter_map(|pod| {
        let mut sum = Amounts::default();
        for container in &pod.containers {
            sum.add(&used(&container.usage)?, 1);
        }
        Some((format!("{}/{}", pod.metadata.namespace, pod.metadata.name), sum))
    });
    Some(Usage { nodes, pods: pods.collect::<HashMap<_, _>>() })
}

/// CPU and memory; other resources that metrics-server may report are not used.
fn used(usage: &BTreeMap<String, Quantity>) -> Option<Amounts> {
    let Amounts { cpu, memory, .. } = amounts::of_list(usage).ok()?;
    Some(Amounts { cpu, memory, ..Amounts::default() })
}

/// One reading; `None` if the member refuses it or does not answer in time.
pub async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Option<T> {
    let request = http::Request::get(path).body(Vec::new()).ok()?;
    match tokio::time::timeout(DEADLINE, client.request(request)).await {
        Ok(Ok(found)) => Some(found),
        // Clusters without metrics-server always answer 404: not worth a warning.
        Ok(Err(error)) => {
            tracing::debug!(%error, path, "not readable");
            None
        }
        Err(_) => None,
    }
}
