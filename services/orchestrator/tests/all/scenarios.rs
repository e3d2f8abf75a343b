//! Instantiate and terminate over REST, with members that behave as the test says.

use std::time::Duration;

use base64::Engine as _;
use drover_api::scheduling::{Amounts, DigRef, Move, Plan};
use drover_testkit::eventually;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::base::member;
use crate::fakes::{Behaviour, Fakes};
use crate::support::{Stack, WaitSeconds, deployment, doc};

const MEMBERS: [(&str, &str); 3] = [("onprem", "a"), ("onprem", "b"), ("aws", "c")];

pub fn members() -> Fakes {
    Fakes::with(&[("onprem", "a", 1, 1000), ("onprem", "b", 1, 1000), ("aws", "c", 5, 1000)])
}

/// Three members of 1000m and an orchestrator.
pub async fn stack() -> (Fakes, Stack) {
    waiting(WaitSeconds::PATIENT).await
}

/// The same with these deadlines.
pub async fn waiting(wait: WaitSeconds) -> (Fakes, Stack) {
    let fakes = members();
    let stack = Stack::waiting(&fakes, wait).await;
    (fakes, stack)
}

/// An approved group of one app, both of this name. The app is allowed on these clusters.
pub async fn approved(stack: &Stack, name: &str, cpu: &str, on: &[&str], when_full: Option<&str>) -> String {
    approved_with(stack, name, &deployment(name, cpu, 1), on, when_full).await
}

/// As [`approved`], with these manifests.
pub async fn approved_with(stack: &Stack, name: &str, manifests: &str, on: &[&str], when_full: Option<&str>) -> String {
    let dig = stack.group(name, &[(name, manifests)], &MEMBERS).await;
    stack.post(&format!("{dig}/generic-placement-intents"), doc("gpi", None), 201).await;
    let any_of: Vec<_> = on.iter().map(|cluster| json!({"clusterProvider": member(cluster).provider(), "cluster": cluster})).collect();
    let mut spec = json!({"app": name, "intent": {"anyOf": any_of}});
    if let Some(word) = when_full {
        spec["whenFull"] = word.into();
    }
    stack.post(&format!("{dig}/generic-placement-intents/gpi/app-intents"), doc(name, Some(spec)), 201).await;
    assert_eq!(stack.call("POST", &format!("{dig}/approve"), None).await.status, 202);
    dig
}

/// An approved group of one app, both of this name, which must run on each of these clusters.
pub async fn approved_on_all(stack: &Stack, name: &str, on: &[&str]) -> String {
    let dig = stack.group(name, &[(name, &deployment(name, "300m", 1))], &MEMBERS).await;
    stack.post(&format!("{dig}/generic-placement-intents"), doc("gpi", None), 201).await;
    let all_of: Vec<_> = on.iter().map(|cluster| json!({"clusterProvider": member(cluster).provider(), "cluster": cluster})).collect();
    let spec = json!({"app": name, "intent": {"allOf": all_of}});
    stack.post(&format!("{dig}/generic-placement-intents/gpi/app-intents"), doc(name, Some(spec)), 201).await;
    assert_eq!(stack.call("POST", &format!("{dig}/approve"), None).await.status, 202);
    dig
}

/// Starts an operation by POST and returns it when it has ended.
pub async fn run(stack: &Stack, path: &str) -> Value {
    let answer = stack.call("POST", path, None).await;
    assert_eq!(answer.status, 202, "{path}: {}", answer.body);
    let operation = answer.headers["location"].to_str().unwrap().to_owned();
    stack.ended(&operation).await
}

pub fn expect_state(operation: &Value, state: &str) {
    assert_eq!(operation["state"], state, "{operation:#}");
}

/// A plan that moves the only binding of `victim` from `a` to `to`, for `newcomer` on `a`.
pub fn plan(fakes: &Fakes, victim: &str, to: &str, alternatives: &[&str], newcomer: &str) -> Plan {
    let claim = fakes.ledger.all().into_iter().find(|claim| claim.request.app == victim).unwrap();
    let placed = json!([{"app": newcomer, "groups": [{"placement": {"binding": Uuid::nil(), "member": claim.member, "pods": []}, "considered": []}]}]);
    let step = Move {
        claim: claim.id,
        dig: DigRef::clone(&claim.dig),
        app: victim.into(),
        from: claim.member.clone(),
        to: member(to),
        alternatives: alternatives.iter().map(|cluster| member(cluster)).collect(),
        pods: vec![],
        frees: Amounts::default(),
        reason: String::new(),
    };
    Plan { waves: vec![vec![step]], newcomer: serde_json::from_value(placed).unwrap(), ..Plan::default() }
}

