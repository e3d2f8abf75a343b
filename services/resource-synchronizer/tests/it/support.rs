//! A resource-synchronizer with its own database, simulated members, and a cluster-manager that answers what the test sets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_api::bindings::{BindingStatus, Bundle, DesiredBinding, DesiredBindings, DesiredState, Phase};
use drover_api::members::{Member, MemberCredential, SecretKubeconfig};
use drover_api::traffic::RouteTable;
use drover_kubesim::{ClusterSpec, Sim};
use drover_members::Clients;
use drover_resource_synchronizer::assemble;
use drover_scheduling::{DigRef, MemberKey, MemberLink, MemberState};
use drover_service::{Common, FeedHub, Peers};
use drover_store::SealKey;
use drover_store::failpoint::Failpoints;
use drover_testkit::{HttpServer, TestDb, eventually, openapi, seal_key, test_db};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use reqwest::StatusCode;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;
use url::Url;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

pub const PATIENCE: Duration = Duration::from_secs(180);
const TOKEN: &str = "peer-token-of-the-tests";
pub const MEMBER: &str = "onprem+a";

/// A running service and everything around it.
pub struct Stack {
    pub sim: Sim,
    pub db: TestDb,
    pub members: FeedHub<Member>,
    /// The feed of orchestrator.
    pub routes: FeedHub<RouteTable>,
    pub failpoints: Failpoints,
    real: Option<kube::Client>,
    credential: Arc<Mutex<Option<MemberCredential>>>,
    simulated_at: Mutex<String>,
    /// The labels of members that are published from now on.
    pub labels: Mutex<Vec<String>>,
    /// Whether members that are published from now on are linked.
    pub linked: AtomicBool,
    cluster_manager: HttpServer,
    clients: Arc<Clients>,
    served: Option<(HttpServer, DropGuard)>,
}

impl Stack {
    /// With one member, [`MEMBER`], of three nodes.
    pub async fn start() -> Self {
        let mut stack = Self::not_started().await;
        stack.add_member(MEMBER);
        stack.restart().await;
        stack
    }

    pub async fn without_members() -> Self {
        let mut stack = Self::not_started().await;
        stack.restart().await;
        stack
    }

    async fn not_started() -> Self {
        let (members, tables) = (FeedHub::new(), FeedHub::new());
        let routes: OpenApiRouter = OpenApiRouter::new()
            .routes(members.route("/internal/feeds/members", "members"))
            .routes(tables.route("/internal/feeds/routes", "routes"));
        let credential: Arc<Mutex<Option<MemberCredential>>> = Arc::default();
        let given = credential.clone();
        let kubeconfig = axum::routing::get(async move || axum::Json(given.lock().unwrap().clone()));
        let router = routes.split_for_parts().0.route("/internal/members/{key}/kubeconfig", kubeconfig);
        let cluster_manager = HttpServer::start(router).await;
        let (sim, db, clients) = (Sim::new(), test_db().await, Arc::new(Clients::new(drover_members::Reach::Anywhere)));
        Self {
            sim,
            db,
            members,
            routes: tables,
            failpoints: Failpoints::default(),
            real: None,
            credential,
            simulated_at: Mutex::default(),
            labels: Mutex::default(),
            linked: AtomicBool::default(),
            cluster_manager,
            clients,
            served: None,
        }
    }

    pub fn add_member(&self, key: &str) {
        self.sim.add_cluster(key, ClusterSpec::with_nodes(3, "4", "16Gi"));
        self.clients.inject(MemberKey(key.into()), self.sim.client(key));
        self.tell(key, MemberState::Ready);
    }

    /// Adds a real member; [`Stack::client`] is its client from now on.
    pub fn add_real_member(&mut self, key: &str, client: kube::Client) {
        self.clients.inject(MemberKey(key.into()), client.clone());
        self.real = Some(client);
        self.tell(key, MemberState::Ready);
    }

    /// A client of [`MEMBER`].
    pub fn client(&self) -> kube::Client {
        self.real.clone().unwrap_or_else(|| self.sim.client(MEMBER))
    }

    /// Adds a member that is reached over TCP with the kubeconfig from cluster-manager.
    pub async fn add_remote_member(&self, key: &str) {
        self.sim.add_cluster(key, ClusterSpec::with_nodes(1, "4", "16Gi"));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        self.sim.serve(listener);
        *self.simulated_at.lock().unwrap() = base;
        self.give_kubeconfig(key, 1);
    }

