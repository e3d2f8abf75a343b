//! The client of the API server: reads this node's pods and what concerns them every few seconds, writes Events, evicts pods, taints the
//! node.
//!
//! It is a task of its own, so it never delays the guard. What cannot be sent is dropped and logged; what cannot be read stays as it was.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use drover_agent::{AGENT, REPORT};
use http::{Request, header};
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval};

use super::types::{DisruptionBudget, KubeLease, List, Node, Pod};
use super::{ClusterView, PodBudget};

/// Time between two readings. (Leases are renewed every 10 s, and the runtime reports new pods at once.)
const EVERY: Duration = Duration::from_secs(5);
/// Time limit of a call.
const DEADLINE: Duration = Duration::from_secs(10);
/// Time between two attempts to remove the taint at the end.
const AGAIN: Duration = Duration::from_millis(200);
/// Every so many readings the node's Lease is renewed, with a report.
const REPORT_EVERY: u32 = 3;
/// For how long a report counts.
const REPORT_SECONDS: u32 = 60;
/// Where the Leases of nodes are.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// The taint of the node while the start gate is closed.
const TAINT: &str = "drover.dev/memory-gate";

/// One write to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiWrite {
    /// Create an Event about a pod.
    Event {
        pod: (String, String),
        uid: String,
        container: String,
        /// The reason of the Event, one word.
        reason: &'static str,
        message: String,
    },
    /// Evict a pod, which respects PodDisruptionBudgets.
    Evict {
        pod: (String, String),
        /// Another pod with the same name but another uid is not evicted.
        uid: String,
    },
}

/// The API server of the cluster that this node belongs to.
#[derive(Clone)]
pub struct ApiServer {
    client: kube::Client,
    node: String,
}

