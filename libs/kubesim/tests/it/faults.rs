//! Faults, the journal and the recorder, which the tests of Drover rely on.

use std::time::Duration;

use drover_kubesim::{ClusterSpec, Fault, NodeSpec, Operation, Sim};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, wait::await_condition, watcher};
use serde_json::json;

fn sim() -> Sim {
    let sim = Sim::new();
    sim.add_cluster("a", ClusterSpec::with_nodes(2, "4", "8Gi"));
    sim
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn deployment(replicas: u32, annotations: serde_json::Value) -> Deployment {
    serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}, "annotations": annotations},
            "spec": {"containers": [{"name": "main", "image": "x:1", "resources": {"requests": {"cpu": "100m"}}}]}}}}))
    .unwrap()
}

async fn ready(api: &Api<Deployment>, replicas: i32) {
    let done = await_condition(api.clone(), "web", move |d: Option<&Deployment>| {
        d.is_some_and(|d| {
            let status = d.status.clone().unwrap_or_default();
            status.observed_generation == d.metadata.generation
                && status.updated_replicas == Some(replicas)
                && status.replicas == Some(replicas)
                && status.ready_replicas == Some(replicas)
        })
    });
    tokio::time::timeout(Duration::from_secs(60), done).await.expect("it gets ready").unwrap();
}

fn code(error: &kube::Error) -> u16 {
    if let kube::Error::Api(status) = error { status.code } else { 0 }
}

#[tokio::test(start_paused = true)]
async fn latency_delays_every_answer() {
    let sim = sim();
    let api: Api<ConfigMap> = Api::default_namespaced(sim.client("a"));
    let took = async || {
        let began = tokio::time::Instant::now();
        api.list(&ListParams::default()).await.unwrap();
        began.elapsed()
    };
    let (min, max) = (Duration::from_secs(2), Duration::from_secs(3));
    sim.fault("a", Fault::Latency { min, max });
    for _ in 0..20 {
        let took = took().await;
        assert!(took >= min && took <= max + Duration::from_millis(100), "{took:?}");
    }
    sim.clear_faults("a");
    assert!(took().await < min);
}

#[tokio::test(start_paused = true)]
async fn clock_skew_shifts_timestamps_of_later_writes() {
    let sim = sim();
    let api: Api<ConfigMap> = Api::default_namespaced(sim.client("a"));
    let written = async |name: &str| {
        let made = api.create(&PostParams::default(), &config_map(name)).await.unwrap();
        made.metadata.creation_timestamp.unwrap().0
    };
    let hours = |early: jiff::Timestamp, late: jiff::Timestamp| late.duration_since(early).as_secs_f64() / 3600.0;
    let right = written("right").await;
    sim.fault("a", Fault::ClockSkew(jiff::SignedDuration::from_hours(3)));
    assert!((hours(right, written("ahead").await) - 3.0).abs() < 0.1);
    sim.fault("a", Fault::ClockSkew(jiff::SignedDuration::from_hours(-3)));
    assert!((hours(right, written("behind").await) + 3.0).abs() < 0.1);
    sim.clear_faults("a");
    assert!(hours(right, written("again").await).abs() < 0.1);
}

#[tokio::test(start_paused = true)]
async fn partition_refuses_or_hangs_until_it_is_cleared() {
    let sim = sim();
    let api: Api<ConfigMap> = Api::default_namespaced(sim.client("a"));
    let mut watch = api.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    sim.fault("a", Fault::Partition { hang: false });
    assert!(api.list(&ListParams::default()).await.is_err_and(|e| code(&e) == 0), "a refused connection is no answer");
    assert!(watch.next().await.is_none_or(|event| event.is_err()), "the watch breaks");
    sim.fault("a", Fault::Partition { hang: true });
    let hanging = tokio::spawn({
        let api = api.clone();
        async move { api.list(&ListParams::default()).await }
    });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!hanging.is_finished(), "an hour later it still hangs");
    sim.clear_faults("a");
    hanging.await.unwrap().unwrap();
}

