//! Apps that suffer where they run are moved, if migration says so: one at a time, with a pause, and as an operation that people see.

use drover_api::plans::Relief;
use serde_json::Value;

use crate::base::member;
use crate::contention::{moves, stack, victim};
use crate::fakes::Fakes;
use crate::scenarios::expect_state;
use crate::support::Stack;

/// Migration says that these apps suffer on a, and would on the clusters to avoid.
fn suffer(fakes: &Fakes, apps: &[&str], avoid: &[&str]) {
    let claims = fakes.ledger.all().into_iter().filter(|claim| apps.contains(&claim.request.app.as_str())).map(|claim| claim.id);
    let relief = Relief {
        project: "p".into(),
        policy: "calm".into(),
        member: member("a"),
        claims: claims.collect(),
        avoid: avoid.iter().map(|cluster| member(cluster)).collect(),
        reason: "the memory of its fullest node is in use by 95 %".into(),
        rest_seconds: 600,
    };
    *fakes.plans.reliefs.lock().unwrap() = vec![relief];
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
    stack.app.relieve().await.unwrap();
    let begun = reliefs(&stack).await;
    assert_eq!((begun.len(), &begun[0]["kind"]), (1, &Value::from("relocate")), "{begun:#?}");
    let ended = stack.ended(&format!("/v2/operations/{}", begun[0]["id"].as_str().unwrap())).await;
    expect_state(&ended, "succeeded");
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
    assert_eq!(fakes.plans.count(), 1, "one attempt, which is stored with its reasons");
    assert_eq!(fakes.ledger.summary(), ["v@a held"]);
}
