//! Newcomers that arrive together, or while other operations change what would have to move. Plans are made by the planner of
//! production.

use std::time::Duration;

use drover_testkit::eventually;
use futures::future::join_all;
use serde_json::Value;

use crate::base::member;
use crate::fakes::{Behaviour, Fakes};
use crate::scenarios::{approved, expect_state, members, run};
use crate::support::{Stack, WaitSeconds};

/// Three members and an orchestrator whose plans are those of production.
pub async fn stack() -> (Fakes, Stack) {
    let fakes = members();
    fakes.plans.plan_on(&fakes.ledger);
    let stack = Stack::waiting(&fakes, WaitSeconds::PATIENT).await;
    (fakes, stack)
}

/// Runs an app of this name and CPU on a; it may move to the other clusters of `on`.
pub async fn victim(fakes: &Fakes, stack: &Stack, name: &str, cpu: &str, on: &[&str]) -> String {
    let dig = approved(stack, name, cpu, on, None).await;
    fakes.ledger.foreign(&member("b"), 1000);
    expect_state(&run(stack, &format!("{dig}/instantiate")).await, "succeeded");
    fakes.ledger.foreign(&member("b"), 0);
    dig
}

/// Starts to instantiate a group and returns the operation.
async fn start(stack: &Stack, dig: &str) -> String {
    let answer = stack.call("POST", &format!("{dig}/instantiate"), None).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    answer.headers["location"].to_str().unwrap().to_owned()
}

/// `app from->to stage` of each move of an operation.
pub fn moves(operation: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let moves = operation["moves"].as_array().cloned().unwrap_or_default();
    moves.iter().map(|one| format!("{} {}->{} {}", text(&one["app"]), text(&one["from"]), text(&one["to"]), text(&one["stage"]))).collect()
}

async fn message_has(stack: &Stack, operation: &str, text: &str) {
    let has = async || stack.get(operation).await["message"].as_str().is_some_and(|message| message.contains(text)).then_some(());
    eventually(Duration::from_secs(60), has).await;
}

#[tokio::test]
async fn newcomer_waits_for_pods_of_apps_that_have_left() {
    let (fakes, stack) = stack().await;
    victim(&fakes, &stack, "v", "500m", &["a", "b"]).await;
    // The room of another app that has left is not reported as free yet, and v alone does not make enough.
    fakes.ledger.leftover(&member("a"), 500);
    let newcomer = approved(&stack, "newcomer", "1", &["a"], None).await;
    let operation = start(&stack, &newcomer).await;
    message_has(&stack, &operation, "waiting for the room of apps that have left").await;
    fakes.ledger.leftover(&member("a"), 0);
    let ended = stack.ended(&operation).await;
    expect_state(&ended, "succeeded");
    assert_eq!(moves(&ended), ["v/v onprem+a->onprem+b done"]);
}

#[tokio::test]
async fn newcomers_that_arrive_together_choose_different_victims() {
    let (fakes, stack) = stack().await;
    fakes.ledger.foreign(&member("a"), 500);
    for name in ["v0", "v1", "v2", "v3", "v4"] {
        victim(&fakes, &stack, name, "100m", &["a", "b"]).await;
    }
    let mut newcomers = Vec::new();
    for name in ["n0", "n1", "n2", "n3", "n4"] {
        newcomers.push(approved(&stack, name, "100m", &["a"], None).await);
    }

    let operations = join_all(newcomers.iter().map(|dig| start(&stack, dig))).await;
    for operation in &operations {
        let ended = stack.ended(operation).await;
        expect_state(&ended, "succeeded");
        assert_eq!(moves(&ended).len(), 1, "{ended:#}");
    }

    let all = fakes.ledger.summary();
    for index in 0..5 {
        assert!(all.contains(&format!("n{index}@a held")) && all.contains(&format!("v{index}@b held")), "{all:?}");
    }
}

#[tokio::test]
async fn newcomers_share_the_room_that_one_victim_leaves() {
    let (fakes, stack) = stack().await;
    victim(&fakes, &stack, "v0", "900m", &["a", "b"]).await;
    let mut newcomers = Vec::new();
    for name in ["n0", "n1", "n2"] {
        newcomers.push(approved(&stack, name, "300m", &["a"], None).await);
    }

    let operations = join_all(newcomers.iter().map(|dig| start(&stack, dig))).await;
    for operation in &operations {
        expect_state(&stack.ended(operation).await, "succeeded");
    }

    assert_eq!(fakes.ledger.summary(), ["n0@a held", "n1@a held", "n2@a held", "v0@b held"]);
}

#[tokio::test]
async fn newcomer_waits_for_an_operation_that_changes_its_only_victim() {
    let (fakes, stack) = stack().await;
    let first = approved(&stack, "v0", "600m", &["a", "b"], None).await;
    fakes.members.behave("v0", "a", Behaviour::Stuck);
    let victim = start(&stack, &first).await;
    eventually(Duration::from_secs(60), async || fakes.members.present().contains(&"v0@a".to_owned()).then_some(())).await;
    let newcomer = approved(&stack, "n0", "900m", &["a"], None).await;

    let operation = start(&stack, &newcomer).await;
    message_has(&stack, &operation, "waiting for these operations to end").await;
    fakes.members.behave("v0", "a", Behaviour::Ready);

    expect_state(&stack.ended(&victim).await, "succeeded");
    expect_state(&stack.ended(&operation).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["n0@a held", "v0@b held"]);
}