#[tokio::test]
async fn status_faults_answer_with_their_code_and_write_nothing() {
    let sim = sim();
    let api: Api<ConfigMap> = Api::default_namespaced(sim.client("a"));
    sim.fault("a", Fault::WriteStatus { code: 503, rate: 1.0 });
    assert!(api.create(&PostParams::default(), &config_map("a")).await.is_err_and(|e| code(&e) == 503));
    api.list(&ListParams::default()).await.unwrap();
    sim.fault("a", Fault::Status { code: 429, rate: 1.0 });
    assert!(api.list(&ListParams::default()).await.is_err_and(|e| code(&e) == 429));
    sim.clear_faults("a");
    sim.fault("a", Fault::Unauthorized);
    assert!(api.list(&ListParams::default()).await.is_err_and(|e| code(&e) == 401));
    sim.clear_faults("a");
    assert_eq!(sim.created("a", "configmaps", "default", "a"), 0);
}

#[tokio::test]
async fn write_with_a_lost_answer_takes_effect_once() {
    let sim = sim();
    let api: Api<ConfigMap> = Api::default_namespaced(sim.client("a"));
    sim.fault("a", Fault::LostAnswers { rate: 1.0 });
    let params = PatchParams::apply("drover");
    assert!(api.patch("a", &params, &Patch::Apply(config_map("a"))).await.is_err());
    sim.clear_faults("a");
    api.patch("a", &params, &Patch::Apply(config_map("a"))).await.unwrap();
    assert_eq!(sim.created("a", "configmaps", "default", "a"), 1);
    let effects = sim.effects("a");
    let writes: Vec<Operation> =
        effects.iter().filter(|e| &*e.key.name == "a" && &*e.key.resource == "configmaps").map(|e| e.operation).collect();
    assert_eq!(writes, [Operation::Create], "the repetition changed nothing");
}

#[tokio::test]
async fn watcher_recovers_from_cuts_and_compaction() {
    let sim = sim();
    let api: Api<ConfigMap> = Api::default_namespaced(sim.client("a"));
    let mut seen = watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    for (at, fault) in [Fault::CutWatches, Fault::Gone410, Fault::CutWatches].into_iter().enumerate() {
        let name = format!("m{at}");
        api.create(&PostParams::default(), &config_map(&name)).await.unwrap();
        let found = async {
            while let Some(object) = seen.next().await {
                if object.is_ok_and(|o| o.metadata.name.as_deref() == Some(name.as_str())) {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), found).await.expect("the watcher comes back");
        sim.fault("a", fault);
    }
    let old = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    sim.fault("a", Fault::Gone410);
    let mut watch = api.watch(&WatchParams::default(), &old).await.unwrap().boxed();
    assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Error(status))) if status.code == 410));
}

