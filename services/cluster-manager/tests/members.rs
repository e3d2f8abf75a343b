//! Cluster-manager over REST, with simulated members and its own database.
//! Every exchange is checked against the service's OpenAPI document.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod links;
mod stack;

use axum::extract::RawQuery;
use drover_agent::{AGENT, REPORT};
use drover_api::members::UserOrder;
use drover_kubesim::Fault;
use drover_scheduling::MemberState;
use drover_service::Answer;
use k8s_openapi::api::coordination::v1::Lease;
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
async fn capacity_says_what_agents_report_of_a_copy() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    stack.register("p", "a").await;
    let binding = Uuid::new_v4();
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "web", "labels": {"drover.io/binding": binding}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "nginx:1"}]}}))
    .unwrap();
    Api::<Pod>::namespaced(stack.sim.client("a"), "default").create(&PostParams::default(), &pod).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(stack.sim.client("a"), "kube-system");
    let report = async |name: &str, agent: &str, report: Value| {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {AGENT: agent}, "annotations": {REPORT: report.to_string()}},
            "spec": {"holderIdentity": name, "renewTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()}}))
        .unwrap();
        leases.create(&PostParams::default(), &lease).await.unwrap();
    };
    report("node-1", "memory-guard", json!({"version": "1", "capacity": 1000, "used": 910})).await;
    report("node-2", "memory-guard", json!({"version": "1", "capacity": 1000, "used": 990})).await;
    let unmet = json!([{"policy": "default/web", "pods": 2, "binding": binding}]);
    report("drover-autoscaler", "autoscaler", json!({"version": "1", "unmetPods": 2, "unmet": unmet})).await;

    let seen = stack.capacity("p+a", |capacity| capacity.observed.contains_key(&binding)).await.observed[&binding].clone();
    assert_eq!((seen.memory_pressure, seen.unmet_pods), (None, None), "nothing is read before an agent is ordered");
    let order = json!({"metadata": {"name": "autoscaler"}, "spec": {"version": "1", "on": [{}]}});
    stack.put("/v2/agents/autoscaler", order).await.is(201);
    let seen = stack.capacity("p+a", |capacity| capacity.observed[&binding].memory_pressure.is_some()).await.observed[&binding].clone();
    assert_eq!((seen.memory_pressure, seen.unmet_pods), (Some(91), Some(2)), "of its own node, not of the fullest one");
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
    assert!(member.reason.unwrap().contains("cannot be reached"));
}

#[tokio::test]
async fn reason_does_not_tell_what_is_at_the_address_of_a_kubeconfig() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    let page = axum::Router::new().fallback(|| async { (axum::http::StatusCode::NOT_FOUND, "banner of an internal service") });
    let page = drover_testkit::HttpServer::start(page).await;
    let json = r#"{"kind":"Status","status":"Failure","message":"banner of an internal service","code":500}"#;
    let refusing = axum::Router::new().fallback(move || async move { (axum::http::StatusCode::SERVICE_UNAVAILABLE, json) });
    let refusing = drover_testkit::HttpServer::start(refusing).await;
    let mut reasons = Vec::new();
    for (name, url) in [("nobody", "http://127.0.0.1:1".to_owned()), ("page", page.url("/any/path")), ("refusing", refusing.url(""))] {
        let kubeconfig = stack.sim.kubeconfig("a", url.trim_end_matches('/'));
        stack.upload(Method::POST, "/v2/cluster-providers/p/clusters", name, &kubeconfig).await.is(201);
        let member = stack.member(&format!("p+{name}"), |member| member.state == MemberState::Unreachable).await;
        reasons.push(member.reason.unwrap());
    }
    assert!(reasons.iter().all(|reason| *reason == reasons[0] && !reason.contains("banner")), "{reasons:#?}");
}