#[tokio::test]
async fn newcomer_of_higher_priority_gets_room_before_one_that_came_first() {
    let (fakes, stack) = stack().await;
    fakes.plans.priorities.lock().unwrap().insert("/low".to_owned(), 3);
    let first = approved(&stack, "v0", "600m", &["a", "b"], None).await;
    fakes.members.behave("v0", "a", Behaviour::Stuck);
    let victim = start(&stack, &first).await;
    eventually(Duration::from_secs(60), async || fakes.members.present().contains(&"v0@a".to_owned()).then_some(())).await;
    let mut operations = Vec::new();
    for name in ["low", "high"] {
        let newcomer = approved(&stack, name, "900m", &["a"], None).await;
        operations.push(start(&stack, &newcomer).await);
        message_has(&stack, &operations[operations.len() - 1], "waiting for these operations to end").await;
    }

    fakes.members.behave("v0", "a", Behaviour::Ready);

    expect_state(&stack.ended(&victim).await, "succeeded");
    assert_eq!(stack.ended(&operations[0]).await["code"], "plan_infeasible");
    expect_state(&stack.ended(&operations[1]).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["high@a held", "v0@b held"]);
}

#[tokio::test]
async fn newcomer_is_refused_at_once_if_no_operation_will_make_room() {
    let (fakes, stack) = stack().await;
    // The victim is busy, and even without that it has nowhere to go.
    fakes.ledger.foreign(&member("b"), 900);
    let first = approved(&stack, "v0", "600m", &["a", "b"], None).await;
    fakes.members.behave("v0", "a", Behaviour::Stuck);
    let _victim = start(&stack, &first).await;
    eventually(Duration::from_secs(60), async || fakes.members.present().contains(&"v0@a".to_owned()).then_some(())).await;
    let newcomer = approved(&stack, "n0", "900m", &["a"], None).await;

    let failed = run(&stack, &format!("{newcomer}/instantiate")).await;

    assert_eq!(failed["code"], "plan_infeasible", "{failed:#}");
}

#[tokio::test]
async fn destination_that_refused_an_app_is_not_planned_again() {
    let (fakes, stack) = stack().await;
    victim(&fakes, &stack, "v1", "450m", &["a", "b"]).await;
    victim(&fakes, &stack, "v2", "450m", &["a", "b"]).await;
    fakes.members.behave("v1", "b", Behaviour::Refused);
    let newcomer = approved(&stack, "n0", "500m", &["a"], None).await;

    let done = run(&stack, &format!("{newcomer}/instantiate")).await;
    expect_state(&done, "succeeded");
    assert_eq!(moves(&done), ["v1/v1 onprem+a->onprem+b undone", "v2/v2 onprem+a->onprem+b done"]);
    assert_eq!(fakes.ledger.summary(), ["n0@a held", "v1@a held", "v2@b held"]);

    // Others know it too, and are told why.
    let apps = stack.get("/v2/apps").await;
    let v1 = apps["items"].as_array().unwrap().iter().find(|app| app["app"] == "v1").unwrap();
    assert_eq!(v1["refused"][0]["member"], "onprem+b", "{v1:#}");
    assert!(v1["refused"][0]["reason"].as_str().unwrap().contains("spec.replicas: Invalid value"), "{v1:#}");
    let next = approved(&stack, "n1", "500m", &["a"], None).await;
    let before = fakes.members.history().len();
    let failed = run(&stack, &format!("{next}/instantiate")).await;
    assert_eq!(failed["code"], "plan_infeasible", "{failed:#}");
    let told =
        |reason: &Value| reason.as_str().is_some_and(|reason| reason.contains("v1") && reason.contains("spec.replicas: Invalid value"));
    assert!(failed["reasons"].as_array().unwrap().iter().any(told), "{failed:#}");
    assert_eq!(fakes.members.history().len(), before, "nothing was tried again");
}

#[tokio::test]
async fn relocation_that_fails_everywhere_is_reported_with_its_reason() {
    let (fakes, stack) = stack().await;
    victim(&fakes, &stack, "v1", "450m", &["a", "b"]).await;
    fakes.members.behave("v1", "b", Behaviour::Refused);
    let newcomer = approved(&stack, "n0", "900m", &["a"], None).await;

    let failed = run(&stack, &format!("{newcomer}/instantiate")).await;

    assert_eq!(failed["code"], "destination_not_ready", "{failed:#}");
    assert_eq!(moves(&failed), ["v1/v1 onprem+a->onprem+b undone"], "the plan that failed is not made again");
    assert_eq!(fakes.ledger.summary(), ["v1@a held"]);
}

#[tokio::test]
async fn newcomer_is_promised_the_room_of_an_app_that_is_being_terminated() {
    let (fakes, stack) = stack().await;
    let old = victim(&fakes, &stack, "old", "900m", &["a"]).await;
    fakes.members.behave("old", "a", Behaviour::Lingering);
    let answer = stack.call("POST", &format!("{old}/terminate"), None).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    eventually(Duration::from_secs(60), async || (fakes.ledger.summary() == ["old@a leaving"]).then_some(())).await;
    let newcomer = approved(&stack, "n0", "500m", &["a"], None).await;

    let operation = start(&stack, &newcomer).await;
    let promised = ["n0@a promised", "old@a leaving"];
    eventually(Duration::from_secs(60), async || (fakes.ledger.summary() == promised).then_some(())).await;
    message_has(&stack, &operation, "leav").await;
    fakes.members.behave("old", "a", Behaviour::Ready);

    expect_state(&stack.ended(&operation).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["n0@a held"]);
}
