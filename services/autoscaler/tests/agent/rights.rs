//! The roles of deploy/autoscaler have what the agent needs, and nothing else: every request of an agent passes a recorder that sends it on
//! with the agent's rights.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::follow::at_once;
use crate::support::{Agent, PATIENCE, Pusher, TestNamespace, client};
use crate::transfer::fake_prometheus;
use drover_testkit::eventually;

/// Verb, group and resource, as roles name them.
type Right = (String, String, String);

/// Rights that no test can make the agent use at will.
const RARELY: [(&str, &str, &str, &str); 2] = [
    ("get", "drover.io", "scalingpolicies", "only when the worker of a policy begins again after a panic"),
    ("create", "discovery.k8s.io", "endpointslices", "Kubernetes asks for it too when a server-side apply makes the slice"),
];

#[derive(Clone)]
struct Recorder {
    client: Client,
    used: Arc<Mutex<BTreeSet<Right>>>,
    refused: Arc<Mutex<BTreeSet<Right>>>,
}

async fn pass_on(State(recorder): State<Recorder>, request: Request) -> Response {
    let right = right(request.method(), request.uri().path(), request.uri().query().unwrap_or_default());
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let answer = recorder.client.send(Request::from_parts(parts, kube::client::Body::from(body.to_vec()))).await;
    let answer = match answer {
        Ok(answer) => answer.map(Body::new),
        Err(error) => return (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    };
    if let Some(right) = right {
        let set = if answer.status() == StatusCode::FORBIDDEN { &recorder.refused } else { &recorder.used };
        set.lock().unwrap().insert(right);
    }
    answer
}

/// The right that a request needs; none for what everybody may ask (discovery).
fn right(method: &Method, path: &str, query: &str) -> Option<Right> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, mut rest) = match parts[..] {
        ["api", "v1", ..] => ("", &parts[2..]),
        ["apis", group, _, ..] => (group, &parts[3..]),
        _ => return None,
    };
    if let ["namespaces", _, _, ..] = rest {
        rest = &rest[2..];
    }
    let resource = match rest {
        [] => return None,
        [resource, _, subresource] => format!("{resource}/{subresource}"),
        [resource, ..] => (*resource).to_owned(),
    };
    let verb = match (method.as_str(), rest.len()) {
        ("GET", 1) if query.contains("watch=") => "watch",
        ("GET", 1) => "list",
        ("GET", _) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", 1) => "deletecollection",
        _ => "delete",
    };
    Some((verb.to_owned(), group.to_owned(), resource))
}

/// The rules of the roles that the agent has.
fn rules() -> Vec<Value> {
    let files = [include_str!("../../../../deploy/autoscaler/rbac.yaml"), include_str!("../../../../deploy/autoscaler/activator.yaml")];
    let objects = files.iter().flat_map(|file| serde_yaml::Deserializer::from_str(file)).map(|one| Value::deserialize(one).unwrap());
    let roles = objects.filter(|object| {
        matches!(object["kind"].as_str(), Some("Role" | "ClusterRole")) && object["metadata"]["name"] != "drover-activator"
    });
    roles.flat_map(|role| role["rules"].as_array().unwrap().clone()).collect()
}

