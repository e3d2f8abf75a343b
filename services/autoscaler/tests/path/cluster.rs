//! Keeper and activator with a real API server: an EndpointSlice says who is in the path, and a client that follows it is always served.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router};
use drover_autoscaler::path::Key;
use drover_autoscaler::path::keeper::Keeper;
use drover_autoscaler::path::slices::{self, PublicPath, PublicService, Through};
use drover_autoscaler::wire::{Push, Standing};
use drover_autoscaling::kpa::{KpaObservation, KpaSpec};
use drover_autoscaling::{Limits, Observation, Policy, Reading, ScalingState, decide};
use drover_tasks::Tasks;
use drover_testkit::{eventually, free_port, needs};
use http::StatusCode;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Child;
use tokio_util::task::AbortOnDropHandle;

use crate::support::{App, PATIENCE, Sidecar, client};

const POLICY: &str = "cart";

/// A namespace of the test's own, deleted at its end.
struct TestNamespace {
    client: Client,
    kubeconfig: std::ffi::OsString,
    name: String,
}

impl TestNamespace {
    async fn new() -> Option<Self> {
        let kubeconfig = needs("DROVER_CONTRACT_KUBECONFIG")?;
        let config = Kubeconfig::read_from(&kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        let name = format!("path-{}-{}", std::process::id(), fastrand::u32(..));
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        Some(Self { client, kubeconfig, name })
    }

    fn key(&self) -> Key {
        Key { namespace: self.name.clone(), policy: POLICY.to_owned() }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    async fn apply<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.api::<K>().patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await.unwrap();
    }

    async fn public_service(&self) {
        let labels = json!({"drover.io/path": "public", "drover.io/policy": POLICY, "drover.io/binding": "copy"});
        let spec = json!({"ports": [{"name": "web", "port": 80}]});
        self.apply::<Service>(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "cart", "labels": labels}, "spec": spec}))
            .await;
    }

    /// A slice as the cluster would write it; `ready` is the pod's state.
    async fn slice(&self, name: &str, labels: Value, address: IpAddr, ports: Value, ready: bool) {
        let endpoint = json!({"addresses": [address.to_string()], "conditions": {"ready": ready, "serving": ready, "terminating": false}});
        self.apply::<EndpointSlice>(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "labels": labels}, "ports": ports, "endpoints": [endpoint]}))
            .await;
    }

    async fn pod(&self, sidecar: &Sidecar, ready: bool) {
        let ports = json!([{"name": "queue", "port": sidecar.address.port()}, {"name": "queue-admin", "port": sidecar.admin.port()}]);
        let labels = json!({"drover.io/path": "pods", "drover.io/policy": POLICY, "kubernetes.io/service-name": "cart-pods"});
        self.slice("cart-pods-1", labels, sidecar.address.ip(), ports, ready).await;
    }

    async fn activator(&self, admin: SocketAddr) {
        let labels = json!({"drover.io/path": "activators", "kubernetes.io/service-name": "drover-activator"});
        let ports = json!([{"name": "queue-admin", "port": admin.port()}]);
        self.slice("drover-activator-1", labels, admin.ip(), ports, true).await;
    }

    /// The address to which kube-proxy would send a client now.
    async fn clients_go_to(&self) -> Option<SocketAddr> {
        let slice = self.api::<EndpointSlice>().get_opt("cart-drover").await.unwrap()?;
        let address = slice.endpoints.first()?.addresses.first()?.parse().unwrap();
        Some(SocketAddr::new(address, u16::try_from(slice.ports.as_ref()?.first()?.port?).unwrap()))
    }

    async fn gone(self) {
        Api::<Namespace>::all(self.client.clone()).delete(&self.name, &DeleteParams::default()).await.unwrap();
    }
}

/// An address of this machine other than loopback, which EndpointSlices may not contain. Nothing is sent.
fn own_address() -> IpAddr {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
    socket.connect(("192.0.2.200", 9)).expect("a route: EndpointSlices hold no loopback addresses, so this test needs another one");
    socket.local_addr().unwrap().ip()
}

