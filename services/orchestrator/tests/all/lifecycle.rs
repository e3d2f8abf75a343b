//! EMCO's lifecycle over REST: terminate and stop during an instantiation and after a failed one, revisions, rollback, migrate, and updates
//! with another placement intent.

use std::time::Duration;

use base64::Engine as _;
use drover_testkit::eventually;
use serde_json::{Value, json};

use crate::base::member;
use crate::fakes::Behaviour;
use crate::scenarios::{approved, expect_state, run, stack};
use crate::support::{Stack, deployment, doc};

const LIMIT: Duration = Duration::from_secs(60);

async fn states(stack: &Stack, dig: &str) -> Vec<String> {
    let status = stack.get(&format!("{dig}/status")).await;
    status["states"]["actions"].as_array().unwrap().iter().map(|action| action["state"].as_str().unwrap().to_owned()).collect()
}

async fn refused(stack: &Stack, path: &str) -> Value {
    let answer = stack.call("POST", path, None).await;
    assert_eq!((answer.status, answer.body["code"].as_str()), (409, Some("wrong_state")), "{path}: {}", answer.body);
    answer.body["detail"].clone()
}

/// `shop` is being instantiated and does not become ready.
async fn stuck() -> (crate::fakes::Fakes, Stack, String, String) {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a"], None).await;
    fakes.members.behave("shop", "a", Behaviour::Stuck);
    let answer = stack.call("POST", &format!("{dig}/instantiate"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    eventually(LIMIT, async || (fakes.members.present() == ["shop@a"]).then_some(())).await;
    (fakes, stack, dig, operation)
}

#[tokio::test]
async fn terminate_during_instantiate_undoes_it() {
    let (fakes, stack, dig, operation) = stuck().await;
    let status = stack.get(&format!("{dig}/status")).await;
    assert_eq!(status["deployedStatus"], "Instantiating");
    assert_eq!(states(&stack, &dig).await, ["Created", "Approved", "Instantiated"], "as soon as it is accepted, as in EMCO");
    // Documents of controllers are read at the next approval or update, so they can be written meanwhile; others are in use.
    stack.post(&format!("{dig}/traffic-group-intents"), doc("t", None), 201).await;
    stack.post(&format!("{dig}/network-controller-intent"), doc("n", None), 201).await;
    stack.post(&format!("{dig}/generic-placement-intents"), doc("late", None), 409).await;
    let answer = stack.call("POST", &format!("{dig}/terminate"), None).await;
    assert_eq!((answer.status, answer.headers["location"].to_str().unwrap()), (202, operation.as_str()), "{}", answer.body);
    expect_state(&stack.ended(&operation).await, "cancelled");
    assert!(fakes.ledger.all().is_empty() && fakes.members.present().is_empty());
    assert_eq!(states(&stack, &dig).await, ["Created", "Approved", "Terminated"]);
    assert_eq!(stack.get(&format!("{dig}/status")).await["deployedStatus"], "Terminated");
    refused(&stack, &format!("{dig}/terminate")).await;
    fakes.members.behave("shop", "a", Behaviour::Ready);
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
}

#[tokio::test]
async fn stop_during_instantiate_undoes_it_and_terminate_follows() {
    let (fakes, stack, dig, operation) = stuck().await;
    assert_eq!(stack.call("POST", &format!("{dig}/stop"), None).await.status, 202);
    expect_state(&stack.ended(&operation).await, "cancelled");
    assert!(fakes.ledger.all().is_empty() && fakes.members.present().is_empty());
    assert_eq!(states(&stack, &dig).await, ["Created", "Approved", "InstantiateStopped"]);
    let why = refused(&stack, &format!("{dig}/stop")).await;
    assert!(why.as_str().unwrap().contains("InstantiateStopped"), "{why}");
    expect_state(&run(&stack, &format!("{dig}/terminate")).await, "succeeded");
    assert_eq!(states(&stack, &dig).await, ["Created", "Approved", "InstantiateStopped", "Terminated"]);
}

#[tokio::test]
async fn terminate_and_stop_accept_a_failed_instantiation() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a"], None).await;
    refused(&stack, &format!("{dig}/terminate")).await;
    fakes.members.behave("shop", "a", Behaviour::Refused);
    for verb in ["terminate", "stop"] {
        expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "failed");
        let shown = if verb == "stop" { "Terminated" } else { "InstantiateFailed" };
        assert_eq!(stack.get(&format!("{dig}/status")).await["deployedStatus"], shown);
        let answer = stack.call("POST", &format!("{dig}/{verb}"), None).await;
        assert_eq!(answer.status, 202, "{verb}: {}", answer.body);
        let operation = stack.ended(answer.headers["location"].to_str().unwrap()).await;
        expect_state(&operation, if verb == "stop" { "failed" } else { "succeeded" });
        refused(&stack, &format!("{dig}/{verb}")).await;
    }
    assert!(fakes.ledger.all().is_empty() && fakes.members.present().is_empty());
}