    /// Lets cluster-manager return the kubeconfig that is valid now, as this version.
    pub fn give_kubeconfig(&self, key: &str, version: i64) {
        let kubeconfig = self.sim.kubeconfig(key, &self.simulated_at.lock().unwrap());
        *self.credential.lock().unwrap() = Some(MemberCredential { version, kubeconfig: SecretKubeconfig::new(kubeconfig), linked: false });
        self.tell_version(key, MemberState::Ready, version);
    }

    /// Lets cluster-manager return a kubeconfig for a member whose client is given.
    pub fn know(&self, key: &str) {
        self.know_by(self.sim.kubeconfig(key, "http://127.0.0.1:1"));
    }

    /// Lets cluster-manager return this kubeconfig for every member.
    pub fn know_by(&self, kubeconfig: String) {
        *self.credential.lock().unwrap() =
            Some(MemberCredential { version: 1, kubeconfig: SecretKubeconfig::new(kubeconfig), linked: false });
    }

    /// Publishes a member on the feed of cluster-manager.
    pub fn tell(&self, key: &str, state: MemberState) {
        self.tell_version(key, state, 1);
    }

    fn tell_version(&self, key: &str, state: MemberState, credential_version: i64) {
        let id = Uuid::new_v5(&Uuid::NAMESPACE_URL, key.as_bytes());
        let key = MemberKey(key.into());
        let member = Member {
            id,
            key: key.clone(),
            priority: 1,
            labels: self.labels.lock().unwrap().clone(),
            state,
            since: None,
            reason: None,
            cordoned: None,
            link: self.linked.load(Ordering::Relaxed).then(MemberLink::default),
            credential_version,
        };
        self.members.publish(key.0, Some(member));
    }

    /// Like SIGKILL and a new start: nothing is finished, the memory is lost.
    pub async fn restart(&mut self) {
        self.kill();
        let cluster_manager: Url = self.cluster_manager.url("/").parse().unwrap();
        let peers = Peers { orchestrator: cluster_manager.clone(), cluster_manager, ..Peers::default() };
        let common = Common::new(self.db.url.expose_secret(), TOKEN, peers).scoped("resource-synchronizer");
        let router = assemble(&common, SealKey::parse(&seal_key()).unwrap(), self.clients.clone(), self.failpoints.clone()).await.unwrap();
        let router = openapi::validated(router, serde_json::to_value(drover_resource_synchronizer::openapi()).unwrap());
        self.served = Some((HttpServer::start(router).await, common.shutdown.clone().drop_guard()));
    }

    pub fn kill(&mut self) {
        self.served = None;
    }

