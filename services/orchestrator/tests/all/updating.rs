//! Updates over REST: in place, and with new apps, which get room as a newcomer does.

use std::time::Duration;

use base64::Engine as _;
use drover_testkit::eventually;
use serde_json::json;

use crate::base::member;
use crate::fakes::{Behaviour, Fakes};
use crate::scenarios::{approved, expect_state, full, plan, run, stack, waiting};
use crate::support::{Stack, WaitSeconds, deployment, doc};

/// `shop` runs on b and gets a second app `extra` of 900m, allowed on these clusters. The update is not started.
pub async fn growing(stack: &Stack, on: &[&str], when_full: Option<&str>) -> String {
    growing_by(stack, "900m", on, when_full).await
}

/// The same with so much CPU.
pub async fn growing_by(stack: &Stack, cpu: &str, on: &[&str], when_full: Option<&str>) -> String {
    let dig = approved(stack, "shop", "300m", &["b"], None).await;
    expect_state(&run(stack, &format!("{dig}/instantiate")).await, "succeeded");
    let mut body = doc("extra", None);
    body["file"] = base64::engine::general_purpose::STANDARD.encode(deployment("extra", cpu, 1)).into();
    stack.post("/v2/projects/p/composite-apps/shop/v1/apps", body, 201).await;
    let any_of: Vec<_> = on.iter().map(|cluster| json!({"clusterProvider": member(cluster).provider(), "cluster": cluster})).collect();
    let mut spec = json!({"app": "extra", "intent": {"anyOf": any_of}});
    if let Some(word) = when_full {
        spec["whenFull"] = word.into();
    }
    stack.post(&format!("{dig}/generic-placement-intents/gpi/app-intents"), doc("extra", Some(spec)), 201).await;
    dig
}

/// `victim` of 600m runs on a.
async fn crowded() -> (Fakes, Stack) {
    let (fakes, stack, ..) = full().await;
    (fakes, stack)
}