async fn change(stack: &Stack, cpu: &str) {
    let mut body = doc("shop", None);
    body["file"] = base64::engine::general_purpose::STANDARD.encode(deployment("shop", cpu, 1)).into();
    assert_eq!(stack.call("PUT", "/v2/projects/p/composite-apps/shop/v1/apps/shop", Some(body)).await.status, 201);
}

#[tokio::test]
async fn rollback_returns_to_any_revision_and_history_tells_what_and_why() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "300m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    let first = fakes.members.digest("shop", "a").unwrap();
    change(&stack, "400m").await;
    expect_state(&run(&stack, &format!("{dig}/update")).await, "succeeded");
    // A revision that was never reached is not one to go back to.
    change(&stack, "5").await;
    expect_state(&run(&stack, &format!("{dig}/update")).await, "failed");

    let rollback = |revision: Value| json!({"metadata": {"description": "400m is too much"}, "spec": {"revision": revision}});
    let unknown = stack.call("POST", &format!("{dig}/rollback"), Some(rollback(json!("3")))).await;
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    assert!(unknown.body["detail"].as_str().unwrap().contains("it has 1, 2"), "{}", unknown.body);
    let dry = stack.call("POST", &format!("{dig}/rollback?dryRun=All"), Some(rollback(json!("1")))).await;
    let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/cpu", "value": "300m"}]);
    assert_eq!((dry.status, &dry.body["objects"][0]["patch"]), (200, &patch), "{}", dry.body);
    let answer = stack.call("POST", &format!("{dig}/rollback"), Some(rollback(json!("1")))).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    expect_state(&stack.ended(answer.headers["location"].to_str().unwrap()).await, "succeeded");
    assert_eq!(fakes.members.digest("shop", "a").unwrap(), first);
    assert_eq!(fakes.ledger.all()[0].request.demand.groups[0].requests.cpu, 300, "its claim too");

    let history = stack.get(&format!("{dig}/revisions")).await;
    let history: Vec<_> = history["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| json!([item["revision"], item["kind"], item["current"], item["rollbackTo"], item["description"]]))
        .collect();
    assert_eq!(
        history,
        [
            json!([1, "instantiate", false, null, ""]),
            json!([2, "update", false, null, ""]),
            json!([4, "rollback", true, 1, "400m is too much"])
        ]
    );
    let diff = stack.get(&format!("{dig}/revisions/diff?from=1&to=4")).await;
    assert_eq!(diff, json!({"from": 1, "to": 4, "objects": [], "placement": []}));
    // The documents are as before: an update applies them again.
    change(&stack, "350m").await;
    expect_state(&run(&stack, &format!("{dig}/update")).await, "succeeded");
    assert_eq!(fakes.ledger.all()[0].request.demand.groups[0].requests.cpu, 350);
}

#[tokio::test]
async fn update_follows_a_changed_intent_and_starts_the_new_copy_first() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    let intent = async |elements: Value| {
        let body = doc("shop", Some(json!({"app": "shop", "intent": elements})));
        let path = format!("{dig}/generic-placement-intents/gpi/app-intents/shop");
        assert_eq!(stack.call("PUT", &path, Some(body)).await.status, 200);
    };
    let on = |cluster: &str| json!({"clusterProvider": member(cluster).provider(), "cluster": cluster});
    intent(json!({"anyOf": [on("b"), on("c")]})).await;
    let dry = stack.call("POST", &format!("{dig}/update?dryRun=All"), None).await.body;
    assert_eq!((&dry["added"], &dry["removed"][0]["member"]), (&json!(["shop"]), &json!("onprem+a")), "{dry:#}");
    expect_state(&run(&stack, &format!("{dig}/update")).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["shop@b held"]);
    assert_eq!(
        fakes.members.history(),
        ["present shop@a", "present shop@b", "absent shop@a"],
        "the new copy is ready before the old one goes"
    );
    // One cluster more, then one less.
    intent(json!({"allOf": [on("b"), on("c")]})).await;
    expect_state(&run(&stack, &format!("{dig}/update")).await, "succeeded");
    assert_eq!(fakes.members.present(), ["shop@b", "shop@c"]);
    intent(json!({"allOf": [on("c")]})).await;
    expect_state(&run(&stack, &format!("{dig}/update")).await, "succeeded");
    assert_eq!((fakes.members.present(), fakes.ledger.summary()), (vec!["shop@c".to_owned()], vec!["shop@c held".to_owned()]));
    // A copy that does not become ready changes nothing.
    intent(json!({"allOf": [on("a")]})).await;
    fakes.members.behave("shop", "a", Behaviour::Refused);
    expect_state(&run(&stack, &format!("{dig}/update")).await, "failed");
    assert_eq!((fakes.members.present(), fakes.ledger.summary()), (vec!["shop@c".to_owned()], vec!["shop@c held".to_owned()]));
}

