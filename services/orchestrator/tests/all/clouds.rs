//! Logical clouds of level 1: what their clusters get, and how far that is, with members in memory.

use std::time::Duration;

use drover_testkit::eventually;
use serde_json::{Value, json};

use crate::fakes::{Behaviour, Fakes};
use crate::scenarios::members;
use crate::support::{Stack, WaitSeconds, deployment, doc};

const CLOUD: &str = "/v2/projects/p/logical-clouds/lc";

/// An orchestrator with a logical cloud of level 1 in the namespace `shop`, which has these clusters.
async fn stack(clusters: &[&str]) -> (Fakes, Stack) {
    let fakes = members();
    let stack = Stack::waiting(&fakes, WaitSeconds::PATIENT).await;
    stack.post("/v2/projects", doc("p", None), 201).await;
    let user = json!({"userName": "ann", "type": "certificate"});
    let spec = json!({"namespace": "shop", "level": "1", "labels": {"team": "shop"}, "user": user});
    stack.post("/v2/projects/p/logical-clouds", doc("lc", Some(spec)), 201).await;
    for cluster in clusters {
        reference(&stack, cluster).await;
    }
    (fakes, stack)
}

async fn reference(stack: &Stack, cluster: &str) {
    let spec = json!({"clusterProvider": "onprem", "cluster": cluster});
    stack.post(&format!("{CLOUD}/cluster-references"), doc(cluster, Some(spec)), 201).await;
}

