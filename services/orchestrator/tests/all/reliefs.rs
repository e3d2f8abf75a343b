//! Apps that suffer where they run are moved, if migration says so: one at a time, with a pause, and as an operation that people see.

use drover_api::plans::{Relief, SufferingApp};
use serde_json::Value;

use crate::base::member;
use crate::contention::{moves, stack, victim};
use crate::fakes::Fakes;
use crate::scenarios::expect_state;
use crate::support::Stack;
use drover_orchestrator::peers::Migration;

/// Migration says that these apps suffer on a, and would on the clusters to avoid.
fn suffer(fakes: &Fakes, apps: &[&str], avoid: &[&str]) {
    let claims: Vec<_> =
        fakes.ledger.all().into_iter().filter(|claim| apps.contains(&claim.request.app.as_str())).map(|claim| claim.id).collect();
    let suffering = claims.iter().map(|claim| SufferingApp {
        project: "p".into(),
        policy: "calm".into(),
        claim: *claim,
        member: member("a"),
        reason: "the memory of its fullest node is in use by 95 %".into(),
        seconds: 130,
        for_seconds: 120,
    });
    *fakes.plans.suffering.lock().unwrap() = suffering.collect();
    let relief = Relief {
        project: "p".into(),
        policy: "calm".into(),
        member: member("a"),
        claims,
        avoid: avoid.iter().map(|cluster| member(cluster)).collect(),
        reason: "the memory of its fullest node is in use by 95 %".into(),
        rest_seconds: 600,
    };
    *fakes.plans.reliefs.lock().unwrap() = vec![relief];
}

/// What the list of apps says of an app that suffers: the policy, and what was tried.
async fn said(stack: &Stack, app: &str) -> Option<(String, Option<String>)> {
    let apps = stack.get("/v2/apps").await;
    let found = apps["items"].as_array().unwrap().iter().find(|one| one["app"] == app).cloned().unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let one = found["suffering"].as_array()?.first()?.clone();
    Some((text(&one["policy"]).unwrap(), text(&one["attempt"])))
}

/// The operations that moved apps for this reason.
async fn reliefs(stack: &Stack) -> Vec<Value> {
    let all = stack.get("/v2/operations").await["items"].as_array().unwrap().clone();
    all.into_iter().filter(|one| one["subject"] == "relieve onprem+a for p").collect()
}

#[tokio::test]
async fn app_that_suffers_moves_to_a_cluster_that_is_better_and_then_there_is_a_pause() {
    let (fakes, stack) = stack().await;
    victim(&fakes, &stack, "v", "300m", &["a", "b", "c"]).await;
    victim(&fakes, &stack, "v2", "300m", &["a", "b", "c"]).await;
    victim(&fakes, &stack, "calm", "300m", &["a"]).await;
    stack.app.relieve().await.unwrap();
    assert!(reliefs(&stack).await.is_empty(), "nobody suffers");

    suffer(&fakes, &["v", "v2", "calm"], &["b"]);
    assert_eq!(said(&stack, "v2").await, None, "nobody suffered at the last pass");
    stack.app.relieve().await.unwrap();
    let begun = reliefs(&stack).await;
    let (policy, attempt) = said(&stack, "v2").await.unwrap();
    let operation = begun[0]["id"].as_str().unwrap();
    assert_eq!((policy.as_str(), attempt), ("calm", Some(format!("operation {operation} moves one of the apps that suffer there"))));
    assert_eq!((begun.len(), &begun[0]["kind"]), (1, &Value::from("relocate")), "{begun:#?}");
    let ended = stack.ended(&format!("/v2/operations/{}", begun[0]["id"].as_str().unwrap())).await;
    expect_state(&ended, "succeeded");
    let plan = fakes.plans.plan_read(ended["plan"].as_str().unwrap().parse().unwrap()).await.unwrap().unwrap();
    let reason = "the memory of its fullest node is in use by 95 %; the policy calm makes that a reason to move an app";
    assert_eq!(plan.reason.as_deref(), Some(reason));
    assert_eq!(moves(&ended), ["v/v onprem+a->aws+c done"], "b would be no better");
    assert_eq!(fakes.ledger.summary(), ["calm@a held", "v@c held", "v2@a held"]);

    // It is still said, but there is a pause; also for a process that has just started and remembers nothing.
    suffer(&fakes, &["v2"], &[]);
    stack.app.relieve().await.unwrap();
    stack.app.relief_attempts.forget();
    stack.app.relieve().await.unwrap();
    assert_eq!(reliefs(&stack).await.len(), 1);
}

#[tokio::test]
async fn app_that_suffers_stays_if_no_other_cluster_is_better() {
    let (fakes, stack) = stack().await;
    victim(&fakes, &stack, "v", "300m", &["a", "b"]).await;
    suffer(&fakes, &["v"], &["b"]);
    stack.app.relieve().await.unwrap();
    stack.app.relieve().await.unwrap();
    assert!(reliefs(&stack).await.is_empty());
    let attempt = said(&stack, "v").await.unwrap().1.unwrap();
    assert!(attempt.starts_with("no plan helps, as plan "), "{attempt}");
    assert_eq!(fakes.plans.count(), 1, "one attempt, which is stored with its reasons");
    assert_eq!(fakes.ledger.summary(), ["v@a held"]);
}