#[tokio::test]
async fn update_follows_a_changed_intent_that_names_clusters_by_label() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "300m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    let intent = format!("{dig}/generic-placement-intents/gpi/app-intents/shop");
    let by_label = json!({"anyOf": [{"clusterProvider": "onprem", "clusterLabel": "edge"}]});
    let put = stack.call("PUT", &intent, Some(doc("shop", Some(json!({"app": "shop", "intent": by_label}))))).await;
    assert_eq!(put.status, 200, "{}", put.body);
    fakes.ledger.set_label(&member("b"), "edge");
    expect_state(&run(&stack, &format!("{dig}/update")).await, "succeeded");
    assert_eq!(fakes.members.present(), ["shop@b"]);
    // The cluster where it runs has the label, too: it stays.
    fakes.ledger.set_label(&member("a"), "edge");
    expect_state(&run(&stack, &format!("{dig}/update")).await, "succeeded");
    assert_eq!(fakes.members.present(), ["shop@b"]);
}

#[tokio::test]
async fn migrate_terminates_the_source_only_when_the_target_runs() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "300m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    let groups = "/v2/projects/p/composite-apps/shop/v1/deployment-intent-groups";
    let spec = json!({"compositeProfile": "cp", "version": "r2", "logicalCloud": "lc"});
    stack.post(groups, doc("next", Some(spec)), 201).await;
    let next = format!("{groups}/next");
    let body = json!({"metadata": {"description": ""}, "spec": {"targetCompositeAppVersion": "v1", "targetDeploymentIntentGroup": "next"}});
    let migrate = async || stack.call("POST", &format!("{dig}/migrate"), Some(body.clone())).await;
    assert_eq!(migrate().await.status, 409, "the target is not approved");
    stack.post(&format!("{next}/generic-placement-intents"), doc("gpi", None), 201).await;
    let intent = json!({"app": "shop", "intent": {"anyOf": [{"clusterProvider": "onprem", "cluster": "b"}]}});
    stack.post(&format!("{next}/generic-placement-intents/gpi/app-intents"), doc("shop", Some(intent)), 201).await;
    assert_eq!(stack.call("POST", &format!("{next}/approve"), None).await.status, 202);

    fakes.members.behave("shop", "b", Behaviour::Refused);
    let failed = migrate().await;
    expect_state(&stack.ended(failed.headers["location"].to_str().unwrap()).await, "failed");
    assert_eq!(fakes.members.present(), ["shop@a"], "the source stays");
    fakes.members.behave("shop", "b", Behaviour::Ready);
    let operation = eventually(LIMIT, async || {
        let answer = migrate().await;
        (answer.status == 202).then(|| answer.headers["location"].to_str().unwrap().to_owned())
    });
    expect_state(&stack.ended(&operation.await).await, "succeeded");
    eventually(LIMIT, async || (states(&stack, &dig).await.last().unwrap() == "Terminated").then_some(())).await;
    eventually(LIMIT, async || (fakes.ledger.summary() == ["shop@b held"] && fakes.members.present() == ["shop@b"]).then_some(())).await;
}

#[tokio::test]
async fn status_events_tell_each_change() {
    let (fakes, stack, dig, _) = stuck().await;
    let mut events = reqwest::get(stack.url(&format!("{dig}/status/events?output=summary"))).await.unwrap();
    let mut text = String::new();
    let mut until = async |word: &str| {
        while !text.contains(word) {
            let chunk = tokio::time::timeout(LIMIT, events.chunk()).await.unwrap_or_else(|_| panic!("no {word} in {text}"));
            text.push_str(&String::from_utf8_lossy(&chunk.unwrap().expect("the stream goes on")));
        }
    };
    until("\"deployedStatus\":\"Instantiating\"").await;
    fakes.members.behave("shop", "a", Behaviour::Ready);
    until("\"deployedStatus\":\"Instantiated\"").await;
}