/// `victim` runs on a; `newcomer` is allowed on a only and does not fit beside it.
pub async fn full() -> (Fakes, Stack, String, String) {
    full_and(WaitSeconds::PATIENT).await
}

/// As [`full`], with these deadlines.
pub async fn full_and(wait: WaitSeconds) -> (Fakes, Stack, String, String) {
    let (fakes, stack) = waiting(wait).await;
    let victim = approved(&stack, "victim", "600m", &["a", "b", "c"], None).await;
    expect_state(&run(&stack, &format!("{victim}/instantiate")).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["victim@a held"]);
    let newcomer = approved(&stack, "newcomer", "900m", &["a"], None).await;
    (fakes, stack, victim, newcomer)
}

#[tokio::test]
async fn deed_says_what_has_changed_since_its_dry_run() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a", "b"], None).await;
    let dry = stack.call("POST", &format!("{dig}/instantiate?dryRun=All"), None).await;
    let body = json!({"basis": dry.body["basis"]});
    assert!(dry.body["basis"]["clusters"]["shop on onprem+a"].is_string(), "{}", dry.body);

    fakes.ledger.foreign(&member("a"), 800);
    let wrong = stack.call("POST", &format!("{dig}/instantiate"), Some(json!({"basis": {"ledger": "no number"}}))).await;
    assert_eq!((wrong.status, wrong.body["code"].as_str()), (400, Some("invalid")), "{}", wrong.body);
    let started = stack.call("POST", &format!("{dig}/instantiate"), Some(body)).await;

    assert_eq!(started.status, 202, "{}", started.body);
    let changed = started.body["changedSinceDryRun"].as_array().unwrap().clone();
    assert!(changed.iter().any(|one| one.as_str().unwrap().starts_with("shop on onprem+a: ")), "{changed:?}");
    expect_state(&stack.ended(started.headers["location"].to_str().unwrap()).await, "succeeded");
    assert_eq!(fakes.ledger.summary(), ["shop@b held"]);
    // The same for an update; nothing has changed since this dry run.
    let dry = stack.call("POST", &format!("{dig}/update?dryRun=All"), None).await;
    let update = stack.call("POST", &format!("{dig}/update"), Some(json!({"basis": dry.body["basis"]}))).await;
    let operation = stack.ended(update.headers["location"].to_str().unwrap()).await;
    assert_eq!((&operation["state"], &operation["changedSinceDryRun"]), (&json!("succeeded"), &Value::Null), "{operation:#}");
}

#[tokio::test]
async fn dry_run_with_approval_changes_no_state() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    expect_state(&run(&stack, &format!("{dig}/terminate")).await, "succeeded");
    let mut body = doc("shop", None);
    body["file"] = base64::engine::general_purpose::STANDARD.encode(deployment("shop", "400m", 1)).into();
    assert_eq!(stack.call("PUT", "/v2/projects/p/composite-apps/shop/v1/apps/shop", Some(body)).await.status, 201);
    let before = stack.get(&format!("{dig}/status")).await;

    let dry = stack.call("POST", &format!("{dig}/instantiate?dryRun=All&approve=true"), None).await;

    assert_eq!((dry.status, &dry.body["decision"]["outcome"]), (200, &json!("placed")), "{}", dry.body);
    let as_approved = stack.call("POST", &format!("{dig}/instantiate?dryRun=All"), None).await;
    assert_ne!(dry.body["basis"]["apps"], as_approved.body["basis"]["apps"], "it is of the documents as they are now");
    assert_eq!(stack.get(&format!("{dig}/status")).await, before);
    assert!(fakes.ledger.all().is_empty());
    let deed = stack.call("POST", &format!("{dig}/instantiate?approve=true"), None).await;
    assert_eq!((deed.status, &deed.body["code"]), (400, &json!("invalid")), "{}", deed.body);
}

#[tokio::test]
async fn dry_runs_say_what_the_cluster_would_refuse() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a"], None).await;
    let dry = async |verb: &str| stack.call("POST", &format!("{dig}/{verb}?dryRun=All"), None).await.body;
    assert_eq!(dry("instantiate").await["refusals"], Value::Null);

    fakes.members.behave("shop", "a", Behaviour::Refused);
    let refusal = json!([{"app": "shop", "member": "onprem+a", "reasons": ["spec.replicas: Invalid value"]}]);
    assert_eq!(dry("instantiate").await["refusals"], refusal);
    assert!(fakes.members.present().is_empty() && fakes.ledger.all().is_empty(), "a dry run writes nothing");

    fakes.members.behave("shop", "a", Behaviour::Ready);
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    fakes.members.behave("shop", "a", Behaviour::Refused);
    let mut body = doc("shop", None);
    body["file"] = base64::engine::general_purpose::STANDARD.encode(deployment("shop", "400m", 1)).into();
    assert_eq!(stack.call("PUT", "/v2/projects/p/composite-apps/shop/v1/apps/shop", Some(body)).await.status, 201);
    assert_eq!(dry("update").await["refusals"], refusal);
}