#[tokio::test]
async fn start_seals_kubeconfigs_again_with_the_newest_key() {
    let mut stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    stack.register("p", "a").await;
    let file = stack.config.seal.seal_key_file.clone();
    let old = std::fs::read_to_string(&file).unwrap();
    let newest = {
        let other = file.with_extension("other");
        drover_store::SealKey::from_file_or_create(&other).unwrap();
        std::fs::read_to_string(&other).unwrap()
    };
    std::fs::write(&file, format!("{newest}{old}")).unwrap();
    stack.restart().await;
    std::fs::write(&file, newest).unwrap();
    // From here on the old key is not known any more.
    stack.restart().await;
    stack.peer().get::<Value>("/internal/members/p%2Ba/kubeconfig").await.unwrap();
    stack.member("p+a", |member| member.state == MemberState::Ready).await;
}

#[tokio::test]
async fn kubeconfig_of_this_machine_is_refused_without_local_clusters() {
    let mut stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    stack.common.local_clusters = false;
    stack.restart().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    for server in [address.as_str(), "http://localhost:1", "https://169.254.169.254"] {
        let kubeconfig = stack.sim.kubeconfig("a", server);
        let answer = stack.upload(Method::POST, "/v2/cluster-providers/p/clusters", "near", &kubeconfig).await;
        let refused = answer.refused(422, "kubeconfig_refused");
        assert!(refused["detail"].as_str().unwrap().contains("--local-clusters"), "{refused}");
    }
    assert!(
        tokio::time::timeout(std::time::Duration::from_millis(1), listener.accept()).await.is_err(),
        "something connected to {address}"
    );
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
    let detail = "1 copy of an application still has room in p+a; terminate the applications or drain the cluster first";
    assert_eq!(refused["detail"], detail);
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
async fn cordon_is_published_kept_over_a_restart_and_taken_back() {
    let mut stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    stack.register("p", "a").await;
    let path = "/v2/cluster-providers/p/clusters/a/cordon";
    let first = stack.put(path, json!({"reason": "new racks"})).await.is(200);
    let again = stack.put(path, json!({})).await.is(200);
    assert_eq!(first, again, "an order without a reason keeps the stored one, and the time never changes");
    let closed = stack.member("p+a", |member| member.cordoned.is_some()).await;
    assert_eq!(json!(closed.cordoned), first);
    stack.restart().await;
    let ready = stack.member("p+a", |member| member.state == MemberState::Ready).await;
    assert_eq!(json!(ready.cordoned), first, "a closed cluster is watched as before");
    assert_eq!(stack.get("/v2/cluster-providers/p/clusters/a/status").await.is(200)["cordoned"], first);
    stack.put(path, json!({"reason": "x\ny"})).await.refused(400, "invalid");
    stack.put("/v2/cluster-providers/p/clusters/nobody/cordon", json!({})).await.refused(404, "not_found");
    stack.delete(path).await.is(204);
    stack.member("p+a", |member| member.cordoned.is_none()).await;
    stack.delete(path).await.is(204);
    stack.put(path, json!({"reason": "drained"})).await.is(200);
    stack.delete("/v2/cluster-providers/p/clusters/a").await.is(204);
}

#[tokio::test]
async fn kubeconfig_is_checked_without_being_stored() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    let check = async |kubeconfig: String| stack.post("/v2/cluster-checks", json!({"kubeconfig": kubeconfig})).await;
    let good = check(stack.sim.kubeconfig("a", &stack.sim_url)).await.is(200);
    assert!(good["state"] == "Ready" && good["uid"].is_string() && good["registeredAs"].is_null(), "{good}");
    let nobody = check(stack.sim.kubeconfig("a", "http://127.0.0.1:1")).await.is(200);
    assert!(nobody["state"] == "Unreachable" && nobody["reason"].as_str().unwrap().contains("cannot be reached"), "{nobody}");
    let old = stack.sim.kubeconfig("a", &stack.sim_url);
    stack.sim.rotate_token("a");
    assert_eq!(check(old).await.is(200)["state"], "Unauthorized");
    check("a: 1".to_owned()).await.refused(422, "kubeconfig_invalid");
    assert_eq!((stack.count("credential").await, stack.count("member_identity").await), (0, 0));

    stack.register("p", "a").await;
    stack.member("p+a", |member| member.state == MemberState::Ready).await;
    let again = check(stack.sim.kubeconfig("a", &stack.sim_url)).await.is(200);
    assert_eq!(again["registeredAs"], "p+a", "{again}");
    assert_eq!(stack.get("/v2/cluster-providers/p/clusters/a/status").await.is(200)["uid"], good["uid"]);
}

