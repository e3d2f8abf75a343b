//! What users read during and after operations: operations, status, apps.

use std::time::Duration;

use drover_testkit::eventually;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::fakes::Behaviour;
use crate::scenarios::{approved, expect_state, full, plan, run, stack};
use crate::support::Stack;

fn ids(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

async fn app(stack: &Stack, name: &str) -> Value {
    let apps = stack.get("/v2/apps?project=p").await;
    apps["items"].as_array().unwrap().iter().find(|item| item["app"] == name).unwrap_or_else(|| panic!("no {name} in {apps:#}")).clone()
}

/// The data of each event until the stream ends.
async fn events(response: reqwest::Response) -> Vec<Value> {
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = tokio::time::timeout(Duration::from_secs(120), response.text()).await.expect("the stream ends").unwrap();
    text.lines().filter_map(|line| line.strip_prefix("data: ")).map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn status_and_operations_follow_a_group_through_its_life() {
    let (_, stack) = stack().await;
    let dig = stack.group("shop", &[("shop", &crate::support::deployment("shop", "500m", 1))], &[("onprem", "a")]).await;
    let before = stack.get(&format!("{dig}/status")).await;
    assert_eq!((&before["states"]["actions"][0]["state"], &before["states"]["statusctxid"]), (&json!("Created"), &json!("")));
    assert!(before.get("deployedStatus").is_none() && before.get("apps").is_none(), "{before:#}");
    assert_eq!(stack.get("/v2/apps").await, json!({"items": []}), "nothing is approved");

    assert_eq!(stack.call("POST", &format!("{dig}/approve"), None).await.status, 202);
    let waiting = app(&stack, "shop").await;
    assert_eq!((&waiting["state"], &waiting["bindings"]), (&json!("Approved"), &json!([])));

    let operation = run(&stack, &format!("{dig}/instantiate")).await;
    let status = stack.get(&format!("{dig}/status?output=detail")).await;
    assert_eq!((&status["deployedStatus"], &status["readyStatus"]), (&json!("Instantiated"), &json!("Ready")), "{status:#}");
    assert_eq!((&status["deployedCounts"], &status["readyCounts"]), (&json!({"Applied": 1}), &json!({"Ready": 1})));
    assert_eq!(status["states"]["statusctxid"], operation["id"]);
    assert_eq!(status["states"]["actions"].as_array().unwrap().last().unwrap()["revision"], 1);
    let cluster = &status["apps"][0]["clusters"][0];
    assert_eq!(
        (&cluster["clusterProvider"], &cluster["cluster"], &cluster["connectivity"]),
        (&json!("onprem"), &json!("a"), &json!("Available"))
    );
    assert_eq!(cluster["resources"][0]["GVK"], json!({"Group": "apps", "Version": "v1", "Kind": "Deployment"}));
    let served = app(&stack, "shop").await;
    assert_eq!(
        (&served["state"], &served["bindings"][0]["member"], &served["bindings"][0]["phase"]),
        (&json!("Instantiated"), &json!("onprem+a"), &json!("Ready"))
    );
    assert_eq!((&served["compositeApp"], &served["version"], &served["dig"]), (&json!("shop"), &json!("v1"), &json!("shop")));
    assert_eq!(stack.get("/v2/apps?project=other").await, json!({"items": []}));

    assert_eq!(stack.get(&format!("{dig}/status?apps")).await["apps"], json!(["shop"]));
    assert_eq!(
        stack.get(&format!("{dig}/status?app=shop&cluster=onprem%2Ba&clusters")).await["clustersByApp"][0]["clusters"][0]["cluster"],
        "a"
    );
    for absent in ["app=nobody", "cluster=onprem%2Bz", "resource=nothing"] {
        let answer = stack.call("GET", &format!("{dig}/status?{absent}"), None).await;
        assert_eq!((answer.status, answer.body["code"].as_str()), (404, Some("not_found")), "{absent}: {}", answer.body);
    }
    assert_eq!(stack.call("GET", &format!("{dig}/status?output=everything"), None).await.status, 400);
    assert_eq!(stack.call("GET", &format!("{dig}x/status"), None).await.status, 404);

    expect_state(&run(&stack, &format!("{dig}/terminate")).await, "succeeded");
    let after = stack.get(&format!("{dig}/status")).await;
    assert_eq!((&after["deployedStatus"], &after["readyStatus"]), (&json!("Terminated"), &json!("NotReady")), "{after:#}");
    let states: Vec<_> = after["states"]["actions"].as_array().unwrap().iter().map(|action| action["state"].clone()).collect();
    assert_eq!(states, ["Created", "Approved", "Instantiated", "Terminated"]);
}

#[tokio::test]
async fn status_tells_failed_instantiation_from_none() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a"], None).await;
    assert!(stack.get(&format!("{dig}/status")).await.get("deployedStatus").is_none());
    fakes.members.behave("shop", "a", Behaviour::Refused);
    let failed = run(&stack, &format!("{dig}/instantiate")).await;
    expect_state(&failed, "failed");
    assert!(failed["message"].as_str().unwrap().ends_with("(undone)"), "{failed:#}");
    let undone: Vec<_> =
        failed["steps"].as_array().unwrap().iter().filter(|step| step["direction"] == "undo").map(|step| step["name"].clone()).collect();
    assert_eq!(undone.last().unwrap(), "decide", "{failed:#}");
    let status = stack.get(&format!("{dig}/status")).await;
    assert_eq!((&status["deployedStatus"], &status["readyStatus"]), (&json!("InstantiateFailed"), &json!("NotReady")), "{status:#}");
}

#[tokio::test]
async fn waiting_for_room_is_shown_in_status_apps_and_events() {
    let (fakes, stack, victim, newcomer) = full().await;
    fakes.members.behave("victim", "b", Behaviour::Stuck);
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &["c"], "newcomer"));
    let answer = stack.call("POST", &format!("{newcomer}/instantiate"), None).await;
    let id = answer.body["id"].as_str().unwrap().to_owned();
    let watched = reqwest::get(stack.url(&format!("/v2/operations/{id}/events"))).await.unwrap();
    eventually(Duration::from_secs(60), async || fakes.members.present().contains(&"victim@b".to_owned()).then_some(())).await;

    let shown = eventually(Duration::from_secs(60), async || {
        let shown = stack.get(&format!("/v2/operations/{id}")).await;
        (shown["moves"][0]["stage"] == "starting").then_some(shown)
    })
    .await;
    assert_eq!((&shown["moves"][0]["app"], &shown["moves"][0]["to"]), (&json!("victim/victim"), &json!("onprem+b")), "moves of the child");
    assert!(shown["plan"].is_string() && shown["steps"].as_array().unwrap().iter().all(|step| step["startedAt"].is_string()));
    let child = shown["children"][0].as_str().unwrap();
    assert_eq!(stack.get(&format!("/v2/operations/{child}")).await["parent"], json!(id));

    let status = stack.get(&format!("{newcomer}/status")).await;
    assert_eq!((&status["deployedStatus"], &status["operation"]), (&json!("WaitingForRoom"), &json!(id)), "{status:#}");
    let waiting = app(&stack, "newcomer").await;
    assert_eq!((&waiting["state"], &waiting["operation"]), (&json!("WaitingForRoom"), &json!(id)));
    let moving = app(&stack, "victim").await;
    assert_eq!((&moving["state"], &moving["operation"]), (&json!("Relocating"), &json!(child)));
    let copies: Vec<_> =
        moving["bindings"].as_array().unwrap().iter().map(|copy| (copy["member"].clone(), copy["phase"].clone())).collect();
    assert_eq!(copies, [(json!("onprem+a"), json!("Ready")), (json!("onprem+b"), json!("Applied"))]);
    assert_eq!(stack.get(&format!("{victim}/status")).await["readyStatus"], "Ready", "the old copy serves");

    assert_eq!(ids(&stack.get("/v2/operations?kind=relocate&state=running").await), [child]);
    let all = stack.get("/v2/operations").await;
    assert_eq!(ids(&all).len(), 3);
    assert_eq!(stack.call("GET", "/v2/operations?limit=0", None).await.status, 400);
    let first = stack.get("/v2/operations?limit=1").await;
    let rest = stack.get(&format!("/v2/operations?after={}", ids(&first)[0])).await;
    assert_eq!([ids(&first), ids(&rest)].concat(), ids(&all), "pages are the whole, newest first");
    assert_eq!(ids(&stack.get("/v2/operations?dig=p/victim/v1/victim").await).len(), 1);

    assert_eq!(stack.call("POST", &format!("/v2/operations/{id}/cancel"), None).await.status, 202);
    expect_state(&stack.ended(&format!("/v2/operations/{id}")).await, "cancelled");
    let late = stack.call("POST", &format!("/v2/operations/{id}/cancel"), None).await;
    assert_eq!((late.status, late.body["code"].as_str()), (409, Some("wrong_state")), "{}", late.body);

    let told = events(watched).await;
    assert_eq!(told.last().unwrap()["state"], "cancelled");
    assert!(told.iter().any(|event| event["moves"][0]["stage"] == "starting"), "what a child does is told too: {told:#?}");
}

