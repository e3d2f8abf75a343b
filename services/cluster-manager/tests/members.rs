//! Cluster-manager over REST, with simulated members and its own database.
//! Every exchange is checked against the service's OpenAPI document.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod stack;

use drover_kubesim::Fault;
use drover_scheduling::MemberState;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use reqwest::Method;
use serde_json::{Value, json};
use stack::{Stack, named};
use uuid::Uuid;

#[test]
fn openapi_document_matches_golden_file() {
    drover_testkit::openapi::assert_golden("cluster-manager", &stack::document());
}

#[tokio::test]
async fn provider_documents_follow_emco() {
    let stack = Stack::start().await;
    let bare = json!({"metadata": {"name": "onprem", "description": "", "userData1": "", "userData2": ""}});
    assert_eq!(stack.post("/v2/cluster-providers", named("onprem")).await.is(201), bare);
    assert_eq!(stack.get("/v2/cluster-providers").await.is(200), json!([bare]));
    let with = json!({"metadata": {"name": "onprem"}, "spec": {"priority": 1}});
    assert_eq!(stack.put("/v2/cluster-providers/onprem", with).await.is(201)["spec"]["priority"], 1);
    assert_eq!(
        stack.put("/v2/cluster-providers/onprem", json!({"metadata": {"name": "onprem"}, "spec": {}})).await.is(201)["spec"]["priority"],
        10
    );
    for priority in [0, 11] {
        stack
            .put("/v2/cluster-providers/onprem", json!({"metadata": {"name": "onprem"}, "spec": {"priority": priority}}))
            .await
            .refused(400, "invalid");
    }
    stack.post("/v2/cluster-providers", named("onprem")).await.refused(409, "already_exists");
    let controller = json!({"metadata": {"name": "rsync"}, "spec": {"host": "localhost", "port": 9041}});
    stack.post("/v2/clm-controllers", controller.clone()).await.is(201);
    stack.put("/v2/clm-controllers/rsync", controller).await.is(200);
    stack.delete("/v2/cluster-providers/onprem").await.is(204);
    stack.get("/v2/cluster-providers/onprem").await.refused(404, "not_found");
}

#[tokio::test]
async fn cluster_label_and_kv_pair_documents_follow_emco() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    let clusters = "/v2/cluster-providers/p/clusters";
    let made = stack.register("p", "a").await;
    assert_eq!(made["spec"]["gitOps"], json!({"gitOpsType": "", "gitOpsReferenceObject": "", "gitOpsResourceObject": ""}));
    stack.register_json("p", "b").await;
    let secret = stack.sim.kubeconfig("a", &stack.sim_url);
    let shown = stack.get(&format!("{clusters}/a")).await;
    assert!(!shown.text().contains("sim-") && secret.contains("sim-"), "the kubeconfig's token is never returned");
    stack
        .call(Method::GET, &format!("{clusters}/a"), |request| request.header("accept", "application/octet-stream"))
        .await
        .refused(406, "not_acceptable");

    let label = json!({"clusterLabel": "gpu"});
    assert_eq!(stack.post(&format!("{clusters}/a/labels"), label.clone()).await.is(201), label);
    stack.post(&format!("{clusters}/a/labels"), label.clone()).await.refused(409, "already_exists");
    stack.post(&format!("{clusters}/x/labels"), label.clone()).await.refused(404, "parent_not_found");
    stack.get(&format!("{clusters}/%00/status")).await.refused(404, "not_found");
    stack.get("/v2/cluster-providers/%00/clusters?label=x").await.refused(404, "not_found");
    stack.post(&format!("{clusters}/a/labels"), json!({"clusterLabel": "a b"})).await.refused(400, "invalid");
    assert_eq!(stack.put(&format!("{clusters}/a/labels/gpu"), label.clone()).await.is(201), label);
    assert_eq!(stack.get(&format!("{clusters}/a/labels")).await.is(200), json!([label]));
    assert_eq!(stack.get(&format!("{clusters}?label=gpu")).await.is(200), json!(["a"]));
    let with = stack.get(&format!("{clusters}?withLabels=true")).await.is(200);
    assert_eq!((&with[0]["labels"], &with[1]["labels"], with[0].get("spec")), (&json!([label]), &json!([]), None));
    let plain = stack.get(clusters).await.is(200);
    assert_eq!(plain.as_array().unwrap().iter().map(|c| &c["metadata"]["name"]).collect::<Vec<_>>(), ["a", "b"]);

    let pairs = json!({"metadata": {"name": "kv"}, "spec": {"kv": [{"x": "1"}, {"y": "2"}]}});
    stack.post(&format!("{clusters}/a/kv-pairs"), pairs).await.is(201);
    assert_eq!(stack.get(&format!("{clusters}/a/kv-pairs/kv?key=y")).await.is(200), json!({"value": "2"}));
    stack.get(&format!("{clusters}/a/kv-pairs/kv?key=z")).await.refused(404, "not_found");
    assert_eq!(stack.get(&format!("{clusters}/a/kv-pairs/kv")).await.is(200)["spec"]["kv"][0]["x"], "1");

    stack.delete(&format!("{clusters}/a")).await.refused(409, "has_children");
    stack.delete(&format!("{clusters}/a/labels/gpu")).await.is(204);
    stack.delete(&format!("{clusters}/a/labels/gpu")).await.refused(404, "not_found");
    stack.delete(&format!("{clusters}/a")).await.refused(409, "has_children");
    stack.delete(&format!("{clusters}/a/kv-pairs/kv")).await.is(204);
    stack.delete(&format!("{clusters}/a")).await.is(204);
}

