//! A namespace of the real cluster, workloads with a load that can be set, and agents as processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use drover_autoscaler::agent::callers::AUDIENCE;
use drover_autoscaler::policy::{ScalingPolicy, definition};
use drover_autoscaler::wire::{Push, Standing};
use drover_autoscaling::kpa::RequestReport;
use drover_testkit::{eventually, free_port, needs};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};

/// Longer than anything takes that does not hang.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// For agents whose Lease has to expire in the test. A third of it is as long as a request may take.
pub const SHORT_LEASE: (&str, &str) = ("AUTOSCALER_LEASE_SECONDS", "15");

/// A namespace of the test's own on the real cluster.
pub struct TestNamespace {
    pub kubeconfig: PathBuf,
    pub client: Client,
    pub namespace: String,
    pub files: tempfile::TempDir,
    /// A token that allows pushing statistics of policies in this namespace.
    pub token: String,
}

pub async fn client(kubeconfig: &Path) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    Client::try_from(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap()).unwrap()
}

/// A token of a service account; none: there is no such account.
pub async fn token(client: &Client, namespace: &str, account: &str, audience: &str) -> Option<String> {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let spec = json!({"audiences": [audience], "expirationSeconds": 3600});
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let made: Value = client.request(http::Request::post(path).body(serde_json::to_vec(&body).unwrap()).unwrap()).await.ok()?;
    Some(made["status"]["token"].as_str()?.to_owned())
}

impl TestNamespace {
    /// None if there is no such cluster.
    #[track_caller]
    pub fn new(name: &str) -> Option<impl Future<Output = Self>> {
        let kubeconfig = PathBuf::from(needs("DROVER_CONTRACT_KUBECONFIG")?);
        Some(Self::at(kubeconfig, name.to_owned()))
    }

    pub async fn at(kubeconfig: PathBuf, name: String) -> Self {
        let client = client(&kubeconfig).await;
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        let definition = definition();
        let crd = definition.metadata.name.clone().unwrap();
        crds.patch(&crd, &PatchParams::apply("drover-tests").force(), &Patch::Apply(&definition)).await.unwrap();
        eventually(PATIENCE, async || {
            let crd = crds.get_status(&crd).await.ok()?;
            let established = |status: &str| {
                crd.status.iter().flat_map(|s| s.conditions.iter().flatten()).any(|c| c.type_ == status && c.status == "True")
            };
            established("Established").then_some(())
        })
        .await;
        let namespace = format!("scale-{name}-{}", std::process::id());
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
        // The account is created shortly after its namespace.
        let token = eventually(PATIENCE, async || token(&client, &namespace, "default", AUDIENCE).await).await;
        Self { kubeconfig, client, namespace, files: tempfile::tempdir().unwrap(), token }
    }