impl ApiServer {
    /// A client from a kubeconfig or, if there is none, from the service account of the pod that this process runs in.
    ///
    /// # Errors
    /// When the configuration cannot be read or is not usable.
    pub async fn new(kubeconfig: Option<&std::path::Path>, node: String) -> Result<Self> {
        let mut config = match kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
                kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
            }
            None => kube::Config::incluster().context("this process does not run in a pod with a service account; give --kubeconfig")?,
        };
        config.read_timeout = Some(DEADLINE);
        Ok(Self { client: kube::Client::try_from(config)?, node })
    }

    /// Reads and writes until the sender of the writes is dropped. `tainted` says whether the node is to be tainted; this is compared with
    /// the node after each reading, so a write that failed, or that somebody reverted, is repeated. `None`: the taint is left as it is.
    /// `report` is what a Lease of the node says about the guard, for whoever looks from outside.
    pub async fn run(
        self,
        view: Arc<Mutex<ClusterView>>,
        writes: Arc<tokio::sync::Mutex<mpsc::Receiver<ApiWrite>>>,
        mut tainted: watch::Receiver<Option<bool>>,
        report: Arc<dyn Fn() -> Option<Value> + Send + Sync>,
    ) {
        let mut writes = writes.lock().await;
        let (mut taint_fails, mut report_fails, mut readings) = (false, false, 0_u32);
        let mut read = interval(EVERY);
        let mut failing_since = None;
        loop {
            let wanted = tokio::select! {
                _ = read.tick() => {
                    match self.read().await {
                        Ok(mut fresh) => {
                            let mut view = view.lock().unwrap_or_else(PoisonError::into_inner);
                            fresh.version = view.version + 1;
                            *view = fresh;
                            failing_since = None;
                        }
                        Err(error) => {
                            if failing_since.is_none() {
                                tracing::warn!(error = format!("{error:#}"), "the API server cannot be read; continuing with what was last read");
                            }
                            failing_since.get_or_insert(Instant::now());
                        }
                    }
                    if readings.is_multiple_of(REPORT_EVERY) && let Some(report) = report() {
                        let result = self.report(&report).await;
                        if let Err(error) = &result && !report_fails {
                            tracing::warn!(error = format!("{error:#}"), "the Lease of this node's guard cannot be renewed; trying again");
                        }
                        report_fails = result.is_err();
                    }
                    readings = readings.wrapping_add(1);
                    *tainted.borrow()
                }
                Ok(()) = tainted.changed() => *tainted.borrow_and_update(),
                what = writes.recv() => {
                    let Some(what) = what else { return };
                    if let Err(error) = self.write(&what).await {
                        tracing::warn!(error = format!("{error:#}"), write = ?what, "a write to the API server failed");
                    }
                    None
                }
            };
            if let Some(wanted) = wanted {
                let result = self.taint(wanted).await;
                if let Err(error) = &result
                    && !taint_fails
                {
                    tracing::warn!(error = format!("{error:#}"), wanted, "the taint of the node cannot be changed; trying again");
                }
                taint_fails = result.is_err();
            }
        }
    }

    /// Removes the taint of the node, for an agent that ends.
    ///
    /// # Errors
    /// When it could not be removed within the time limit of a call.
    pub async fn untaint(&self) -> Result<()> {
        let removed = async {
            while let Err(error) = self.taint(false).await {
                tracing::debug!(error = format!("{error:#}"), "the taint of the node could not be removed; trying again");
                tokio::time::sleep(AGAIN).await;
            }
        };
        tokio::time::timeout(DEADLINE, removed).await.context("the API server did not accept the change in time")
    }

    async fn read(&self) -> Result<ClusterView> {
        // `resourceVersion=0` reads from the server's cache, which is enough: a reading that is a few seconds older does no harm.
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}&resourceVersion=0", self.node);
        let pods: List<Pod> = self.get(&path).await?;
        // Only the namespaces of this node's pods, because a large cluster has many Leases.
        let namespaces: BTreeSet<&str> = pods.items.iter().map(|pod| pod.metadata.namespace.as_str()).collect();
        let mut view = ClusterView::default();
        for namespace in namespaces {
            let leases: List<KubeLease> =
                self.get(&format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?resourceVersion=0")).await?;
            let holders = leases.items.into_iter().filter_map(|lease| Some((lease.metadata.namespace, lease.spec.holder_identity?)));
            view.lease_holders.extend(holders);
            let budgets: List<DisruptionBudget> =
                self.get(&format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets?resourceVersion=0")).await?;
            view.budgets.extend(budgets.items.into_iter().filter_map(|budget| {
                let key = format!("{namespace}/{}", budget.metadata.name).into();
                Some(PodBudget {
                    namespace: namespace.to_owned(),
                    key,
                    selector: budget.spec.selector?,
                    allowed: budget.status.disruptions_allowed,
                })
            }));
        }
        view.pods = pods.items.into_iter().map(|pod| (pod.metadata.uid.clone(), pod)).collect();
        Ok(view)
    }

    async fn write(&self, what: &ApiWrite) -> Result<()> {
        match what {
            ApiWrite::Event { pod: (namespace, name), uid, container, reason, message } => {
                let now = Timestamp::now();
                let body = json!({
                    "apiVersion": "v1", "kind": "Event",
                    "metadata": {"generateName": format!("{name}."), "namespace": namespace},
                    "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid,
                                       "fieldPath": format!("spec.containers{{{container}}}")},
                    "reason": reason, "message": message, "type": "Normal", "count": 1,
                    "firstTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "lastTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                    "source": {"component": "drover-memory-guard", "host": self.node},
                });
                self.send("POST", &format!("/api/v1/namespaces/{namespace}/events"), "application/json", &body).await
            }
            ApiWrite::Evict { pod: (namespace, name), uid } => {
                let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
                                  "deleteOptions": {"preconditions": {"uid": uid}}});
                self.send("POST", &format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction"), "application/json", &body).await
            }
        }
    }

    async fn report(&self, report: &Value) -> Result<()> {
        let name = format!("drover-memory-guard-{}", self.node);
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "labels": {AGENT: "memory-guard"}, "annotations": {REPORT: report.to_string()}},
            "spec": {"holderIdentity": self.node, "leaseDurationSeconds": REPORT_SECONDS,
                     "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()},
        });
        let path = format!("{LEASES}/{name}?fieldManager=drover-memory-guard&force=true");
        self.send("PATCH", &path, "application/apply-patch+yaml", &body).await
    }

    async fn taint(&self, wanted: bool) -> Result<()> {
        let path = format!("/api/v1/nodes/{}", self.node);
        let node: Node = self.get(&path).await?;
        let ours = |taint: &serde_json::Map<String, Value>| taint.get("key").and_then(Value::as_str) == Some(TAINT);
        if node.spec.taints.iter().any(&ours) == wanted {
            return Ok(());
        }
        let mut taints: Vec<_> = node.spec.taints.into_iter().filter(|taint| !ours(taint)).map(Value::Object).collect();
        if wanted {
            taints.push(json!({"key": TAINT, "effect": "NoSchedule"}));
        }
        // With the version that was read, so that a taint that was added in the meantime is never lost.
        let body = json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}});
        self.send("PATCH", &path, "application/merge-patch+json", &body).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let request = Request::get(path).body(Vec::new())?;
        self.client.request(request).await.with_context(|| format!("GET {path}"))
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<()> {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind).body(serde_json::to_vec(body)?)?;
        self.client.request::<Value>(request).await.map(drop).with_context(|| format!("{method} {path}"))
    }
}