#[tokio::test(start_paused = true)]
async fn packed_objects_are_listed_as_they_were_written() {
    let sim = sim();
    let api: Api<Deployment> = Api::default_namespaced(sim.client("a"));
    api.create(&PostParams::default(), &deployment(3, json!({"kit/start-delay": "0s", "kit/cpu": "20m"}))).await.unwrap();
    ready(&api, 3).await;
    let get = async |path: &str| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let mut list: serde_json::Value = sim.client("a").request(request).await.unwrap();
        list["metadata"] = json!(null);
        for item in list["items"].as_array_mut().unwrap() {
            item.as_object_mut().unwrap().remove("timestamp");
            item["metadata"]["creationTimestamp"] = json!(null);
        }
        list
    };
    let paths = [
        ("/api/v1/pods?labelSelector=app%3Dweb", 3),
        ("/api/v1/pods?labelSelector=app%3Dother", 0),
        ("/api/v1/pods?fieldSelector=status.phase%3DRunning", 3),
        ("/apis/apps/v1/deployments", 1),
        ("/api/v1/configmaps", 1),
        ("/apis/metrics.k8s.io/v1beta1/pods?labelSelector=app%3Dweb", 3),
        ("/apis/metrics.k8s.io/v1beta1/nodes", 2),
    ];
    let maps: Api<ConfigMap> = Api::default_namespaced(sim.client("a"));
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"key": "value"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let mut before = Vec::new();
    for (path, count) in paths {
        let list = get(path).await;
        let own = |item: &&serde_json::Value| item["metadata"]["name"] != "kube-root-ca.crt";
        assert_eq!(list["items"].as_array().unwrap().iter().filter(own).count(), count, "{path}: {list}");
        before.push(list);
    }
    // The log is forgotten, and with it what is kept as it was written.
    sim.fault("a", Fault::Gone410);
    for ((path, _), before) in paths.iter().zip(before) {
        assert_eq!(get(path).await, before, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn rollout_follows_virtual_time_and_is_recorded() {
    let sim = sim();
    let api: Api<Deployment> = Api::default_namespaced(sim.client("a"));
    let slow = json!({"kit/start-delay": "10m"});
    api.create(&PostParams::default(), &deployment(3, slow)).await.unwrap();
    let recorder = sim.record_ready(None, "app=web").unwrap();
    tokio::time::sleep(Duration::from_secs(599)).await;
    assert_eq!(recorder.now(), 0, "not before its time");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(recorder.now(), 3);
    recorder.arm();
    let change = json!({"spec": {"template": {"metadata": {"annotations": {"kit/start-delay": "1s"}}}}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((recorder.now(), recorder.min()), (3, 3), "25 % of three pods is none");
    assert_eq!(recorder.max(), 4, "and one more at most");
}

#[tokio::test(start_paused = true)]
async fn pods_stay_unready_or_flap_by_annotation() {
    let sim = sim();
    let api: Api<Deployment> = Api::default_namespaced(sim.client("a"));
    api.create(&PostParams::default(), &deployment(1, json!({"kit/never-ready": "true"}))).await.unwrap();
    let recorder = sim.record_ready(Some("default"), "app=web").unwrap();
    tokio::time::sleep(Duration::from_secs(700)).await;
    let now = api.get("web").await.unwrap().status.unwrap();
    assert_eq!((recorder.max(), now.unavailable_replicas), (0, Some(1)));
    let conditions = now.conditions.unwrap();
    assert!(conditions.iter().any(|c| c.reason.as_deref() == Some("ProgressDeadlineExceeded")), "{conditions:?}");
    api.replace("web", &PostParams::default(), &deployment(1, json!({"kit/flap": "5s"}))).await.unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        seen.insert(recorder.now());
    }
    assert!(seen.contains(&0) && seen.contains(&1), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_are_evicted_from_a_lost_node_after_five_minutes() {
    let sim = sim();
    let (client, recorder) = (sim.client("a"), sim.record_ready(None, "app=web").unwrap());
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &deployment(2, json!({}))).await.unwrap();
    ready(&api, 2).await;
    sim.node_down("a", "node-1");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let node = Api::<Node>::all(client.clone()).get("node-1").await.unwrap();
    let taints = node.spec.unwrap().taints.unwrap_or_default();
    assert!(taints.iter().any(|t| t.key == "node.kubernetes.io/unreachable"), "{taints:?}");
    assert_eq!(recorder.now(), 1, "the pods of a lost node are not ready");
    tokio::time::sleep(Duration::from_secs(320)).await;
    assert_eq!(recorder.now(), 2, "after five minutes they run elsewhere");
    let pods: Api<Pod> = Api::default_namespaced(client);
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 3, "the evicted one cannot be confirmed gone");
    sim.node_up("a", "node-1");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 2, "it is gone when its node is back");
}

#[tokio::test]
async fn tcp_clients_need_the_current_token() {
    let sim = sim();
    sim.add_cluster("b", ClusterSpec { nodes: vec![NodeSpec::new("only", "1", "1Gi")], ..ClusterSpec::default() });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    sim.serve(listener);
    let client = async |text: String| {
        let config = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        kube::Client::try_from(kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap()).unwrap()
    };
    let before = sim.kubeconfig("b", &url);
    let nodes: Api<Node> = Api::all(client(before.clone()).await);
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items[0].metadata.name.as_deref(), Some("only"));
    let mut watch = nodes.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Added(_)))));
    sim.fault("b", Fault::Partition { hang: false });
    assert!(nodes.list(&ListParams::default()).await.is_err_and(|e| code(&e) == 0), "the connection breaks");
    sim.clear_faults("b");
    sim.rotate_token("b");
    assert!(nodes.list(&ListParams::default()).await.is_err_and(|e| code(&e) == 401), "the old token is refused");
    let nodes: Api<Node> = Api::all(client(sim.kubeconfig("b", &url)).await);
    nodes.list(&ListParams::default()).await.unwrap();
    let wrong = client(before.replace("/clusters/b", "/clusters/nobody")).await;
    assert!(Api::<Node>::all(wrong).list(&ListParams::default()).await.is_err_and(|e| code(&e) == 404));
}