#[tokio::test]
async fn instantiate_and_terminate_leave_no_claims_or_copies() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a", "b", "c"], None).await;

    let dry = stack.call("POST", &format!("{dig}/instantiate?dryRun=All"), None).await;
    assert_eq!((dry.status, dry.body["decision"]["outcome"].as_str()), (200, Some("placed")), "{}", dry.body);
    assert!(fakes.ledger.all().is_empty(), "a dry run claims nothing");

    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["shop@a held".to_owned()], vec!["shop@a".to_owned()]));
    let again = stack.call("POST", &format!("{dig}/instantiate"), None).await;
    assert_eq!((again.status, again.body["code"].as_str()), (409, Some("wrong_state")));
    let delete = stack.call("DELETE", &dig, None).await;
    assert_eq!((delete.status, delete.body["code"].as_str()), (409, Some("wrong_state")));

    expect_state(&run(&stack, &format!("{dig}/terminate")).await, "succeeded");
    assert!(fakes.ledger.all().is_empty() && fakes.members.present().is_empty());
    assert_eq!(fakes.members.history(), ["present shop@a", "absent shop@a"]);
    // A terminated group can be instantiated again or deleted.
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    expect_state(&run(&stack, &format!("{dig}/terminate")).await, "succeeded");
    assert_eq!(stack.call("DELETE", &format!("{dig}/generic-placement-intents/gpi/app-intents/shop"), None).await.status, 204);
    assert_eq!(stack.call("DELETE", &format!("{dig}/generic-placement-intents/gpi"), None).await.status, 204);
    // A delete is refused while migration has documents below the group.
    *fakes.plans.below.lock().unwrap() = vec![format!("{dig}/migration-intents/m")];
    let refused = stack.call("DELETE", &dig, None).await;
    assert_eq!((refused.status, refused.body["code"].as_str()), (409, Some("has_children")), "{}", refused.body);
    fakes.plans.below.lock().unwrap().clear();
    assert_eq!(stack.call("DELETE", &dig, None).await.status, 204);
}

#[tokio::test]
async fn instantiate_undoes_refused_and_unready_copies() {
    let (fakes, stack) = waiting(WaitSeconds { ready: 10, unschedulable: 1, ..WaitSeconds::PATIENT }).await;
    let dig = approved(&stack, "shop", "500m", &["a"], None).await;
    for (behaviour, code) in
        [(Behaviour::Refused, "preflight_failed"), (Behaviour::Stuck, "not_ready"), (Behaviour::Unschedulable, "not_ready")]
    {
        fakes.members.behave("shop", "a", behaviour);
        let failed = run(&stack, &format!("{dig}/instantiate")).await;
        expect_state(&failed, "failed");
        assert_eq!(failed["code"], code, "{failed:#}");
        assert!(fakes.ledger.all().is_empty() && fakes.members.present().is_empty(), "{behaviour:?}");
        let shown = &stack.get("/v2/apps").await["items"][0];
        assert_eq!((shown["state"].as_str(), shown["reason"].is_string()), (Some("Failed"), true), "{shown:#}");
    }
    fakes.members.behave("shop", "a", Behaviour::Ready);
    // On a slow machine it may miss this deadline, too.
    eventually(Duration::from_secs(60), async || (run(&stack, &format!("{dig}/instantiate")).await["state"] == "succeeded").then_some(()))
        .await;
    let shown = &stack.get("/v2/apps").await["items"][0];
    assert_eq!((shown["state"].as_str(), &shown["reason"]), (Some("Instantiated"), &Value::Null), "{shown:#}");
    assert!(shown["bindings"][0]["since"].is_string(), "{shown:#}");
}

#[tokio::test]
async fn instantiate_without_plan_fails_and_changes_nothing() {
    let (fakes, stack, _, newcomer) = full().await;
    let failed = run(&stack, &format!("{newcomer}/instantiate")).await;
    expect_state(&failed, "failed");
    assert_eq!(failed["code"], "plan_infeasible");
    assert!(
        failed["reasons"].as_array().unwrap().iter().any(|reason| reason.as_str().unwrap().contains("no app there may be moved")),
        "{failed:#}"
    );
    assert_eq!((fakes.ledger.summary(), fakes.members.present()), (vec!["victim@a held".to_owned()], vec!["victim@a".to_owned()]));
}

