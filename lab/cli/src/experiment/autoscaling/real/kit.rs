//! A cluster with one real node, the agent in it as documented, and the objects of the cases.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use drover_autoscaler::policy::ScalingPolicy;
use drover_autoscaling::qlearning::{QLearningSpec, QTable};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{MOST, PERIOD};
use crate::bench::agents::{IMAGE, VERSION, image};
use crate::bench::world::until;
use crate::dev::kube as local;

/// CPU of a pod in thousandths, and of a request in milliseconds: a pod serves about 20 requests per second.
pub const LIMIT: u32 = 100;
const BURN: u32 = 4;
/// Time limit for pods to become ready.
pub const READY: Duration = Duration::from_secs(300);
/// Weight of the node's CPU beside everything else on the machine (1,024), so that a measured capacity stays valid.
const SHARES: &str = "65536";

const MANIFESTS: [&str; 3] = [
    include_str!("../../../../../../deploy/autoscaler/crd.yaml"),
    include_str!("../../../../../../deploy/autoscaler/rbac.yaml"),
    include_str!("../../../../../../deploy/autoscaler/agent.yaml"),
];

/// What a machine lacks for real kubelets, in words.
pub fn lacking() -> Vec<String> {
    let dirs = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin"];
    let there = |program: &&str| dirs.iter().any(|dir| Path::new(dir).join(program).exists());
    let programs = ["containerd", "runc", "ctr", "nft", "ip", "python3", "strip"].into_iter().filter(|program| !there(program));
    let programs = programs.collect::<Vec<_>>().join(", ");
    let mut lacks = Vec::new();
    if !programs.is_empty() {
        lacks.push(format!("{programs} (as root: deploy/setup.sh real)"));
    }
    if !nix::unistd::geteuid().is_root() {
        lacks.push("the rights of root (run this command as root)".to_owned());
    }
    if !Path::new("/sys/fs/cgroup/cpuacct").exists() {
        lacks.push("cgroup v1 (boot with systemd.unified_cgroup_hierarchy=0)".to_owned());
    }
    lacks
}

/// The running cluster; taken down when dropped.
pub struct Kit {
    /// Its administrator.
    pub client: Client,
    /// An address of this machine that pods reach.
    pub here: IpAddr,
    /// Name of the node's cgroup in every controller.
    pub cgroup: String,
    _down: local::TakenDown,
}

impl Kit {
    /// Starts the cluster, and waits for the agent in it.
    ///
    /// # Errors
    /// A part does not start.
    pub async fn start(folder: &Path) -> Result<Self> {
        let image = image(folder, &["drover-autoscaler"])?;
        let (cluster, down) = local::up_on_a_real_node("paper", image, folder.join("kube")).await?;
        let file = Kubeconfig::read_from(&cluster.kubeconfig)?;
        let client = Client::try_from(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?;
        let server = Url::parse(&cluster.server)?;
        let here = server.host_str().and_then(|host| host.parse().ok()).with_context(|| format!("{server} has no IP address"))?;
        let node = cluster.kubeconfig.with_file_name("nodes/1/etc/kubelet.yaml");
        let settings = std::fs::read_to_string(&node).with_context(|| format!("cannot read {}", node.display()))?;
        let cgroup =
            settings.lines().find_map(|line| line.strip_prefix("cgroupRoot: /")).context("the kubelet has no cgroup of its own")?;
        let kit = Self { client, here, cgroup: cgroup.trim().to_owned(), _down: down };
        let shares = Path::new("/sys/fs/cgroup/cpu").join(&kit.cgroup).join("cpu.shares");
        std::fs::write(&shares, SHARES).with_context(|| format!("cannot write {}", shares.display()))?;
        kit.agent().await?;
        Ok(kit)
    }

    async fn agent(&self) -> Result<()> {
        for manifest in MANIFESTS {
            for document in serde_yaml::Deserializer::from_str(manifest) {
                let mut object = Value::deserialize(document)?;
                if object["kind"] == "Deployment" {
                    // Nobody takes over here, and nothing is pulled.
                    object["spec"]["replicas"] = json!(1);
                    object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("{IMAGE}:{VERSION}"));
                }
                self.apply(&object).await?;
            }
        }
        let subject = json!({"kind": "ServiceAccount", "name": "drover-autoscaler", "namespace": "kube-system"});
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "drover-autoscaler-tables"});
        self.apply(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "roleRef": role, "subjects": [subject],
            "metadata": {"name": "tables", "namespace": "default"}}))
            .await?;
        let agents: Api<Deployment> = Api::namespaced(self.client.clone(), "kube-system");
        let ready = async || {
            let status = agents.get("drover-autoscaler").await?.status.unwrap_or_default();
            Ok((status.ready_replicas == Some(1)).then_some(()))
        };
        until(READY, ready).await.context("the agent does not become ready")?;
        // The API server serves a new definition after a short delay.
        until(READY, async || Ok(self.policies().list(&ListParams::default()).await.ok().map(drop))).await
    }

    /// Applies an object.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn apply(&self, object: &Value) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let types = object.types.clone().context("an object needs a kind")?;
        let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind),
            None => Api::all_with(self.client.clone(), &kind),
        };
        let name = object.metadata.name.clone().unwrap_or_default();
        let applied = api.patch(&name, &PatchParams::apply("drover-experiment").force(), &Patch::Apply(&object)).await;
        applied.with_context(|| format!("cannot apply {} {name}", types.kind)).map(drop)
    }

    /// The policies of the cases.
    pub fn policies(&self) -> Api<ScalingPolicy> {
        Api::namespaced(self.client.clone(), "default")
    }
}

