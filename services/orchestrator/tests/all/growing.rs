//! Updates that bring new apps: these are a newcomer's, with everything that a newcomer may ask for.

use std::time::Duration;

use base64::Engine as _;
use drover_testkit::eventually;
use serde_json::json;

use crate::base::member;
use crate::fakes::Fakes;
use crate::scenarios::{approved, done, full, is, plan, stack};
use crate::support::{Stack, deployment, doc};

/// `shop` serves on b and gets a second app `extra` of 900m that may run on these clusters; nothing is updated yet.
async fn growing(stack: &Stack, on: &[&str], when_full: Option<&str>) -> String {
    let dig = approved(stack, "shop", "300m", &["b"], None).await;
    is(&done(stack, &format!("{dig}/instantiate")).await, "succeeded");
    let mut body = doc("extra", None);
    body["file"] = base64::engine::general_purpose::STANDARD.encode(deployment("extra", "900m", 1)).into();
    stack.post("/v2/projects/p/composite-apps/shop/v1/apps", body, 201).await;
    let any_of: Vec<_> = on.iter().map(|cluster| json!({"clusterProvider": member(cluster).provider(), "cluster": cluster})).collect();
    let mut spec = json!({"app": "extra", "intent": {"anyOf": any_of}});
    if let Some(word) = when_full {
        spec["whenFull"] = word.into();
    }
    stack.post(&format!("{dig}/generic-placement-intents/gpi/app-intents"), doc("extra", Some(spec)), 201).await;
    dig
}

/// `victim` of 600m serves on a.
async fn crowded() -> (Fakes, Stack) {
    let (fakes, stack, ..) = full().await;
    (fakes, stack)
}

#[tokio::test]
async fn an_app_that_is_new_gets_its_room_from_one_who_may_move() {
    let (fakes, stack) = crowded().await;
    let dig = growing(&stack, &["a"], None).await;
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "c", &[], "extra"));
    let operation = done(&stack, &format!("{dig}/update")).await;
    is(&operation, "succeeded");
    assert!(operation["plan"].is_string() && operation["children"][0].is_string(), "{operation:#}");
    assert_eq!(fakes.ledger.summary(), ["extra@a held", "shop@b held", "victim@c held"]);
    assert_eq!(fakes.members.present(), ["extra@a", "shop@b", "victim@c"]);
    let history = fakes.members.history();
    assert_eq!(history[history.len() - 3..], ["present victim@c", "absent victim@a", "present extra@a"]);
    // The group is one again: the next update finds nothing new in it.
    is(&done(&stack, &format!("{dig}/update")).await, "succeeded");
    assert_eq!(fakes.plans.count(), 1);
}

#[tokio::test]
async fn without_a_plan_for_it_the_update_is_refused_and_nothing_changes() {
    let (fakes, stack) = crowded().await;
    let dig = growing(&stack, &["a"], None).await;
    let before = (fakes.ledger.summary(), fakes.members.history());
    let failed = done(&stack, &format!("{dig}/update")).await;
    assert_eq!((failed["state"].as_str(), failed["code"].as_str()), (Some("failed"), Some("plan_infeasible")), "{failed:#}");
    assert!(failed["reasons"].to_string().contains("nobody there may move"), "{failed:#}");
    assert_eq!((fakes.ledger.summary(), fakes.members.history()), before);
}

#[tokio::test]
async fn an_app_that_insists_overflows_only_without_a_plan() {
    let (fakes, stack) = crowded().await;
    let dig = growing(&stack, &["a", "c"], Some("preferred")).await;
    is(&done(&stack, &format!("{dig}/update")).await, "succeeded");
    assert_eq!(fakes.plans.count(), 1, "a plan was asked for first");
    assert_eq!(fakes.ledger.summary(), ["extra@c held", "shop@b held", "victim@a held"]);
}

#[tokio::test]
async fn a_cluster_that_is_silent_is_waited_for() {
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
    is(&stack.ended(&operation).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["extra@a held", "shop@b held"]);
}

#[tokio::test]
async fn what_was_decided_for_a_new_app_is_given_back_when_it_never_gets_ready() {
    use crate::fakes::Behaviour;
    let (fakes, stack) = stack().await;
    let dig = growing(&stack, &["a"], None).await;
    fakes.members.behave("extra", "a", Behaviour::Refused);
    let failed = done(&stack, &format!("{dig}/update")).await;
    assert_eq!((failed["state"].as_str(), failed["code"].as_str()), (Some("failed"), Some("preflight_failed")), "{failed:#}");
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["shop@b held".to_owned()], vec!["shop@b".to_owned()]));
}