    pub async fn send(&self, method: reqwest::Method, path: &str, body: &impl serde::Serialize) -> (StatusCode, Value) {
        let (server, _) = self.served.as_ref().expect("the service runs");
        let request = reqwest::Client::new().request(method, server.url(path)).bearer_auth(TOKEN);
        let body = serde_json::to_value(body).unwrap();
        let request = if body.is_null() { request } else { request.json(&body) };
        let response = request.send().await.unwrap();
        let status = response.status();
        let bytes = response.bytes().await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned())))
    }

    pub async fn bundle(&self, digest: &str, objects: Vec<Value>) {
        let bundle = Some(Bundle { digest: digest.into(), objects });
        let (status, body) = self.put(&DesiredBindings { bundle, ..DesiredBindings::default() }).await;
        assert_eq!(status, StatusCode::OK, "{body}");
    }

    pub async fn desire(&self, desired: &DesiredBinding) {
        let (status, body) = self.put(&DesiredBindings::from_iter([desired.clone()])).await;
        assert_eq!(status, StatusCode::OK, "{body}");
    }

    pub async fn put(&self, desired: &DesiredBindings) -> (StatusCode, Value) {
        self.send(reqwest::Method::PUT, "/internal/bindings", desired).await
    }

    pub async fn status(&self, id: Uuid) -> Option<BindingStatus> {
        let (status, body) = self.send(reqwest::Method::GET, &format!("/internal/bindings/{id}"), &()).await;
        assert!(status == StatusCode::OK || status == StatusCode::NOT_FOUND, "{status}: {body}");
        (status == StatusCode::OK).then(|| serde_json::from_value(body).unwrap())
    }

    /// Waits until this desired row has the phase.
    pub async fn reaches(&self, desired: &DesiredBinding, phase: Phase) -> BindingStatus {
        let mut last = None;
        let reached = eventually(PATIENCE * 2, async || {
            last = self.status(desired.id).await;
            last.clone().filter(|status| status.phase == phase && status.digest == desired.digest && status.fence == desired.fence)
        });
        match tokio::time::timeout(PATIENCE, reached).await {
            Ok(status) => status,
            Err(_) => panic!("{phase:?} was not reached: {:#?}", self.status(desired.id).await),
        }
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client(), "default")
    }

    /// Names of the objects with a binding's label in the member.
    pub async fn names(&self) -> Vec<String> {
        let labelled = ListParams::default().labels("drover.io/binding");
        let mut names: Vec<String> = Vec::new();
        let name = |metadata: kube::core::ObjectMeta| metadata.name.unwrap_or_default();
        names.extend(
            self.api::<ConfigMap>().list(&labelled).await.unwrap().items.into_iter().map(|o| format!("ConfigMap/{}", name(o.metadata))),
        );
        names.extend(self.api::<Secret>().list(&labelled).await.unwrap().items.into_iter().map(|o| format!("Secret/{}", name(o.metadata))));
        names.extend(
            self.api::<Service>().list(&labelled).await.unwrap().items.into_iter().map(|o| format!("Service/{}", name(o.metadata))),
        );
        names.extend(
            self.api::<k8s_openapi::api::apps::v1::Deployment>()
                .list(&labelled)
                .await
                .unwrap()
                .items
                .into_iter()
                .map(|o| format!("Deployment/{}", name(o.metadata))),
        );
        names.extend(self.api::<Pod>().list(&labelled).await.unwrap().items.iter().map(|_| "Pod".to_owned()));
        names
    }

    pub async fn merge<K>(&self, name: &str, patch: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn sql(&self) -> sqlx::PgConnection {
        <sqlx::PgConnection as sqlx::Connection>::connect(self.db.url.expose_secret()).await.unwrap()
    }

    /// Kinds that were applied in [`MEMBER`], according to the table.
    pub async fn kinds(&self) -> Vec<String> {
        let query = "select kind from drover_resource_synchronizer.member_kind where member = $1 order by kind";
        sqlx::query_scalar(query).bind(MEMBER).fetch_all(&mut self.sql().await).await.unwrap()
    }

    /// Adds a kind to that table.
    pub async fn also_kind(&self, api_version: &str, kind: &str) {
        let query = "insert into drover_resource_synchronizer.member_kind values ($1, $2, $3)";
        sqlx::query(query).bind(MEMBER).bind(api_version).bind(kind).execute(&mut self.sql().await).await.unwrap();
    }

    /// How many writes took effect in the member.
    pub fn writes(&self) -> usize {
        self.sim.effects(MEMBER).len()
    }
}

pub fn dig(name: &str) -> DigRef {
    let id = Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes());
    DigRef { id, project: "default".into(), composite_app: name.into(), version: "v1".into(), name: name.into() }
}

/// A binding of app `web` on [`MEMBER`].
pub fn binding(dig_name: &str, digest: &str) -> DesiredBinding {
    DesiredBinding {
        id: Uuid::new_v4(),
        dig: dig(dig_name).into(),
        app: "web".into(),
        member: MemberKey(MEMBER.into()),
        namespace: "default".into(),
        digest: digest.into(),
        state: DesiredState::Present,
        fence: 1,
        grants: None,
        act_as: None,
        share: None,
        rollback: false,
        delete_volumes: false,
        names: false,
    }
}

pub fn absent(desired: &DesiredBinding) -> DesiredBinding {
    DesiredBinding { state: DesiredState::Absent, fence: desired.fence + 1, ..desired.clone() }
}

pub fn config(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

pub fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}})
}

/// A DaemonSet for the nodes with the label `kubernetes.io/hostname={node}`.
pub fn daemon_set(name: &str, node: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [{"name": "c", "image": "example.com/agent:1"}]}}}})
}

pub fn deployment(name: &str, replicas: u32, cpu: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "example.com/web:1", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]}}}})
}

/// A definition of a kind without a schema, for kubesim.
pub fn loose(group: &str, version: &str, kind: &str) -> Value {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": version, "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")}, "versions": [version]}})
}

/// Makes kinds known to a member.
pub async fn define(client: kube::Client, definitions: Vec<Value>) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition"));
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap();
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&definition)).await.unwrap();
        let is_true = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
        eventually(PATIENCE, async || {
            let found = api.get(name).await.ok()?;
            found.data["status"]["conditions"].as_array()?.iter().any(is_true).then_some(())
        })
        .await;
    }
}