async fn permit(stack: &Stack, name: &str, namespace: &str) {
    let spec = json!({"namespace": namespace, "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    stack.post(&format!("{CLOUD}/user-permissions"), doc(name, Some(spec)), 201).await;
}

async fn verb(stack: &Stack, verb: &str, status: u16) -> Value {
    let answer = stack.call("POST", &format!("{CLOUD}/{verb}"), None).await;
    assert_eq!(answer.status, status, "{verb}: {}", answer.body);
    answer.body
}

/// Waits until the cloud has this deployed status, and returns the whole status.
async fn deployed(stack: &Stack, word: &str) -> Value {
    eventually(Duration::from_secs(60), async || {
        let status = stack.get(&format!("{CLOUD}/status")).await;
        (status["deployedStatus"] == word).then_some(status)
    })
    .await
}

#[tokio::test]
async fn cloud_is_made_changed_and_removed_in_its_clusters() {
    let (fakes, stack) = stack(&["a"]).await;
    permit(&stack, "own", "shop").await;
    stack.post(&format!("{CLOUD}/cluster-quotas"), doc("quota", Some(json!({"pods": "10"}))), 201).await;
    verb(&stack, "instantiate", 202).await;
    let status = deployed(&stack, "Instantiated").await;
    assert_eq!((&status["readyStatus"], &status["clusters"][0]["cluster"]), (&json!("Ready"), &json!("a")), "{status:#}");
    verb(&stack, "instantiate", 409).await;
    assert_eq!(fakes.members.present(), ["logical-cloud@a"]);
    let kinds = |cluster: &str| {
        let objects = fakes.members.objects("logical-cloud", cluster);
        objects.iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kinds("a"), ["Namespace", "ResourceQuota", "Role", "RoleBinding"]);
    assert_eq!(fakes.ledger.users(), ["drover:p:lc:ann@onprem+a in shop"]);
    let kubeconfig = stack.call("GET", &format!("{CLOUD}/cluster-references/a/kubeconfig"), None).await;
    assert_eq!((kubeconfig.status, kubeconfig.headers["content-type"].to_str().unwrap()), (200, "application/yaml"), "{}", kubeconfig.body);
    assert_eq!(stack.get(&format!("{CLOUD}/status?clusters")).await["clustersByApp"][0]["clusters"][0]["cluster"], "a");
    assert_eq!(stack.get(&format!("{CLOUD}/status?output=summary")).await.get("clusters"), None);

    // A group can be deployed into it, but only on the clusters where it is there.
    let dig = stack.group("shop", &[("shop", &deployment("shop", "300m", 1))], &[]).await;
    reference(&stack, "b").await;
    assert_eq!(stack.call("GET", &format!("{CLOUD}/cluster-references/b/kubeconfig"), None).await.status, 409);
    assert_eq!(stack.call("POST", &format!("{dig}/approve"), None).await.status, 202);
    let early = stack.call("POST", &format!("{dig}/instantiate"), None).await;
    assert!(early.status == 409 && early.body["detail"].as_str().unwrap().contains("onprem+b"), "{}", early.body);
    assert_eq!(verb(&stack, "update", 202).await["metadata"]["name"], "lc");
    deployed(&stack, "Instantiated").await;
    assert_eq!(fakes.ledger.users().len(), 2);
    fakes.members.behave("shop", "a", Behaviour::Stuck);
    assert_eq!(stack.call("POST", &format!("{dig}/instantiate"), None).await.status, 202);
    eventually(Duration::from_secs(60), async || (fakes.members.present().len() == 3).then_some(())).await;
    let refused = verb(&stack, "terminate", 409).await;
    assert!(refused["detail"].as_str().unwrap().contains("is being changed"), "while the group is being deployed: {refused}");
    fakes.members.behave("shop", "a", Behaviour::Ready);
    eventually(Duration::from_secs(60), async || {
        (stack.get(&format!("{dig}/status")).await["deployedStatus"] == "Instantiated").then_some(())
    })
    .await;
    verb(&stack, "terminate", 409).await;
    assert_eq!(stack.call("DELETE", CLOUD, None).await.status, 409, "a group names it");
    let ended = stack.call("POST", &format!("{dig}/terminate?wait=60s"), None).await;
    assert_eq!((ended.status, &ended.body["state"]), (202, &json!("succeeded")), "{}", ended.body);
    assert_eq!(stack.call("DELETE", &dig, None).await.status, 204);

    assert_eq!(stack.call("DELETE", &format!("{CLOUD}/cluster-references/b"), None).await.status, 204);
    verb(&stack, "update", 202).await;
    eventually(Duration::from_secs(60), async || (fakes.members.present() == ["logical-cloud@a"]).then_some(())).await;
    verb(&stack, "terminate", 202).await;
    deployed(&stack, "Terminated").await;
    assert_eq!((fakes.members.present(), fakes.ledger.users()), (vec![], vec![]));
    verb(&stack, "terminate", 409).await;
}

#[tokio::test]
async fn cloud_that_asks_for_too_much_or_lacks_something_is_refused() {
    let (fakes, stack) = stack(&[]).await;
    for (name, namespace) in [("system", "kube-system"), ("default", "default")] {
        let spec = json!({"namespace": namespace, "level": "1"});
        stack.post("/v2/projects/p/logical-clouds", doc(name, Some(spec)), 400).await;
    }
    let spec = json!({"namespace": "x", "level": "1", "user": {"userName": "system:masters", "type": ""}});
    stack.post("/v2/projects/p/logical-clouds", doc("user", Some(spec)), 400).await;
    let admin = json!({"namespace": "", "level": "0"});
    stack.post("/v2/projects/p/logical-clouds", doc("admin", Some(admin)), 201).await;
    let quota = doc("q", Some(json!({"pods": "1"})));
    let refused = stack.post("/v2/projects/p/logical-clouds/admin/cluster-quotas", quota, 400).await;
    assert_eq!(refused["detail"], "Cluster Quotas not allowed for Logical Cloud Level 0");
    let none = stack.call("GET", "/v2/projects/p/logical-clouds/admin/cluster-references/x/kubeconfig", None).await;
    assert_eq!(none.status, 404, "{}", none.body);

    assert!(verb(&stack, "instantiate", 400).await["detail"].as_str().unwrap().contains("No Cluster References associated"));
    reference(&stack, "a").await;
    let refused = verb(&stack, "instantiate", 409).await;
    assert!(refused["detail"].as_str().unwrap().contains("require a User Permission assigned to its primary namespace"), "{refused}");
    permit(&stack, "own", "shop").await;
    permit(&stack, "other", "kube-system").await;
    let refused = verb(&stack, "instantiate", 403).await;
    assert!(refused["reasons"].to_string().contains("kube-system"), "{refused:#}");
    assert_eq!(stack.call("DELETE", &format!("{CLOUD}/user-permissions/other"), None).await.status, 204);
    assert_eq!(fakes.members.present(), Vec::<String>::new());

    // A group cannot be deployed into it before it is there.
    let dig = stack.group("shop", &[("shop", &deployment("shop", "300m", 1))], &[]).await;
    assert_eq!(stack.call("POST", &format!("{dig}/approve"), None).await.status, 202);
    let early = stack.call("POST", &format!("{dig}/instantiate"), None).await;
    assert!(early.status == 409 && early.body["detail"].as_str().unwrap().contains("is not instantiated"), "{}", early.body);
}

#[tokio::test]
async fn stop_undoes_an_instantiation_that_does_not_get_ready() {
    let (fakes, stack) = stack(&["a", "b"]).await;
    permit(&stack, "own", "shop").await;
    fakes.members.behave("logical-cloud", "b", Behaviour::Refused);
    verb(&stack, "stop", 409).await;
    verb(&stack, "instantiate", 202).await;
    let failed = deployed(&stack, "InstantiateFailed").await;
    assert_eq!(
        (&failed["readyStatus"], &failed["reasons"]),
        (&json!("NotReady"), &json!(["onprem+b: spec.replicas: Invalid value"])),
        "{failed:#}"
    );
    let spec = json!({"namespace": "other", "level": "1"});
    let refused = stack.call("PUT", CLOUD, Some(doc("lc", Some(spec)))).await;
    assert!(refused.status == 409 && refused.body["detail"].as_str().unwrap().contains("terminate first"), "{}", refused.body);
    verb(&stack, "stop", 200).await;
    deployed(&stack, "Terminated").await;
    assert_eq!((fakes.members.present(), fakes.ledger.users()), (vec![], vec![]));
    fakes.members.behave("logical-cloud", "b", Behaviour::Ready);
    verb(&stack, "instantiate", 202).await;
    deployed(&stack, "Instantiated").await;
    assert_eq!(fakes.members.present(), ["logical-cloud@a", "logical-cloud@b"]);
    let states = stack.get(&format!("{CLOUD}/status")).await["states"]["actions"].clone();
    let states: Vec<_> = states.as_array().unwrap().iter().map(|action| action["state"].as_str().unwrap().to_owned()).collect();
    assert_eq!(states, ["Instantiated", "InstantiateStopped", "Instantiated"]);
}