#[tokio::test]
async fn cluster_that_is_registered_twice_is_used_once() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    stack.register("p", "a").await;
    stack.member("p+a", |member| member.state == MemberState::Ready).await;
    // Another address of the same API server.
    let alias = stack.sim.kubeconfig("a", &stack.sim_url.replace("127.0.0.1", "localhost"));
    stack.upload(Method::POST, "/v2/cluster-providers/p/clusters", "alias", &alias).await.is(201);
    let second = stack.member("p+alias", |member| member.reason.as_deref().is_some_and(|reason| reason.contains("same"))).await;
    assert_eq!(second.state, MemberState::Unreachable);
    assert!(second.reason.unwrap().contains("p+a:"));
    assert_eq!(stack.member("p+a", |_| true).await.state, MemberState::Ready);
    stack.delete("/v2/cluster-providers/p/clusters/a").await.is(204);
    stack.member("p+alias", |member| member.state == MemberState::Ready).await;
}

#[tokio::test]
async fn abandoned_cluster_is_deleted_with_its_claims() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    stack.register("p", "a").await;
    stack.placement.claim("p+a");
    let path = "/v2/cluster-providers/p/clusters/a";
    stack.put(&format!("{path}/cordon"), json!({"reason": "burnt down"})).await.is(200);
    stack.delete(path).await.refused(409, "claims_left");
    stack.put(&format!("{path}/cordon"), json!({"abandoned": true})).await.is(200);
    stack.delete(path).await.is(204);
    stack.gone("p+a").await;
}