/// The file with the CPU time of a pod in nanoseconds.
pub fn usage_of(cgroup: &str, uid: &str) -> PathBuf {
    Path::new("/sys/fs/cgroup/cpuacct").join(cgroup).join(format!("kubepods/pod{uid}/cpuacct.usage"))
}

/// An app of one pod. Its requests are its limits, so that its cgroup is one of the node's own.
pub fn app(name: &str) -> Value {
    let size = json!({"cpu": format!("{LIMIT}m"), "memory": "128Mi"});
    let container = json!({
        "name": "app", "image": format!("{IMAGE}:{VERSION}"), "resources": {"requests": size, "limits": size},
        "command": ["/bin/drover-autoscaler", "demo-app", "--work", "0", "--burn", BURN.to_string(), "--at-once", "1"],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"terminationGracePeriodSeconds": 5, "containers": [container]}}},
    })
}

/// The Q-table with which the agent begins.
pub fn table(name: &str, table: &QTable) -> Result<Value> {
    let data = json!({"table.json": serde_json::to_string(table)?});
    Ok(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{name}-table"), "namespace": "default"}, "data": data}),
    )
}

/// The policy of a case. The threshold policy that would take over from an expensive learner is kept from it, as in the paper.
pub fn policy(name: &str, learner: &QLearningSpec, prometheus: &str) -> Value {
    let learner = QLearningSpec { initial_table: Some(format!("{name}-table")), ..learner.clone() };
    let queries = json!({"cpu": format!("{name} cpu"), "expired": format!("{name} expired")});
    json!({
        "apiVersion": "drover.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "policy": "qlearning", "mode": "apply",
            "minReplicas": 1, "maxReplicas": MOST, "periodSeconds": PERIOD, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            "source": {"prometheus": {"url": prometheus, "queries": queries}}, "shadow": {"tolerance": 1e6}, "qlearning": learner,
        },
    })
}

#[cfg(test)]
mod tests {
    use drover_autoscaler::policy::Plan;
    use drover_autoscaling::Policy;

    use super::*;

    #[test]
    fn policy_of_a_case_is_accepted_and_settles_at_once() {
        let learner = QLearningSpec { guards: false, ..QLearningSpec::default() };
        let policy = policy("case-b", &learner, "http://127.0.0.1:1");
        let plan = Plan::of(&policy["spec"]).unwrap();
        assert_eq!((plan.settling(), plan.limits.max_replicas), (0.0, MOST));
        let Policy::QLearning(spec) = &plan.policy else { panic!("{plan:?}") };
        assert!(!spec.guards && spec.initial_table.as_deref() == Some("case-b-table"));
    }

    #[test]
    fn manifests_are_objects_with_a_kind() {
        for manifest in MANIFESTS {
            for document in serde_yaml::Deserializer::from_str(manifest) {
                let object = Value::deserialize(document).unwrap();
                assert!(object["kind"].is_string(), "{object}");
            }
        }
    }
}