#[tokio::test]
async fn event_streams_end_with_the_service_and_unknown_ids_are_404() {
    let (fakes, stack, _, newcomer) = full().await;
    let nobody = Uuid::now_v7();
    for (method, path) in [("GET", ""), ("POST", "/cancel"), ("GET", "/events"), ("GET", "?wait=1s")] {
        let answer = stack.call(method, &format!("/v2/operations/{nobody}{path}"), None).await;
        assert_eq!((answer.status, answer.body["code"].as_str()), (404, Some("not_found")), "{path}");
    }
    for query in ["state=fine", "limit=many", &format!("after={nobody}")] {
        assert_eq!(stack.call("GET", &format!("/v2/operations?{query}"), None).await.status, 400, "{query}");
    }
    assert_eq!(stack.call("GET", &format!("/v2/operations?dig={nobody}"), None).await.status, 404);

    fakes.members.behave("victim", "b", Behaviour::Stuck);
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &[], "newcomer"));
    let answer = stack.call("POST", &format!("{newcomer}/instantiate"), None).await;
    let id = answer.body["id"].as_str().unwrap();
    let watched = reqwest::get(stack.url(&format!("/v2/operations/{id}/events"))).await.unwrap();
    let _open = stack.end();
    assert!(events(watched).await.iter().all(|event| event["id"] == id));
}
