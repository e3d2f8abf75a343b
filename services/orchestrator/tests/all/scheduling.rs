//! Schedulers that place pods in another way than Drover's packing, and pods of others that take room.

use std::time::Duration;

use drover_api::plans::PlanSubject;
use drover_api::scheduling::{Holds, Plan, PlanScheduling};
use drover_testkit::eventually;
use serde_json::{Value, json};

use crate::base::member;
use crate::fakes::Behaviour;
use crate::scenarios::{approved, expect_state, full_and, members, plan, run};
use crate::support::{Stack, WaitSeconds};

/// Only the time in which pods find no node passes soon.
const LONG: WaitSeconds = WaitSeconds { unschedulable: 1, ..WaitSeconds::PATIENT };

#[tokio::test]
async fn deployment_whose_pods_find_no_nodes_goes_to_another_member() {
    let fakes = members();
    let stack = Stack::waiting(&fakes, LONG).await;
    fakes.members.behave("shop", "a", Behaviour::Unschedulable);
    fakes.members.keep("shop", "PersistentVolumeClaim/default/data-shop-0 stays with its data");
    let dig = approved(&stack, "shop", "600m", &["a", "b"], None).await;
    let operation = run(&stack, &format!("{dig}/instantiate")).await;
    expect_state(&operation, "succeeded");
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["shop@b held".to_owned()], vec!["shop@b".to_owned()]));
    assert_eq!(operation["kept"], json!(["on onprem+a: PersistentVolumeClaim/default/data-shop-0 stays with its data"]), "{operation:#}");
}

