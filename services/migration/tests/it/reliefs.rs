//! Where apps suffer, as the active policy of their project says.

use drover_api::plans::{PlanDocument, PlanOrder, PlanState, PlanSubject, Relief, ReliefList};
use drover_scheduling::{Capacity, Claim, MemberKey, PlanKind};
use drover_testkit::{eventually, test_db};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{FakePeers, Migration, TIMEOUT, capacity, claim, moved, newcomer};

const A: &str = "onprem+a";
const ALL: [&str; 3] = ["onprem+a", "aws+b", "aws+c"];

/// A capacity on which agents report this of each app.
fn reported(apps: &[(&Claim, u64)]) -> Capacity {
    let used: Vec<(&Claim, i64)> = apps.iter().map(|(claim, _)| (*claim, 10)).collect();
    let mut capacity = capacity(1000, &used);
    for (claim, percent) in apps {
        capacity.observed.get_mut(&claim.id).unwrap().memory_pressure = Some(*percent);
    }
    capacity
}

async fn due(migration: &Migration) -> ReliefList {
    migration.ok(Method::GET, "/internal/reliefs", &Value::Null).await
}

async fn of_a(migration: &Migration) -> Option<Relief> {
    due(migration).await.items.into_iter().find(|relief| relief.member.0 == A)
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_says_when_it_is_time_and_the_plan_moves_one_app() {
    let (db, peers) = (test_db().await, FakePeers::start().await);
    let (web, db_app, other) = (claim("web", 300, A, &ALL), claim("store", 300, A, &ALL), claim("other", 300, "aws+b", &["aws+b"]));
    for one in [&web, &db_app, &other] {
        peers.claim(one);
    }
    peers.member(A, 1, reported(&[(&web, 95), (&db_app, 20)]));
    peers.member("aws+b", 5, reported(&[(&other, 92)]));
    peers.member("aws+c", 5, capacity(1000, &[]));
    let migration = Migration::start(&db, &peers).await;
    migration.movable(&peers, &web, 5).await;
    migration.movable(&peers, &db_app, 1).await;
    assert!(due(&migration).await.items.is_empty());

    // Without `plannedMoves` nothing is due, whatever is reported; the second look finds nothing either.
    migration.policy(json!({"active": true})).await;
    let bad = json!({"active": true, "plannedMoves": {"when": [{"metric": "memory_pressure", "above": 90, "until": 95}]}});
    let body = json!({"metadata": {"name": "p"}, "spec": bad});
    let refused = migration.refused(Method::PUT, "/v2/projects/default/migration-policies/p", &body, 400, "invalid").await;
    assert!(refused.to_string().contains("until no more than above"), "{refused}");
    assert!(due(&migration).await.items.is_empty());

    let when = json!([{"metric": "memory_pressure", "above": 90, "forSeconds": 0}]);
    let later = json!([{"metric": "memory_pressure", "above": 90, "forSeconds": 3600}]);
    migration.policy(json!({"active": true, "plannedMoves": {"when": later}})).await;
    let counting = eventually(TIMEOUT, async || due(&migration).await.suffering.into_iter().find(|one| one.claim == web.id)).await;
    assert_eq!((counting.member.0.as_str(), counting.policy.as_str(), counting.for_seconds), (A, "p", 3600), "{counting:?}");
    assert!(counting.reason.contains("in use by 95 %, above 90 %"), "{counting:?}");
    assert!(due(&migration).await.items.is_empty(), "it is not time yet");
    migration.policy(json!({"active": true, "plannedMoves": {"when": when, "restSeconds": 300}})).await;
    let relief = eventually(TIMEOUT, async || of_a(&migration).await).await;
    assert_eq!((relief.project.as_str(), relief.policy.as_str(), relief.rest_seconds), ("default", "p", 300));
    assert_eq!((relief.member.0.as_str(), relief.claims.as_slice(), relief.avoid.len()), (A, &[web.id][..], 1), "{relief:?}");

    let kind = PlanKind::Relieve {
        member: relief.member,
        project: relief.project,
        claims: relief.claims,
        demand: None,
        reason: "it suffers".into(),
    };
    let plan = migration.plan(&PlanOrder { kind, ..newcomer("nobody", vec![]) }).await;
    assert_eq!((&plan.kind, plan.state), (&PlanSubject::Relieve(MemberKey(A.into())), PlanState::Proposed));
    let stored: PlanDocument = migration.ok(Method::GET, &format!("/v2/plans/{}", plan.id), &Value::Null).await;
    assert_eq!((plan.reason.as_deref(), stored.reason.as_deref()), (Some("it suffers"), Some("it suffers")));
    assert_eq!(moved(&plan), ["web"], "the app that suffers moves, not the one that would be the first for a newcomer");

    // It does not suffer any more.
    peers.member(A, 1, reported(&[(&web, 50), (&db_app, 20)]));
    eventually(TIMEOUT, async || of_a(&migration).await.is_none().then_some(())).await;
}