#[tokio::test]
async fn invalid_kubeconfig_is_refused_and_nothing_is_stored() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    let good = stack.sim.kubeconfig("a", &stack.sim_url);
    let exec = good.replace("    token:", "    exec: {apiVersion: v1, command: aws}\n    x:");
    let file = good.replace("    token: ", "    tokenFile: /etc/passwd #");
    stack.post("/v2/cluster-providers/p/clusters", named("a")).await.refused(422, "malformed_upload");
    for (text, code) in
        [("no: [", "kubeconfig_invalid"), ("a: 1", "kubeconfig_invalid"), (&exec, "kubeconfig_refused"), (&file, "kubeconfig_refused")]
    {
        let refused = stack.upload(Method::POST, "/v2/cluster-providers/p/clusters", "a", text).await.refused(422, code);
        assert!(!refused.to_string().contains("sim-"), "{refused}");
    }
    stack.upload(Method::POST, "/v2/cluster-providers/nobody/clusters", "a", &good).await.refused(404, "parent_not_found");
    assert_eq!(stack.get("/v2/cluster-providers/p/clusters").await.is(200), json!([]));
    assert_eq!(stack.count("credential").await, 0);
}

#[tokio::test]
async fn kubeconfig_is_sealed_and_returned_only_to_peers() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    stack.register("p", "a").await;
    let stored: Vec<u8> = sqlx::query_scalar("select sealed from drover_cluster_manager.credential").fetch_one(&stack.pool).await.unwrap();
    assert!(!String::from_utf8_lossy(&stored).contains("sim-"));
    stack.get("/internal/members/p+a/kubeconfig").await.refused(401, "unauthorized");
    let given = stack.peer().get::<Value>("/internal/members/p%2Ba/kubeconfig").await.unwrap();
    assert!(given["kubeconfig"].as_str().unwrap().contains("sim-"));
}

#[tokio::test]
async fn feeds_publish_members_and_their_capacity() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", json!({"metadata": {"name": "p"}, "spec": {"priority": 3}})).await.is(201);
    stack.register("p", "a").await;
    let member = stack.member("p+a", |member| member.state == MemberState::Ready).await;
    assert_eq!((member.priority, member.labels.len()), (3, 0));
    stack.post("/v2/cluster-providers/p/clusters/a/labels", json!({"clusterLabel": "gpu"})).await.is(201);
    stack.put("/v2/cluster-providers/p", json!({"metadata": {"name": "p"}, "spec": {"priority": 1}})).await.is(201);
    stack.member("p+a", |member| member.priority == 1 && member.labels == ["gpu"]).await;

    let capacity = stack.capacity("p+a", |capacity| !capacity.nodes.is_empty()).await;
    assert_eq!((capacity.nodes.len(), capacity.nodes[0].allocatable.cpu, capacity.nodes[0].foreign.cpu), (2, 4000, 0));

    let binding = Uuid::new_v4();
    let pods: Api<Pod> = Api::namespaced(stack.sim.client("a"), "default");
    let pod = |name: &str, labels: Value| {
        serde_json::from_value::<Pod>(json!({
        "metadata": {"name": name, "labels": labels, "annotations": {"kit/cpu": "40m", "kit/mem": "64Mi"}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "nginx:1", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
    })).unwrap()
    };
    pods.create(&PostParams::default(), &pod("foreign", json!({"app": "x"}))).await.unwrap();
    pods.create(&PostParams::default(), &pod("ours", json!({"drover.io/binding": binding}))).await.unwrap();
    let capacity = stack.capacity("p+a", |capacity| capacity.observed.get(&binding).is_some_and(|seen| seen.used.is_some())).await;
    assert_eq!((capacity.nodes[0].foreign.cpu, capacity.nodes[1].foreign.cpu), (500, 0));
    let seen = &capacity.observed[&binding];
    assert_eq!((seen.requests.get("node-1").unwrap().cpu, seen.used.as_ref().unwrap().cpu), (500, 40));
    assert!(capacity.metrics && capacity.nodes[0].used.is_some() && seen.age_s.is_some());
    stack.capacity("p+a", |capacity| capacity.images.get("docker.io/library/nginx:1") == Some(&100_000_000)).await;
    pods.delete("foreign", &DeleteParams::default().grace_period(0)).await.unwrap();
    stack.capacity("p+a", |capacity| capacity.nodes[0].foreign.cpu == 0).await;

    let status = stack.get("/v2/cluster-providers/p/clusters/a/status").await.is(200);
    assert_eq!((&status["state"], status["capacity"]["nodes"].as_array().unwrap().len()), (&json!("Ready"), 2));
    assert_eq!(stack.get("/v2/cluster-providers/p/clusters?view=state").await.is(200)[0]["state"]["state"], "Ready");
}