#[tokio::test]
async fn deployment_whose_pods_find_no_nodes_anywhere_else_moves_a_victim() {
    let fakes = members();
    fakes.plans.plan_on(&fakes.ledger);
    let stack = Stack::waiting(&fakes, LONG).await;
    fakes.ledger.foreign(&member("a"), 1000);
    let victim = approved(&stack, "victim", "600m", &["b", "c"], None).await;
    expect_state(&run(&stack, &format!("{victim}/instantiate")).await, "succeeded");
    fakes.ledger.foreign(&member("a"), 0);
    fakes.members.behave("shop", "a", Behaviour::Unschedulable);
    let dig = approved(&stack, "shop", "600m", &["a", "b"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["shop@b held", "victim@c held"]);
}

#[tokio::test]
async fn deployment_whose_pods_find_no_nodes_gets_room_where_it_is_by_a_move() {
    let fakes = members();
    fakes.plans.plan_on(&fakes.ledger);
    let stack = Stack::waiting(&fakes, LONG).await;
    let victim = approved(&stack, "victim", "300m", &["a", "b"], None).await;
    fakes.ledger.foreign(&member("b"), 1000);
    expect_state(&run(&stack, &format!("{victim}/instantiate")).await, "succeeded");
    fakes.ledger.foreign(&member("b"), 0);
    fakes.members.behave("shop", "a", Behaviour::Stuck);
    let dig = approved(&stack, "shop", "600m", &["a"], None).await;
    let answer = stack.call("POST", &format!("{dig}/instantiate"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    let happened = async |entry: &str| {
        eventually(Duration::from_secs(60), async || fakes.members.history().contains(&entry.to_owned()).then_some(())).await;
    };
    happened("present shop@a").await;
    // Pods of others got the node that it needs.
    fakes.ledger.foreign(&member("a"), 300);
    fakes.members.behave("shop", "a", Behaviour::Unschedulable);
    happened("absent shop@a").await;
    fakes.members.behave("shop", "a", Behaviour::Ready);
    expect_state(&stack.ended(&operation).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["shop@a held", "victim@b held"]);
}

#[tokio::test]
async fn deployment_refused_for_what_a_member_has_goes_to_another_member_or_fails_with_the_reason_of_each() {
    let fakes = members();
    let stack = Stack::waiting(&fakes, LONG).await;
    fakes.members.behave("shop", "a", Behaviour::RefusedHere);
    let dig = approved(&stack, "shop", "600m", &["a", "b"], None).await;
    let dry = stack.call("POST", &format!("{dig}/instantiate?dryRun=All"), None).await.body;
    assert_eq!(dry["decision"]["apps"][0]["groups"][0]["placement"]["member"], "onprem+b", "{dry:#}");
    assert_eq!(dry["refusals"], Value::Null, "{dry:#}");
    let operation = run(&stack, &format!("{dig}/instantiate")).await;
    expect_state(&operation, "succeeded");
    assert_eq!(operation["message"], "instantiated; shop not on onprem+a: denied by an admission rule");
    assert_eq!(fakes.members.present(), ["shop@b"]);

    // Every allowed member refuses it: each is named, the third without anything having been written there.
    ["a", "b"].iter().for_each(|member| fakes.members.behave("blog", member, Behaviour::RefusedHere));
    let dig = approved(&stack, "blog", "100m", &["a", "b"], None).await;
    let dry = stack.call("POST", &format!("{dig}/instantiate?dryRun=All"), None).await.body;
    assert_eq!(dry["refusals"].as_array().unwrap().len(), 2, "{dry:#}");
    let operation = run(&stack, &format!("{dig}/instantiate")).await;
    expect_state(&operation, "failed");
    assert_eq!(operation["code"], "preflight_failed");
    let reasons = operation["reasons"].as_array().unwrap();
    let told = |member: &str| reasons.contains(&json!(format!("blog: onprem+{member}: denied by an admission rule")));
    assert!(told("a") && told("b"), "{operation:#}");
    assert_eq!(fakes.members.history().iter().filter(|entry| entry.starts_with("present blog")).count(), 1, "the other was only asked");
    assert_eq!((fakes.members.present(), fakes.ledger.all().len()), (vec!["shop@b".to_owned()], 1));

    // What every member would refuse is not tried elsewhere.
    fakes.members.behave("cart", "a", Behaviour::Refused);
    let dig = approved(&stack, "cart", "100m", &["a", "b"], None).await;
    let operation = run(&stack, &format!("{dig}/instantiate")).await;
    expect_state(&operation, "failed");
    assert_eq!(fakes.members.present(), ["shop@b"]);
}

#[tokio::test]
async fn deployment_without_another_place_waits_for_its_nodes() {
    let fakes = members();
    let stack = Stack::waiting(&fakes, LONG).await;
    fakes.members.behave("shop", "a", Behaviour::Unschedulable);
    let dig = approved(&stack, "shop", "600m", &["a"], None).await;
    let answer = stack.call("POST", &format!("{dig}/instantiate"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    // After the time in which another place is looked for (1 s) it still waits.
    let asked = async || (fakes.ledger.dry_decisions() > 0).then_some(());
    eventually(Duration::from_secs(60), asked).await;
    fakes.members.behave("shop", "a", Behaviour::Ready);
    expect_state(&stack.ended(&operation).await, "succeeded");
    assert_eq!(fakes.members.history(), ["present shop@a"], "the copy was never removed");
}

#[tokio::test]
async fn copies_are_applied_in_the_order_that_the_plan_requires() {
    let fakes = members();
    let stack = Stack::waiting(&fakes, LONG).await;
    for name in ["v1", "v2"] {
        let dig = approved(&stack, name, "400m", &["a", "b"], None).await;
        fakes.ledger.foreign(&member("b"), 1000);
        expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
        fakes.ledger.foreign(&member("b"), 0);
    }
    let (mut both, second) = (plan(&fakes, "v1", "b", &[], "nobody"), plan(&fakes, "v2", "b", &[], "nobody"));
    both.newcomer.clear();
    both.waves[0].extend(second.waves[0].clone());
    let order = both.waves[0].iter().rev().map(|step| step.claim).collect();
    both.scheduling = Some(PlanScheduling { holds: Holds::One, order, ..PlanScheduling::default() });
    fakes.members.behave("v2", "b", Behaviour::Stuck);
    let drain = fakes.plans.propose(PlanSubject::Drain(member("a")), both);

    let answer = stack.call("POST", &format!("/v2/plans/{drain}/apply"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    let waits = async || {
        let shown = stack.get(&operation).await;
        shown["message"].as_str().is_some_and(|message| message.contains("applied when v2/v2 is ready there")).then_some(())
    };
    eventually(Duration::from_secs(60), waits).await;
    assert_eq!(fakes.members.present(), ["v1@a", "v2@a", "v2@b"]);
    fakes.members.behave("v2", "b", Behaviour::Ready);
    expect_state(&stack.ended(&operation).await, "succeeded");
    let applied: Vec<_> =
        fakes.members.history().into_iter().filter(|entry| entry.starts_with("present") && entry.ends_with("@b")).collect();
    assert_eq!(applied, ["present v2@b", "present v1@b"]);
}

#[tokio::test]
async fn newcomer_waits_for_nodes_of_pods_that_its_plan_depends_on() {
    let (fakes, stack, _, newcomer) = full_and(LONG).await;
    let (first, second) = (fakes.clone(), fakes.clone());
    fakes.plans.then(move || {
        let starting = PlanScheduling { starting: vec![member("b")], ..PlanScheduling::default() };
        Plan { scheduling: Some(starting), ..plan(&first, "victim", "b", &[], "newcomer") }
    });
    fakes.plans.then(move || plan(&second, "victim", "c", &[], "newcomer"));
    expect_state(&run(&stack, &format!("{newcomer}/instantiate")).await, "succeeded");
    assert_eq!((fakes.plans.count(), fakes.ledger.summary()), (2, vec!["newcomer@a held".to_owned(), "victim@c held".to_owned()]));
}

#[tokio::test]
async fn newcomer_whose_promised_room_is_taken_does_not_wait_for_it() {
    let (fakes, stack, _, newcomer) = full_and(LONG).await;
    let again = fakes.clone();
    fakes.plans.then(move || plan(&again, "victim", "b", &[], "newcomer"));
    fakes.members.behave("victim", "a", Behaviour::Lingering);
    let answer = stack.call("POST", &format!("{newcomer}/instantiate"), None).await;
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    eventually(Duration::from_secs(60), async || fakes.members.history().contains(&"absent victim@a".to_owned()).then_some(())).await;
    // Pods of others appear before the victim's are gone.
    fakes.ledger.foreign(&member("a"), 500);
    fakes.members.behave("victim", "a", Behaviour::Ready);
    let failed = stack.ended(&operation).await;
    assert_eq!((failed["state"].as_str(), failed["code"].as_str()), (Some("failed"), Some("plan_infeasible")), "{failed:#}");
    assert_eq!(fakes.ledger.summary(), ["victim@b held"], "the move stands");
}