/// Does what the agent does each period, with readings set by the test.
struct Agent {
    keeper: Arc<Keeper>,
    seen: Arc<Mutex<(i32, f64)>>,
    _task: AbortOnDropHandle<()>,
}

impl Agent {
    fn start(namespace: &TestNamespace) -> Self {
        let keeper = Keeper::new(namespace.client.clone(), Some(namespace.name.clone()), Tasks::default());
        let seen = Arc::new(Mutex::new((0, 0.0)));
        let (key, now) = (namespace.key(), seen.clone());
        let each = keeper.clone();
        let task = tokio::spawn(async move {
            // There must be room for a burst of two.
            let spec = KpaSpec { container_concurrency: 10.0, target_burst_capacity: 2.0, ..KpaSpec::default() };
            let limits = Limits { min_replicas: 0, max_replicas: 10, ..Limits::default() };
            let policy = Policy::Kpa(spec.clone());
            let began = tokio::time::Instant::now();
            let mut state = ScalingState::new(&policy, &limits, 0.0, 0);
            loop {
                let (ready, load) = *now.lock().unwrap();
                let at = began.elapsed().as_secs_f64();
                let read = Reading::Value(load);
                let seen = KpaObservation { at, replicas: ready, ready: Reading::Value(ready), stable: read.clone(), panic: read };
                let (record, next) = decide(&policy, &limits, state, &Observation::Kpa(seen));
                each.carry_out(&key, &spec, &limits, &record, true);
                state = next;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Self { keeper, seen, _task: AbortOnDropHandle::new(task) }
    }

    fn sees(&self, ready: i32, load: f64) {
        *self.seen.lock().unwrap() = (ready, load);
    }
}

/// The activator as a process, and its admin address.
async fn activator(namespace: &TestNamespace, decider: SocketAddr, address: IpAddr) -> (Child, SocketAddr) {
    let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_drover-autoscaler"))
        .args(["activator", "--address", &address.to_string(), "--bind", &address.to_string(), "--admin", &format!("{address}:0")])
        .args(["--decider", &format!("http://{decider}")])
        .arg("--kubeconfig")
        .arg(&namespace.kubeconfig)
        .env("NO_COLOR", "1")
        .env_remove("AUTOSCALER_LOG")
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
    let admin = tokio::time::timeout(PATIENCE, async {
        loop {
            let line = log.next_line().await.unwrap().expect("the activator ended");
            if let Some(admin) = line.split_whitespace().find_map(|word| word.strip_prefix("admin=")) {
                return admin.parse().unwrap();
            }
        }
    });
    let admin = admin.await.expect("the log has the address");
    tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
    (process, admin)
}

#[tokio::test]
async fn public_slice_switches_between_activator_and_pods() {
    let Some(namespace) = TestNamespace::new().await else { return };
    let address = own_address();
    let pushed = Arc::new(Mutex::new(Vec::<Push>::new()));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let decider = listener.local_addr().unwrap();
    let take = pushed.clone();
    let statistics = Router::new().route(
        "/v1/statistics",
        post(move |Json(push): Json<Push>| async move {
            take.lock().unwrap().push(push);
            Json(Standing::default())
        }),
    );
    let _decider = AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(listener, statistics).await.unwrap() }));

    // The slice exists already, with a port that is free on this machine: the agent keeps an app's port.
    namespace.public_service().await;
    let port = free_port();
    let service = PublicService { name: "cart".to_owned(), port_name: Some("web".to_owned()), ..PublicService::default() };
    let path = PublicPath { through: Through::Activator, activator_port: port, activators: vec![address], container_concurrency: 10 };
    let slice = slices::public_slice(&namespace.key(), &service, &path, &[]);
    namespace
        .api::<EndpointSlice>()
        .patch(&slice.name_any(), &PatchParams::apply(slices::MANAGER).force(), &Patch::Apply(&slice))
        .await
        .unwrap();
    let (mut process, admin) = activator(&namespace, decider, address).await;
    namespace.activator(admin).await;