#[test]
fn right_is_that_of_the_request() {
    let of = |method: &str, path: &str| right(&method.parse().unwrap(), path, "watch=true&x=1");
    let wanted = |verb: &str, group: &str, resource: &str| Some((verb.to_owned(), group.to_owned(), resource.to_owned()));
    assert_eq!(of("GET", "/api/v1/namespaces/a/pods"), wanted("watch", "", "pods"));
    assert_eq!(of("GET", "/apis/apps/v1/namespaces/a/deployments/web/scale"), wanted("get", "apps", "deployments/scale"));
    assert_eq!(of("POST", "/apis/authentication.k8s.io/v1/tokenreviews"), wanted("create", "authentication.k8s.io", "tokenreviews"));
    assert_eq!(of("GET", "/apis/apps/v1"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_uses_every_right_of_its_roles_and_needs_no_other() {
    let Some(place) = TestNamespace::new("rights") else { return };
    let place = place.await;
    let least = place.least_rights().await;
    let recorder = Recorder { client: client(&least).await, used: Arc::default(), refused: Arc::default() };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let agent_rights = recorder.clone();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(pass_on).with_state(recorder)).await });
    let recorded = recorder_of(&place, address);
    let agent = Agent::start(&place, "agent", &recorded, &[]).await;

    // A threshold policy that scales twice, a KPA policy with its path, and a learner that saves its table.
    for name in ["web", "cart", "learns"] {
        place.workload(name, 1).await;
    }
    let (load, pushing) = place.load("web");
    load.send_replace(160);
    let cpu = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]);
    place.policy("web", "threshold", "apply", json!({"behavior": at_once(), "threshold": {"metrics": cpu}})).await;
    let source = json!({"prometheus": {"url": fake_prometheus().await, "queries": {"cpu": "0.5", "expired": "7"}}});
    place.policy("learns", "qlearning", "apply", json!({"source": source, "periodSeconds": 1})).await;
    let labels = |path: &str| json!({"drover.io/path": path, "drover.io/policy": "cart"});
    for (name, path, spec) in [
        ("cart", "public", json!({"ports": [{"name": "http", "port": 80}]})),
        (
            "cart-pods",
            "pods",
            json!({"clusterIP": "None", "selector": {"app": "cart"}, "ports": [{"name": "queue", "port": 8012}, {"name": "queue-admin", "port": 8022}]}),
        ),
    ] {
        let service: Service = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels(path)}, "spec": spec})).unwrap();
        place.api::<Service>().create(&PostParams::default(), &service).await.unwrap();
    }
    place.policy("cart", "kpa", "apply", json!({"kpa": {"stableWindow": 6}})).await;
    let pusher = Pusher::start(&place, "cart", vec![agent.address.clone()], 150.0);

    place.reaches("web", |replicas| replicas >= 3).await;
    load.send_replace(20);
    place.reaches("web", |replicas| replicas == 1).await;
    load.send_replace(160);
    place.reaches("web", |replicas| replicas >= 3).await;
    let slices = place.api::<EndpointSlice>();
    eventually(PATIENCE, async || {
        (slices.list(&ListParams::default().labels("drover.io/path=public")).await.ok()?.items.len() == 1).then_some(())
    })
    .await;
    let private = Patch::Merge(json!({"metadata": {"labels": {"drover.io/path": null}}}));
    place.api::<Service>().patch("cart", &PatchParams::default(), &private).await.unwrap();
    let maps = place.api::<ConfigMap>();
    let versions = async || drover_autoscaler::agent::tables::current(&maps.get_opt("learns-learned").await.ok()??);
    eventually(PATIENCE * 2, async || versions().await.filter(|version| *version >= 2)).await;

    let unused = || {
        let used = agent_rights.used.lock().unwrap().clone();
        let mut unused = Vec::new();
        for rule in rules() {
            let list = |field: &str| -> Vec<String> { serde_json::from_value(rule[field].clone()).unwrap() };
            for verb in list("verbs") {
                let is_used = list("apiGroups")
                    .iter()
                    .any(|group| list("resources").iter().any(|resource| used.contains(&(verb.clone(), group.clone(), resource.clone()))));
                let rarely = RARELY
                    .iter()
                    .any(|(rare, group, resource, _)| *rare == verb && list("apiGroups") == [*group] && list("resources") == [*resource]);
                if !is_used && !rarely {
                    unused.push(format!("{verb} {}", list("resources").join(",")));
                }
            }
        }
        unused
    };
    let mut left = Vec::new();
    let all_used = tokio::time::timeout(PATIENCE, async {
        loop {
            left = unused();
            if left.is_empty() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    });
    let all_used = all_used.await.is_ok();
    assert!(agent_rights.refused.lock().unwrap().is_empty(), "the roles lack {:?}", agent_rights.refused.lock().unwrap());
    assert!(all_used, "the roles have what the agent does not use: {left:?}");
    pushing.abort();
    drop((pusher, agent));
    place.done().await;
}

/// A kubeconfig that leads to the recorder.
fn recorder_of(place: &TestNamespace, address: std::net::SocketAddr) -> std::path::PathBuf {
    let path = place.files.path().join("recorded");
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    std::fs::write(&path, config.to_string()).unwrap();
    path
}