#[tokio::test]
async fn pods_events_and_logs_are_read_for_one_copy() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    let binding = Uuid::new_v4();
    // An API server that knows the pods of one copy, and answers a log with the query that it got.
    let labelled = format!("labelSelector=drover.io%2Fbinding%3D{binding}");
    let pods = move |RawQuery(query): RawQuery| async move {
        let pod = json!({"metadata": {"name": "web-0", "namespace": "shop", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "containerStatuses": [{"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}});
        let items = if query.as_deref() == Some(&labelled) { vec![pod] } else { vec![] };
        axum::Json(json!({"items": items}))
    };
    let events = || async {
        let event = |uid: &str, reason: &str| {
            json!({"type": "Warning", "reason": reason, "message": "m", "count": 2,
            "lastTimestamp": "2026-01-01T00:00:01Z", "involvedObject": {"kind": "Pod", "name": "web-0", "uid": uid}})
        };
        axum::Json(json!({"items": [event("u1", "BackOff"), event("u2", "OfOthers")]}))
    };
    let log = |RawQuery(query): RawQuery| async move { format!("one\ntwo\n{}\n", query.unwrap_or_default()) };
    let router = axum::Router::new()
        .route("/api/v1/pods", axum::routing::get(pods))
        .route("/api/v1/namespaces/shop/events", axum::routing::get(events))
        .route("/api/v1/namespaces/shop/pods/web-0/log", axum::routing::get(log));
    let server = drover_testkit::HttpServer::start(router).await;
    let simulated = stack.sim.kubeconfig("a", &stack.sim_url);
    let address = simulated.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
    let kubeconfig = simulated.replace(address, &server.url(""));
    stack.upload(Method::POST, "/v2/cluster-providers/p/clusters", "stub", &kubeconfig).await.is(201);

    let copy = format!("/v2/cluster-providers/p/clusters/stub/copies/{binding}");
    let pods = stack.get(&format!("{copy}/pods")).await.is(200);
    let pod = &pods["items"][0];
    assert_eq!((&pod["name"], &pod["state"], &pod["restarts"]), (&json!("web-0"), &json!("CrashLoopBackOff"), &json!(3)), "{pods}");
    let events = stack.get(&format!("{copy}/events")).await.is(200);
    assert_eq!((events["items"].as_array().unwrap().len(), &events["items"][0]["reason"]), (1, &json!("BackOff")), "{events}");
    let log = stack.get(&format!("{copy}/log?pod=web-0&container=c&tailLines=2&previous=true")).await;
    assert_eq!(log.text(), "one\ntwo\ncontainer=c&tailLines=2&previous=true\n");
    stack.get(&format!("{copy}/log?pod=web-0&container=c%26follow")).await.refused(400, "invalid");
    let other = format!("/v2/cluster-providers/p/clusters/stub/copies/{}", Uuid::new_v4());
    stack.get(&format!("{other}/log?pod=web-0")).await.refused(404, "not_found");
    stack.get(&format!("/v2/cluster-providers/p/clusters/nobody/copies/{binding}/pods")).await.refused(404, "not_found");
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

#[tokio::test]
async fn networks_of_clusters_are_kept_and_not_carried_out() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    stack.register("p", "a").await;
    let spec = json!({"cniType": "ovn4nfv", "ipv4Subnets": [{"subnet": "172.16.44.0/24", "name": "s", "gateway": "172.16.44.1/32"}]});
    for collection in ["networks", "provider-networks"] {
        let path = format!("/v2/cluster-providers/p/clusters/a/{collection}");
        let made = stack.post(&path, json!({"metadata": {"name": "n"}, "spec": spec})).await;
        assert_eq!(made.is(201)["spec"], spec);
        stack.delete(&format!("{path}/n")).await.is(204);
    }
    for verb in ["apply", "terminate", "stop"] {
        stack.post(&format!("/v2/cluster-providers/p/clusters/a/{verb}"), json!({})).await.refused(501, "not_yet");
    }
}

#[tokio::test]
async fn sync_objects_are_kept_without_their_values() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    let path = "/v2/cluster-providers/p/cluster-sync-objects";
    let secret = json!({"metadata": {"name": "git"}, "spec": {"kv": [{"userName": "bob"}, {"gitToken": "ghp_secret"}]}});
    let made = stack.post(path, secret.clone()).await.is(201);
    assert_eq!(made["spec"], json!({"kv": [{"userName": ""}, {"gitToken": ""}]}));
    assert_eq!(stack.put(&format!("{path}/git"), secret).await.is(201)["spec"], made["spec"]);
    assert!(!stack.get(path).await.text().contains("ghp_secret"));
    let stored: Vec<String> =
        sqlx::query_scalar("select spec::text from drover_cluster_manager.resource").fetch_all(&stack.pool).await.unwrap();
    assert!(stored.iter().all(|spec| !spec.contains("ghp_secret")), "{stored:?}");
    stack.delete(&format!("{path}/git")).await.is(204);
}

#[tokio::test]
async fn user_of_a_member_has_a_name_of_drovers() {
    let stack = Stack::start().await;
    stack.post("/v2/cluster-providers", named("p")).await.is(201);
    stack.register("p", "a").await;
    let peer: drover_service::clients::cluster_manager::Client = stack.peer().into();
    let id = Uuid::now_v7();
    let order = |name: &str| UserOrder { user_name: name.to_owned(), namespace: "shop".to_owned() };
    let refused = peer.member_user_put("p+a", &id, &order("system:kube-scheduler")).await.answer(&peer).unwrap_err();
    assert_eq!(refused.code(), Some("invalid"), "{refused}");
    // The simulator has no certificates API: there is no user, and no kubeconfig of one.
    assert!(peer.member_user_put("p+a", &id, &order("drover:p:lc:ann")).await.answer(&peer).is_err());
    assert!(peer.member_user_kubeconfig("p+a", &id).await.answer(&peer).unwrap_err().is_not_found());
    peer.member_user_delete("p+a", &id).await.answer(&peer).unwrap();
}