    /// A kubeconfig with the rights of deploy/autoscaler/rbac.yaml, with the Lease and Q-tables in this namespace.
    pub async fn least_rights(&self) -> PathBuf {
        let rules = include_str!("../../../../deploy/autoscaler/rbac.yaml");
        let of_path = include_str!("../../../../deploy/autoscaler/activator.yaml");
        let documents = serde_yaml::Deserializer::from_str(rules).chain(serde_yaml::Deserializer::from_str(of_path));
        let mut objects: Vec<Value> = documents.map(|one| Value::deserialize(one).unwrap()).collect();
        objects.retain(|object| object["kind"] == "ServiceAccount" || object["apiVersion"] == "rbac.authorization.k8s.io/v1");
        let subject = json!([{"kind": "ServiceAccount", "name": "drover-autoscaler", "namespace": "kube-system"}]);
        for (name, kind, role) in [("lease", "Role", "drover-autoscaler"), ("tables", "ClusterRole", "drover-autoscaler-tables")] {
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role});
            objects.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                                "metadata": {"name": name, "namespace": self.namespace}, "roleRef": role, "subjects": subject}));
        }
        let mut lease = objects.iter().find(|object| object["kind"] == "Role").unwrap().clone();
        lease["metadata"]["namespace"] = self.namespace.clone().into();
        objects.push(lease);
        for object in objects {
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(object.types.clone().unwrap()).unwrap());
            let api: Api<DynamicObject> = match &object.metadata.namespace {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
                None => Api::all_with(self.client.clone(), &resource),
            };
            let name = object.metadata.name.clone().unwrap();
            api.patch(&name, &PatchParams::apply("drover-tests").force(), &Patch::Apply(&object)).await.unwrap();
        }
        let request = http::Request::post("/api/v1/namespaces/kube-system/serviceaccounts/drover-autoscaler/token");
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
        let token: Value = self.client.request(request.body(serde_json::to_vec(&body).unwrap()).unwrap()).await.unwrap();
        let mut config = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let mut config: Value = serde_json::to_value(std::mem::take(&mut config)).unwrap();
        for user in config["users"].as_array_mut().unwrap() {
            user["user"] = json!({"token": token["status"]["token"]});
        }
        let path = self.files.path().join("least");
        std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
        // The API server acts upon new rights a moment later.
        let account = client(&path).await;
        let leases: Api<Lease> = Api::namespaced(account.clone(), &self.namespace);
        let policies: Api<ScalingPolicy> = Api::namespaced(account, &self.namespace);
        eventually(PATIENCE, async || {
            (leases.get_opt("drover-autoscaler").await.is_ok() && policies.list(&ListParams::default()).await.is_ok()).then_some(())
        })
        .await;
        path
    }

    pub async fn done(self) {
        Api::<Namespace>::all(self.client.clone()).delete(&self.namespace, &DeleteParams::background()).await.unwrap();
    }

    pub fn api<K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A deployment whose pods request 100m CPU.
    pub async fn workload(&self, name: &str, replicas: i32) {
        let container = json!({"name": "app", "image": "example.com/app:1", "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}}});
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
                     "template": {"metadata": {"labels": {"app": name}, "annotations": {"kit/cpu": "50m"}}, "spec": {"containers": [container]}}},
        }))
        .unwrap();
        self.api().create(&PostParams::default(), &deployment).await.unwrap();
    }

    /// A policy for the workload of its name; `more` is merged into its specification.
    pub async fn policy(&self, name: &str, kind: &str, mode: &str, more: Value) {
        let mut spec = json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "policy": kind, "mode": mode, "minReplicas": 1, "maxReplicas": 4, "periodSeconds": 2,
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let policy = json!({"apiVersion": "drover.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": name}, "spec": spec});
        let params = PatchParams::apply("drover-tests").force();
        self.api::<ScalingPolicy>().patch(name, &params, &Patch::Apply(&policy)).await.unwrap();
    }

    pub async fn status(&self, name: &str) -> drover_autoscaler::status::ScalingPolicyStatus {
        self.api::<ScalingPolicy>().get(name).await.unwrap().status.unwrap_or_default()
    }

    /// Waits for a condition with this status and reason.
    pub async fn condition(&self, name: &str, kind: drover_autoscaler::status::ConditionType, status: &str, reason: &str) -> String {
        eventually(PATIENCE, async || {
            let seen = self.status(name).await;
            let condition = seen.condition(kind)?;
            (condition.status == status && condition.reason == reason).then(|| condition.message.clone())
        })
        .await
    }

    /// The same for one whose message has these words: what cannot be read in time has the same reason for a while.
    pub async fn condition_with(&self, name: &str, kind: drover_autoscaler::status::ConditionType, reason: &str, words: &str) {
        eventually(PATIENCE, async || self.condition(name, kind, "False", reason).await.contains(words).then_some(())).await;
    }

    pub async fn replicas(&self, name: &str) -> i32 {
        self.api::<Deployment>().get_scale(name).await.unwrap().spec.unwrap().replicas.unwrap_or(0)
    }

    pub async fn reaches(&self, name: &str, holds: impl Fn(i32) -> bool) -> i32 {
        eventually(PATIENCE, async || {
            let replicas = self.replicas(name).await;
            holds(replicas).then_some(replicas)
        })
        .await
    }

    /// Divides the CPU in the returned channel (thousandths) among the existing pods, repeatedly, until aborted.
    pub fn load(&self, name: &'static str) -> (tokio::sync::watch::Sender<i64>, tokio::task::JoinHandle<()>) {
        let pods: Api<Pod> = self.api();
        let (sender, load) = tokio::sync::watch::channel(50);
        let task = tokio::spawn(async move {
            let mut given: BTreeMap<String, i64> = BTreeMap::new();
            loop {
                let list =
                    pods.list(&ListParams::default().labels(&format!("app={name}"))).await.map(|list| list.items).unwrap_or_default();
                let running = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none();
                let names: Vec<String> = list.iter().filter(running).filter_map(|pod| pod.metadata.name.clone()).collect();
                let share = *load.borrow() / i64::try_from(names.len().max(1)).unwrap();
                for pod in names {
                    if given.get(&pod) == Some(&share) {
                        continue;
                    }
                    let patch = json!({"metadata": {"annotations": {"kit/cpu": format!("{share}m")}}});
                    if pods.patch(&pod, &PatchParams::default(), &Patch::Merge(&patch)).await.is_ok() {
                        given.insert(pod, share);
                    }
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
        (sender, task)
    }
}

/// An agent of this build, as a process.
pub struct Agent {
    child: Child,
    pub address: String,
    log: PathBuf,
}

impl Agent {
    /// Starts one on the place's namespace.
    pub async fn start(place: &TestNamespace, name: &str, kubeconfig: &Path, env: &[(&str, &str)]) -> Self {
        let mut agent = Self::spawn(place, name, kubeconfig, env);
        agent.address = eventually(PATIENCE, async || agent.listening()).await;
        agent
    }

    /// The same for an agent that may end before it listens.
    pub fn spawn(place: &TestNamespace, name: &str, kubeconfig: &Path, env: &[(&str, &str)]) -> Self {
        let log = place.files.path().join(format!("{name}.log"));
        let address = format!("127.0.0.1:{}", free_port());
        let child = Command::new(env!("CARGO_BIN_EXE_drover-autoscaler"))
            .args(["agent", "--kubeconfig"])
            .arg(kubeconfig)
            .args(["--watch-namespace", &place.namespace, "--lease-namespace", &place.namespace])
            .args(["--listen", &address, "--advertise", &address])
            .env("NO_COLOR", "1")
            .env("AUTOSCALER_LEASE_SECONDS", "60")
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, address: String::new(), log }
    }

    fn listening(&self) -> Option<String> {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("listening"))?;
        Some(line.rsplit_once("address=")?.1.trim().to_owned())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(self.pid(), signal).unwrap();
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Its exit code; none: it runs, or a signal ended it.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap()?.code()
    }

    /// The text of its metrics; none: no answer.
    pub async fn metrics(&self) -> Option<String> {
        let request = reqwest::Client::new().get(format!("http://{}/metrics", self.address)).timeout(Duration::from_secs(1));
        request.send().await.ok()?.text().await.ok()
    }

    /// Whether the agent acts, by its metrics; none: no answer.
    pub async fn acts(&self) -> Option<bool> {
        Some(self.metrics().await?.lines().any(|line| line == "drover_autoscaler_leader 1"))
    }

    /// How many decisions it has carried out, by its metrics; none: no answer.
    pub async fn scalings(&self) -> Option<u64> {
        let metrics = self.metrics().await?;
        let counts = metrics.lines().filter(|line| line.starts_with("drover_autoscaler_scalings_total{"));
        Some(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }

    /// Time of its last decision; none: there is none, or no answer.
    pub async fn decided(&self, place: &TestNamespace, policy: &str) -> Option<String> {
        let url = format!("http://{}/v1/decisions/{}/{policy}", self.address, place.namespace);
        let answer = reqwest::Client::new().get(url).bearer_auth(&place.token).timeout(Duration::from_secs(3)).send().await.ok()?;
        let record: Value = answer.error_for_status().ok()?.json().await.ok()?;
        Some(record["at"].to_string())
    }

    /// Pushes concurrent requests; none: the push was not accepted.
    pub async fn push(&self, place: &TestNamespace, policy: &str, concurrency: f64) -> Option<Standing> {
        let requests = Some(RequestReport { average_concurrency: concurrency, count: concurrency, ..Default::default() });
        let (namespace, policy) = (place.namespace.clone(), policy.to_owned());
        let push = Push { namespace, policy, reporter: "test".to_owned(), requests, values: BTreeMap::new() };
        let answer = self.statistics(&serde_json::to_value(push).unwrap(), Some(&place.token)).await?;
        answer.error_for_status().ok()?.json().await.ok()
    }

    /// Posts anything as statistics; none: no answer.
    pub async fn statistics(&self, push: &Value, token: Option<&str>) -> Option<reqwest::Response> {
        let request =
            reqwest::Client::new().post(format!("http://{}/v1/statistics", self.address)).json(push).timeout(Duration::from_secs(10));
        let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
        request.send().await.ok()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

/// Pushes this many concurrent requests every second to the first agent that accepts them, until dropped.
pub struct Pusher(pub tokio::sync::watch::Sender<f64>, tokio::task::JoinHandle<()>);

impl Pusher {
    pub fn start(place: &TestNamespace, policy: &'static str, addresses: Vec<String>, concurrency: f64) -> Self {
        let (sender, level) = tokio::sync::watch::channel(concurrency);
        let (namespace, token) = (place.namespace.clone(), place.token.clone());
        let task = tokio::spawn(async move {
            let http = reqwest::Client::builder().timeout(Duration::from_secs(10)).build().unwrap();
            let mut every = tokio::time::interval(Duration::from_secs(1));
            loop {
                every.tick().await;
                let requests =
                    json!({"averageConcurrency": *level.borrow(), "averageProxiedConcurrency": 0, "count": 1, "proxiedCount": 0});
                let push = json!({"namespace": namespace, "policy": policy, "reporter": "test", "requests": requests});
                for address in &addresses {
                    let sent = http.post(format!("http://{address}/v1/statistics")).bearer_auth(&token).json(&push).send().await;
                    if sent.is_ok_and(|answer| answer.status().is_success()) {
                        break;
                    }
                }
            }
        });
        Self(sender, task)
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        self.1.abort();
    }
}