    // There is no pod: clients are held, and the decider gets a report.
    let agent = Agent::start(&namespace);
    let held_at = SocketAddr::new(address, port);
    eventually(PATIENCE, async || {
        let status = client().get(format!("http://{admin}/apps/{}/{POLICY}", namespace.name)).send().await.ok()?.status();
        (status == StatusCode::OK && agent.keeper.through(&namespace.key()) == Some(Through::Activator)).then_some(())
    })
    .await;
    assert_eq!(namespace.clients_go_to().await, Some(held_at));
    let held = tokio::spawn(client().post(format!("http://{held_at}/held")).body("first").send());
    eventually(PATIENCE, async || {
        pushed.lock().unwrap().iter().any(|push| push.policy == POLICY && push.namespace == namespace.name).then_some(())
    })
    .await;

    // The pod gets requests as soon as it answers the probe, before Kubernetes calls it ready.
    let app = App::quick().await;
    let pod = Sidecar::at(address, app.address, &["--container-concurrency", "10"]).await;
    namespace.pod(&pod, false).await;
    let answer = held.await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(answer.headers()["seen"].to_str().unwrap().contains(&format!("for={address}, {address}")), "through the activator");

    // With room for a burst the activator leaves the path, without it comes back; clients that follow the slice are always served.
    namespace.pod(&pod, true).await;
    for (load, to) in [(1.0, pod.address), (9.5, held_at), (1.0, pod.address), (9.5, held_at)] {
        agent.sees(1, load);
        eventually(PATIENCE, async || {
            let now = namespace.clients_go_to().await.unwrap();
            let answer = client().get(format!("http://{now}/")).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            (now == to).then_some(())
        })
        .await;
    }

    // A dead activator is taken out of the path.
    process.kill().await.unwrap();
    eventually(PATIENCE, async || (namespace.clients_go_to().await == Some(pod.address)).then_some(())).await;
    assert_eq!(client().get(format!("http://{}/", pod.address)).send().await.unwrap().status(), StatusCode::OK);
    namespace.gone().await;
}

/// Kubernetes copies the labels of a Service to its slices; the activator's watch relies on that. The pods are simulated by kwok.
#[tokio::test]
async fn public_slice_lists_pods_found_by_service_labels() {
    let Some(namespace) = TestNamespace::new().await else { return };
    namespace.public_service().await;
    let labels = json!({"drover.io/path": "pods", "drover.io/policy": POLICY});
    let ports = json!([{"name": "queue", "port": 8012}, {"name": "queue-admin", "port": 8022}]);
    namespace
        .apply::<Service>(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "cart-pods", "labels": labels},
        "spec": {"clusterIP": "None", "selector": {"app": "cart"}, "ports": ports}}))
        .await;
    let template = json!({"metadata": {"labels": {"app": "cart"}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}});
    namespace
        .apply::<k8s_openapi::api::apps::v1::Deployment>(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "cart"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "cart"}}, "template": template}}),
        )
        .await;
    let agent = Agent::start(&namespace);
    agent.sees(3, 1.0);
    let endpoints = eventually(PATIENCE, async || {
        let slice = namespace.api::<EndpointSlice>().get_opt("cart-drover").await.unwrap()?;
        let ready = slice.endpoints.iter().filter(|endpoint| endpoint.conditions.as_ref().is_some_and(|it| it.ready == Some(true))).count();
        (ready == 3).then_some(slice)
    })
    .await;
    assert_eq!(slices::read_public(&endpoints).unwrap().through, Through::Pods);
    let port = &endpoints.ports.as_ref().unwrap()[0];
    assert_eq!((port.name.as_deref(), port.port), (Some("web"), Some(8012)), "the name is the public Service's, the number the sidecars'");
    assert_eq!(
        endpoints.labels()["drover.io/binding"],
        "copy",
        "Drover's data path finds the slices of a copy by the labels of its Service"
    );
    assert!(
        endpoints.owner_references().iter().any(|owner| owner.kind == "Service" && owner.name == "cart"),
        "it is deleted with its Service"
    );
    namespace.gone().await;
}