#[tokio::test]
async fn update_in_place_restores_old_revision_on_failure() {
    use base64::Engine as _;
    let (fakes, stack) = waiting(WaitSeconds { ready: 15, ..WaitSeconds::PATIENT }).await;
    let dig = approved(&stack, "shop", "300m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    let first = fakes.members.digest("shop", "a").unwrap();
    let app = "/v2/projects/p/composite-apps/shop/v1/apps/shop";
    let change = async |cpu: &str| {
        let mut body = doc("shop", None);
        body["file"] = base64::engine::general_purpose::STANDARD.encode(deployment("shop", cpu, 1)).into();
        assert_eq!(stack.call("PUT", app, Some(body)).await.status, 201);
    };
    change("400m").await;
    let dry = stack.call("POST", &format!("{dig}/update?dryRun=All"), None).await;
    assert_eq!((dry.status, dry.body["applied"][0]["member"].as_str()), (200, Some("onprem+a")), "{}", dry.body);
    assert_eq!((dry.body.get("misfits"), dry.body.get("newcomer")), (None, None), "{}", dry.body);
    let answer = stack.call("POST", &format!("{dig}/update"), None).await;
    assert_eq!((answer.status, &answer.body), (202, &json!(2)), "EMCO's bare revision");
    expect_state(&stack.ended(answer.headers["location"].to_str().unwrap()).await, "succeeded");
    let second = fakes.members.digest("shop", "a").unwrap();
    assert_ne!(first, second);
    assert_eq!(fakes.ledger.all()[0].request.demand.groups[0].requests.cpu, 400);

    // Too large for its member: a dry run reports it, and the update changes nothing.
    change("1200m").await;
    let dry = stack.call("POST", &format!("{dig}/update?dryRun=All"), None).await.body;
    assert!(dry["misfits"][0].as_str().unwrap().contains("cpu"), "{dry:#}");
    let failed = run(&stack, &format!("{dig}/update")).await;
    assert_eq!((failed["state"].as_str(), failed["code"].as_str()), (Some("failed"), Some("no_room")), "{failed:#}");
    assert_eq!(fakes.members.digest("shop", "a").unwrap(), second);

    // The new revision does not become ready: the old one is applied again.
    change("350m").await;
    fakes.members.behave("shop", "a", Behaviour::Stuck);
    let answer = stack.call("POST", &format!("{dig}/update"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    eventually(Duration::from_secs(60), async || (stack.get(&operation).await["state"] != "running").then_some(())).await;
    fakes.members.behave("shop", "a", Behaviour::Ready);
    expect_state(&stack.ended(&operation).await, "failed");
    assert_eq!(fakes.members.digest("shop", "a").unwrap(), second);
    let claim = &fakes.ledger.all()[0];
    assert_eq!((claim.request.demand.groups[0].requests.cpu, claim.surging), (400, false));
}

#[tokio::test]
async fn update_without_room_for_its_new_pods_moves_others_where_they_may() {
    let (fakes, stack) = crowded().await;
    fakes.plans.plan_on(&fakes.ledger);
    let dig = approved(&stack, "shop", "300m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["shop@a held", "victim@a held"]);
    let change = async |cpu: &str| {
        let mut body = doc("shop", None);
        body["file"] = base64::engine::general_purpose::STANDARD.encode(deployment("shop", cpu, 1)).into();
        assert_eq!(stack.call("PUT", "/v2/projects/p/composite-apps/shop/v1/apps/shop", Some(body)).await.status, 201);
    };
    let first = fakes.members.digest("shop", "a").unwrap();
    // 600m of the victim and the old and the new pod at once are too much for 1000m.
    change("350m").await;
    let dry = stack.call("POST", &format!("{dig}/update?dryRun=All"), None).await.body;
    assert!(dry["misfits"][0].as_str().unwrap().contains("cpu"), "{dry:#}");
    assert_eq!(dry["plan"]["plan"]["waves"][0][0]["app"], "victim", "{dry:#}");
    let operation = run(&stack, &format!("{dig}/update")).await;
    expect_state(&operation, "succeeded");
    assert!(operation["children"][0].is_string(), "{operation:#}");
    assert_eq!(fakes.ledger.summary(), ["shop@a held", "victim@b held"]);
    assert_eq!(fakes.members.present(), ["shop@a", "victim@b"]);
    let history = fakes.members.history();
    assert_eq!(history[history.len() - 2..], ["present victim@b", "absent victim@a"]);
    assert_ne!(fakes.members.digest("shop", "a").unwrap(), first, "the new revision is applied");

    // What no move makes room for is refused with the reason, and nothing is moved for it.
    change("1200m").await;
    let before = (fakes.ledger.summary(), fakes.members.history());
    let dry = stack.call("POST", &format!("{dig}/update?dryRun=All"), None).await.body;
    assert_eq!((dry.get("plan"), dry["misfits"].as_array().unwrap().len()), (None, 1), "{dry:#}");
    let failed = run(&stack, &format!("{dig}/update")).await;
    assert_eq!((failed["state"].as_str(), failed["code"].as_str()), (Some("failed"), Some("no_room")), "{failed:#}");
    assert!(failed["reasons"].to_string().contains("cpu"), "{failed:#}");
    assert_eq!((fakes.ledger.summary(), fakes.members.history()), before);
}

#[tokio::test]
async fn room_for_an_update_is_promised_to_it_while_others_leave() {
    is_promised("300m", 2).await;
}

#[tokio::test]
async fn room_for_pods_that_grow_in_an_update_is_promised_to_it_while_others_leave() {
    is_promised("350m", 1).await;
}

/// `shop` has one pod of 300m, and is updated.
async fn is_promised(cpu: &str, replicas: u32) {
    let (fakes, stack) = crowded().await;
    fakes.plans.plan_on(&fakes.ledger);
    let dig = approved(&stack, "shop", "300m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    let mut body = doc("shop", None);
    body["file"] = base64::engine::general_purpose::STANDARD.encode(deployment("shop", cpu, replicas)).into();
    assert_eq!(stack.call("PUT", "/v2/projects/p/composite-apps/shop/v1/apps/shop", Some(body)).await.status, 201);
    fakes.members.behave("victim", "b", Behaviour::Stuck);
    let answer = stack.call("POST", &format!("{dig}/update"), None).await;
    let claimed = async || fakes.ledger.summary().contains(&"victim@b held".to_owned()).then_some(());
    eventually(Duration::from_secs(60), claimed).await;
    assert_eq!(fakes.ledger.summary(), ["shop@a held", "shop@a promised", "victim@a leaving", "victim@b held"]);
    fakes.members.behave("victim", "b", Behaviour::Ready);
    expect_state(&stack.ended(answer.headers["location"].to_str().unwrap()).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["shop@a held", "victim@b held"]);
}

#[tokio::test]
async fn update_whose_victim_fits_nowhere_else_is_refused_and_changes_nothing() {
    let (fakes, stack) = crowded().await;
    fakes.plans.plan_on(&fakes.ledger);
    let dig = approved(&stack, "shop", "300m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    fakes.ledger.foreign(&member("b"), 900);
    fakes.ledger.foreign(&member("c"), 900);
    let mut body = doc("shop", None);
    body["file"] = base64::engine::general_purpose::STANDARD.encode(deployment("shop", "350m", 1)).into();
    assert_eq!(stack.call("PUT", "/v2/projects/p/composite-apps/shop/v1/apps/shop", Some(body)).await.status, 201);
    let before = (fakes.ledger.summary(), fakes.members.history());
    let failed = run(&stack, &format!("{dig}/update")).await;
    assert_eq!((failed["state"].as_str(), failed["code"].as_str()), (Some("failed"), Some("no_room")), "{failed:#}");
    assert!(failed["reasons"].to_string().contains("victim"), "why it cannot be moved: {failed:#}");
    assert_eq!((fakes.ledger.summary(), fakes.members.history()), before);
}

#[tokio::test]
async fn update_without_room_for_new_app_relocates_victim() {
    let (fakes, stack) = crowded().await;
    let dig = growing(&stack, &["a"], None).await;
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "c", &[], "extra"));
    let operation = run(&stack, &format!("{dig}/update")).await;
    expect_state(&operation, "succeeded");
    assert!(operation["plan"].is_string() && operation["children"][0].is_string(), "{operation:#}");
    assert_eq!(fakes.ledger.summary(), ["extra@a held", "shop@b held", "victim@c held"]);
    assert_eq!(fakes.members.present(), ["extra@a", "shop@b", "victim@c"]);
    let history = fakes.members.history();
    assert_eq!(history[history.len() - 3..], ["present victim@c", "absent victim@a", "present extra@a"]);
    // The app is part of the group now: the next update has nothing to place.
    expect_state(&run(&stack, &format!("{dig}/update")).await, "succeeded");
    assert_eq!(fakes.plans.count(), 1);
}

#[tokio::test]
async fn update_without_plan_fails_and_changes_nothing() {
    let (fakes, stack) = crowded().await;
    let dig = growing(&stack, &["a"], None).await;
    let before = (fakes.ledger.summary(), fakes.members.history());
    let failed = run(&stack, &format!("{dig}/update")).await;
    assert_eq!((failed["state"].as_str(), failed["code"].as_str()), (Some("failed"), Some("plan_infeasible")), "{failed:#}");
    assert!(failed["reasons"].to_string().contains("no app there may be moved"), "{failed:#}");
    assert_eq!((fakes.ledger.summary(), fakes.members.history()), before);
}

#[tokio::test]
async fn new_preferred_app_overflows_only_without_plan() {
    let (fakes, stack) = crowded().await;
    let dig = growing(&stack, &["a", "c"], Some("preferred")).await;
    expect_state(&run(&stack, &format!("{dig}/update")).await, "succeeded");
    assert_eq!(fakes.plans.count(), 1, "the plan comes before the overflow");
    assert_eq!(fakes.ledger.summary(), ["extra@c held", "shop@b held", "victim@a held"]);
}

#[tokio::test]
async fn update_waits_for_silent_cluster() {
    let (fakes, stack) = stack().await;
    let dig = growing(&stack, &["a"], None).await;
    fakes.ledger.silent(&member("a"), true);
    let answer = stack.call("POST", &format!("{dig}/update"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    eventually(Duration::from_secs(60), async || {
        stack.get(&operation).await["message"].as_str().is_some_and(|message| message.contains("waiting to hear")).then_some(())
    })
    .await;
    fakes.ledger.silent(&member("a"), false);
    expect_state(&stack.ended(&operation).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["extra@a held", "shop@b held"]);
}

#[tokio::test]
async fn update_releases_claims_of_new_app_that_fails() {
    let (fakes, stack) = stack().await;
    let dig = growing(&stack, &["a"], None).await;
    fakes.members.behave("extra", "a", Behaviour::Refused);
    let failed = run(&stack, &format!("{dig}/update")).await;
    assert_eq!((failed["state"].as_str(), failed["code"].as_str()), (Some("failed"), Some("preflight_failed")), "{failed:#}");
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["shop@b held".to_owned()], vec!["shop@b".to_owned()]));
}