#[tokio::test]
async fn preferred_app_overflows_only_without_plan() {
    let (fakes, stack) = stack().await;
    for (name, on) in [("one", "a"), ("two", "b")] {
        let dig = approved(&stack, name, "800m", &[on], None).await;
        expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    }
    let dig = approved(&stack, "third", "500m", &["a", "b", "c"], Some("preferred")).await;
    let dry = stack.call("POST", &format!("{dig}/instantiate?dryRun=All"), None).await.body;
    assert_eq!((dry["decision"]["outcome"].as_str(), dry["overflow"]["outcome"].as_str()), (Some("no_room"), Some("placed")), "{dry:#}");
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    assert_eq!(fakes.plans.count(), 1, "the plan comes before the overflow");
    assert!(fakes.ledger.summary().contains(&"third@c held".to_owned()));

    // A silent best provider is waited for only briefly while other providers have room.
    fakes.ledger.silent(&member("a"), true);
    let dig = approved(&stack, "fourth", "100m", &["a", "c"], Some("preferred")).await;
    let dry = stack.call("POST", &format!("{dig}/instantiate?dryRun=All"), None).await.body;
    assert_eq!((dry["decision"]["outcome"].as_str(), dry["overflow"]["outcome"].as_str()), (Some("unknown"), Some("placed")), "{dry:#}");
    let before = fakes.ledger.decisions();
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    // One decision per second while placement may be restarting, and one that overflows; not one per second until the deadline.
    let asked = fakes.ledger.decisions() - before;
    assert!((2..20).contains(&asked), "{asked} decisions");
    assert!(fakes.ledger.summary().contains(&"fourth@c held".to_owned()));
}

#[tokio::test]
async fn apps_start_after_and_are_removed_before_their_dependencies() {
    let (fakes, stack) = stack().await;
    let dig = stack.group("shop", &[("web", &deployment("web", "100m", 1)), ("db", &deployment("db", "100m", 1))], &MEMBERS).await;
    let dependency = json!({"app": "db", "opStatus": "Ready", "wait": 0});
    stack.post("/v2/projects/p/composite-apps/shop/v1/apps/web/dependency", doc("d", Some(dependency)), 201).await;
    assert_eq!(stack.call("POST", &format!("{dig}/approve"), None).await.status, 202);
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    expect_state(&run(&stack, &format!("{dig}/terminate")).await, "succeeded");
    let order: Vec<_> = fakes.members.history().iter().map(|line| line.split('@').next().unwrap().to_owned()).collect();
    assert_eq!(order, ["present db", "present web", "absent web", "absent db"]);
}

#[tokio::test]
async fn terminate_leaves_unreachable_copies_until_cluster_answers() {
    let (fakes, stack) = waiting(WaitSeconds { unreachable: 1, ..WaitSeconds::PATIENT }).await;
    let dig = approved(&stack, "shop", "500m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    fakes.members.behave("shop", "a", Behaviour::Unreachable);
    let operation = run(&stack, &format!("{dig}/terminate")).await;
    expect_state(&operation, "succeeded");
    assert_eq!(operation["leftovers"][0], "shop/shop on onprem+a", "{operation:#}");
    assert_eq!(fakes.ledger.summary(), ["shop@a held"], "a copy that may still run keeps its room");
    fakes.members.behave("shop", "a", Behaviour::Ready);
    eventually(Duration::from_secs(60), async || fakes.ledger.all().is_empty().then_some(())).await;
}

#[tokio::test]
async fn terminate_waits_for_a_cluster_that_does_not_answer_for_a_moment() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    fakes.members.behave("shop", "a", Behaviour::Unreachable);
    let answer = stack.call("POST", &format!("{dig}/terminate"), None).await;
    let path = answer.headers["location"].to_str().unwrap();
    let told = || fakes.members.history().iter().any(|line| line.starts_with("absent shop"));
    eventually(Duration::from_secs(60), async || told().then_some(())).await;
    expect_state(&stack.get(&format!("{path}?wait=1s")).await, "running");
    fakes.members.behave("shop", "a", Behaviour::Ready);
    let operation = stack.ended(path).await;
    expect_state(&operation, "succeeded");
    assert!(operation["leftovers"].as_array().is_none_or(Vec::is_empty), "{operation:#}");
    assert!(fakes.ledger.all().is_empty());
}