#[tokio::test]
async fn faulty_member_is_unreachable_and_others_stay_ready() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    for cluster in ["a", "b"] {
        stack.register("p", cluster).await;
        stack.member(&format!("p+{cluster}"), |member| member.state == MemberState::Ready).await;
    }
    for fault in [Fault::Partition { hang: false }, Fault::Partition { hang: true }, Fault::Status { code: 500, rate: 1.0 }] {
        stack.sim.fault("a", fault.clone());
        let gone = stack.member("p+a", |member| member.state == MemberState::Unreachable).await;
        assert!(gone.since.is_some() && gone.reason.is_some(), "{fault:?}: {gone:?}");
        assert_eq!(stack.member("p+b", |_| true).await.state, MemberState::Ready);
        stack.sim.clear_faults("a");
        stack.member("p+a", |member| member.state == MemberState::Ready).await;
    }
    for fault in [Fault::CutWatches, Fault::Gone410] {
        stack.sim.fault("a", fault);
        let nodes = stack.sim.client("a");
        let binding = Uuid::new_v4();
        let pod = serde_json::from_value(json!({"metadata": {"name": format!("p-{binding}"), "labels": {"drover.io/binding": binding}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]}}))
        .unwrap();
        Api::<Pod>::namespaced(nodes, "default").create(&PostParams::default(), &pod).await.unwrap();
        stack.capacity("p+a", |capacity| capacity.observed.contains_key(&binding)).await;
    }
}

#[tokio::test]
async fn new_kubeconfig_restores_access_after_token_rotation() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    stack.register("p", "a").await;
    let before = stack.member("p+a", |member| member.state == MemberState::Ready).await;
    stack.sim.rotate_token("a");
    stack.member("p+a", |member| member.state == MemberState::Unauthorized).await;
    let new = stack.sim.kubeconfig("a", &stack.sim_url);
    stack.upload(Method::PUT, "/v2/cluster-providers/p/clusters/a", "a", &new).await.is(200);
    let after = stack.member("p+a", |member| member.state == MemberState::Ready).await;
    assert!(after.credential_version > before.credential_version && after.id == before.id);
    // An edit without a file keeps the kubeconfig.
    stack.put("/v2/cluster-providers/p/clusters/a", named("a")).await.is(200);
    let kept = stack.peer().get::<Value>("/internal/members/p%2Ba/kubeconfig").await.unwrap();
    assert_eq!(kept["version"], after.credential_version);
}

#[tokio::test]
async fn unreachable_cluster_is_registered_with_its_reason() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    let nobody = stack.sim.kubeconfig("a", "http://127.0.0.1:1");
    stack.upload(Method::POST, "/v2/cluster-providers/p/clusters", "far", &nobody).await.is(201);
    let member = stack.member("p+far", |member| member.state == MemberState::Unreachable).await;
    assert!(member.reason.unwrap().contains("refused"));
}

#[tokio::test]
async fn cluster_with_claims_is_not_deleted() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    stack.register("p", "a").await;
    let path = "/v2/cluster-providers/p/clusters/a";
    stack.member("p+a", |member| member.state == MemberState::Ready).await;
    stack.placement.claim("p+a");
    let refused = stack.delete(path).await.refused(409, "claims_left");
    assert_eq!(refused["reasons"][0], "cart of demo shop");
    assert_eq!(stack.member("p+a", |_| true).await.state, MemberState::Ready, "the refused deletion leaves the member ready");
    stack.placement.fail(true);
    stack.delete(path).await.refused(503, "peer_unavailable");
    stack.placement.fail(false);
    stack.placement.clear();
    stack.delete(&format!("{path}?dryRun=All")).await.is(204);
    assert_eq!(stack.member("p+a", |_| true).await.state, MemberState::Ready, "a dry run leaves the member ready");
    stack.placement.watch_state(stack.peer());
    stack.delete(path).await.is(204);
    assert_eq!(stack.placement.state_seen().as_deref(), Some("Deregistering"), "published before placement was asked");
    stack.gone("p+a").await;
    // A cluster registered again under the same name is another member.
    stack.register("p", "a").await;
    stack.member("p+a", |member| member.state == MemberState::Ready).await;
}

#[tokio::test]
async fn restart_keeps_members_and_credentials() {
    let mut stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    stack.register("p", "a").await;
    let before = stack.member("p+a", |member| member.state == MemberState::Ready).await;
    stack.restart().await;
    let after = stack.member("p+a", |member| member.state == MemberState::Ready).await;
    assert_eq!((before.id, before.credential_version), (after.id, after.credential_version));
    stack.capacity("p+a", |capacity| capacity.nodes.len() == 2 && capacity.age_ms < 5_000).await;
    assert!(stack.get("/readyz").await.is(200)["ready"].as_bool().unwrap());
}
