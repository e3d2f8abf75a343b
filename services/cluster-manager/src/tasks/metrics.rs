//! Reading metrics.k8s.io, where a member has it.

use std::collections::{BTreeMap, HashMap};

use drover_members::{amounts, labels};
use drover_quantity::Quantity;
use drover_scheduling::Amounts;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::probe::DEADLINE;
use crate::app::Usage;

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
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

/// Use of all nodes and of Drover's pods; none where nobody tells.
pub async fn read(client: &Client) -> Option<Usage> {
    let nodes: List<NodeMetrics> = get(client, "/apis/metrics.k8s.io/v1beta1/nodes").await?;
    // Others' pods may be many and nobody asks for them.
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

/// CPU and memory only: what else metrics-server may say is not used.
fn used(usage: &BTreeMap<String, Quantity>) -> Option<Amounts> {
    let Amounts { cpu, memory, .. } = amounts::of_list(usage).ok()?;
    Some(Amounts { cpu, memory, ..Amounts::default() })
}

async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Option<T> {
    let request = http::Request::get(path).body(Vec::new()).ok()?;
    match tokio::time::timeout(DEADLINE, client.request(request)).await {
        Ok(Ok(found)) => Some(found),
        // Most clusters without metrics-server answer 404, for ever: no news.
        Ok(Err(error)) => {
            tracing::debug!(%error, path, "no metrics");
            None
        }
        Err(_) => None,
    }
}
