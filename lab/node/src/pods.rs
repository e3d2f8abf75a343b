//! The pods of a trial in an API server in memory, as a cluster would tell the guard of them: they belong to Jobs and have no probes.
//! Without a server the guard would assume a default probe, and hold no container for longer than that tolerates.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use drover_kubesim::{ClusterSpec, Sim};
use k8s_openapi::api::core::v1 as core;
use kube::api::{Api, PostParams};
use serde_json::json;
use tokio::net::TcpListener;

use super::containerd::{NAMESPACE, Spec};

/// Name of the node in the server.
pub const NODE: &str = "node-1";
const CLUSTER: &str = "trial";

/// The server. It ends when this value is dropped.
pub struct Pods {
    /// Where its kubeconfig is.
    pub kubeconfig: PathBuf,
    _sim: Sim,
}

impl Pods {
    /// Starts a server with a pod for each job, whose uid the job gets. Its kubeconfig is written into `dir`.
    ///
    /// # Errors
    /// When there is no port, or the file cannot be written.
    pub async fn start(dir: &Path, jobs: &mut [Spec]) -> Result<Self> {
        let sim = Sim::new();
        // Only the server: containers are started by the trial.
        sim.add_cluster(CLUSTER, ClusterSpec { controllers: false, journal: false, ..ClusterSpec::with_nodes(1, "2", "1Gi") });
        let client = sim.client(CLUSTER);
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        Api::<core::Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        let pods: Api<core::Pod> = Api::namespaced(client, NAMESPACE);
        for job in jobs {
            let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid, "controller": true});
            let pod = json!({
                "metadata": {"name": job.name, "labels": job.labels, "ownerReferences": [owner]},
                "spec": {"nodeName": NODE, "restartPolicy": "OnFailure", "containers": [
                    {"name": "main", "image": "registry.example/job:1", "resources": {"requests": {"memory": "64Mi"}}}]},
            });
            let made = pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
            job.uid = made.metadata.uid.context("the server gives each pod a uid")?;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        sim.serve(listener);
        let kubeconfig = dir.join("kubeconfig");
        std::fs::write(&kubeconfig, sim.kubeconfig(CLUSTER, &url))?;
        Ok(Self { kubeconfig, _sim: sim })
    }
}
