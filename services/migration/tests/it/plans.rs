//! Plans: victims and reasons, the required version of the fleet, acceptance.

use crate::support::{FakePeers, Migration, TIMEOUT, app, capacity, claim, dig, dig_path, moved, newcomer, operation_that_is};
use drover_api::digs::{DigHold, DigTerms};
use drover_api::ledger::FleetItem;
use drover_api::operations::OperationState;
use drover_api::plans::{PlanDocument, PlanList, PlanOrder, PlanState};
use drover_migration::PlanInput;
use drover_scheduling::{Claim, DigRef, FleetMember, MemberKey, MemberState, PlanResult};
use drover_store::{Store, StoreConfig};
use drover_testkit::{eventually, test_db};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

const A: &str = "onprem+a";
const BOTH: [&str; 2] = ["onprem+a", "aws+c"];

/// Cluster a is filled by two apps of 500m; `idle` uses 10m, `busy` 450m.
struct Full {
    peers: FakePeers,
    idle: Claim,
    busy: Claim,
}

async fn full() -> Full {
    let peers = FakePeers::start().await;
    let (idle, busy) = (claim("idle", 500, A, &BOTH), claim("busy", 500, A, &BOTH));
    peers.member(A, 1, capacity(1000, &[(&idle, 10), (&busy, 450)]));
    peers.member("aws+c", 5, capacity(2000, &[]));
    peers.claim(&idle);
    peers.claim(&busy);
    Full { peers, idle, busy }
}

#[tokio::test(flavor = "multi_thread")]
async fn apps_move_only_with_consent_of_owner() {
    let (db, full) = (test_db().await, full().await);
    let migration = Migration::start(&db, &full.peers).await;
    let order = newcomer("ledger", vec![app("ledger", 400, &[A])]);

    let refused = migration.plan(&order).await;
    assert_eq!(refused.state, PlanState::Infeasible);
    let reasons = refused.infeasible.unwrap();
    assert!(reasons.candidates.iter().all(|c| c.why_not.as_ref().is_some_and(|why| why.code == "no_intent")), "{reasons:#?}");

    migration.movable(&full.peers, &full.busy, 5).await;
    let plan = migration.plan(&order).await;
    assert_eq!((plan.state, moved(&plan)), (PlanState::Proposed, vec!["busy".to_owned()]));
    let step = &plan.plan.as_ref().unwrap().waves[0][0];
    assert_eq!((step.from.0.as_str(), step.to.0.as_str()), (A, "aws+c"));
    assert_eq!(plan.policy, "", "no policy is active");
    assert_eq!(plan.made_on, "0");
    let input: PlanInput = migration.ok(Method::GET, &format!("/internal/plans/{}/input", plan.id), &Value::Null).await;
    assert_eq!(input.plan(), PlanResult::Feasible(plan.plan.clone().unwrap()), "the stored input gives the same plan");
    let listed: PlanList = migration.ok(Method::GET, "/v2/plans", &Value::Null).await;
    assert_eq!(listed.items.iter().map(|plan| plan.id).collect::<Vec<_>>(), [plan.id, refused.id], "newest first");
    let page = async |query: String| -> PlanList { migration.ok(Method::GET, &format!("/v2/plans?{query}"), &Value::Null).await };
    assert_eq!(page("limit=1".to_owned()).await.items, listed.items[..1]);
    assert_eq!(page(format!("limit=1&after={}", plan.id)).await.items, listed.items[1..]);
    assert_eq!(page(format!("after={}", refused.id)).await.items, []);
    migration.refused(Method::GET, "/v2/plans?limit=0", &Value::Null, 400, "invalid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_and_custom_algorithms_choose_victims() {
    let (db, full) = (test_db().await, full().await);
    let migration = Migration::start(&db, &full.peers).await;
    migration.movable(&full.peers, &full.busy, 5).await;
    migration.movable(&full.peers, &full.idle, 5).await;
    let order = newcomer("ledger", vec![app("ledger", 400, &[A])]);

    let uses = |name: &str| json!({"mode": "order", "active": true, "algorithms": [{"algorithm": name}]});
    migration.policy(uses("CPUUtilization")).await;
    let least_busy = migration.plan(&order).await;
    assert_eq!((moved(&least_busy), least_busy.policy.as_str()), (vec!["idle".to_owned()], "p"));

    // A new algorithm, added over REST.
    let spec = json!({"expression": "cpu_requested - cpu_used", "prefer": "low"});
    let _: Value = migration.ok(Method::POST, "/v2/migration-algorithms", &json!({"metadata": {"name": "Slack"}, "spec": spec})).await;
    migration.policy(uses("Slack")).await;
    assert_eq!(moved(&migration.plan(&order).await), ["busy"]);

    // With the same algorithms, `order` and `scoring` choose different victims.
    let spec = json!({"source": "prometheus", "query": "errors{app=\"$app\"}"});
    let _: Value = migration.ok(Method::POST, "/v2/migration-parameters", &json!({"metadata": {"name": "errors"}, "spec": spec})).await;
    let _: Value = migration
        .ok(
            Method::POST,
            "/v2/migration-algorithms",
            &json!({"metadata": {"name": "Errors"}, "spec": {"expression": "errors", "prefer": "high"}}),
        )
        .await;
    full.peers.known.samples.lock().unwrap().extend([("errors{app=\"busy\"}".to_owned(), 9.0), ("errors{app=\"idle\"}".to_owned(), 1.0)]);
    let both = |mode: &str| {
        json!({"mode": mode, "active": true, "algorithms": [
        {"algorithm": "CPUUtilization", "weight": 1.0}, {"algorithm": "Errors", "weight": 3.0}]})
    };
    migration.policy(both("order")).await;
    assert_eq!(moved(&migration.plan(&order).await), ["idle"]);
    migration.policy(both("scoring")).await;
    assert_eq!(moved(&migration.plan(&order).await), ["busy"], "the value from Prometheus has the larger weight");

    // Policy tests, by name and with a spec.
    let first = |answer: &Value| answer["candidates"][0]["app"].clone();
    let named: Value = migration.ok(Method::POST, "/v2/policy-tests", &json!({"project": "default", "policy": "p", "member": A})).await;
    assert_eq!(first(&named), "busy");
    let inline: Value = migration
        .ok(Method::POST, "/v2/policy-tests", &json!({"policy": {"algorithms": [{"algorithm": "CPUUtilization"}]}, "member": A}))
        .await;
    assert_eq!(first(&inline), "idle");
    migration.refused(Method::POST, "/v2/policy-tests", &json!({"policy": "nobody", "member": A}), 404, "not_found").await;
    migration.refused(Method::POST, "/v2/policy-tests", &json!({"policy": "p", "member": "no+where"}), 400, "unknown_cluster").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_moves_apps_of_the_projects_that_may_be_moved_only() {
    let (db, full) = (test_db().await, full().await);
    let migration = Migration::start(&db, &full.peers).await;
    migration.movable(&full.peers, &full.busy, 5).await;
    let order = |projects: &[&str]| {
        let movable_projects = Some(projects.iter().map(|name| (*name).to_owned()).collect());
        PlanOrder { movable_projects, ..newcomer("ledger", vec![app("ledger", 400, &[A])]) }
    };
    assert_eq!(moved(&migration.plan(&order(&["other", "default"])).await), ["busy"]);
    let none = migration.plan(&order(&["other"])).await.infeasible.expect("nothing else may be moved");
    let why: Vec<_> = none.candidates.iter().filter_map(|candidate| candidate.why_not.clone()).map(|why| why.detail).collect();
    assert!(why.iter().any(|why| why.contains("it belongs to another project")), "{why:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn app_whose_claim_is_released_needs_no_room_beside_itself() {
    let (db, full) = (test_db().await, full().await);
    let migration = Migration::start(&db, &full.peers).await;
    migration.movable(&full.peers, &full.idle, 5).await;
    // An update in which the pod of `busy` gets larger. What is observed of it belongs to the released claim.
    let order = PlanOrder { released: vec![full.busy.id], ..newcomer("busy", vec![app("busy", 900, &[A])]) };
    let plan = migration.plan(&order).await;
    assert_eq!((plan.state, moved(&plan)), (PlanState::Proposed, vec!["idle".to_owned()]), "{:#?}", plan.infeasible);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_is_accepted_once() {
    let (db, full) = (test_db().await, full().await);
    let migration = Migration::start(&db, &full.peers).await;
    migration.movable(&full.peers, &full.busy, 5).await;
    let order = serde_json::to_value(newcomer("ledger", vec![app("ledger", 400, &[A])])).unwrap();
    let (id, mine, theirs) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
    let made: PlanDocument = migration.ok(Method::PUT, &format!("/internal/plans/{id}"), &order).await;
    let again: PlanDocument = migration.ok(Method::PUT, &format!("/internal/plans/{id}"), &order).await;
    assert_eq!(again, made, "the same id gets the stored plan");

    let state = format!("/internal/plans/{id}/state");
    for _ in 0..2 {
        let accepted: PlanDocument = migration.ok(Method::PUT, &state, &json!({"operation": mine})).await;
        assert_eq!((accepted.state, accepted.operation), (PlanState::Accepted, Some(mine)));
    }
    migration.refused(Method::PUT, &state, &json!({"operation": theirs}), 409, "plan_not_proposed").await;
    migration.refused(Method::DELETE, &format!("/v2/plans/{id}"), &Value::Null, 409, "plan_not_proposed").await;

    let other: PlanDocument = migration.ok(Method::PUT, &format!("/internal/plans/{}", Uuid::now_v7()), &order).await;
    let path = format!("/v2/plans/{}", other.id);
    for _ in 0..2 {
        assert_eq!(migration.send(Method::DELETE, &path, None::<&()>).await.0, StatusCode::NO_CONTENT);
    }
    let discarded: PlanDocument = migration.ok(Method::GET, &path, &Value::Null).await;
    assert_eq!(discarded.state, PlanState::Discarded);
    migration
        .refused(Method::PUT, &format!("/internal/plans/{}/state", other.id), &json!({"operation": mine}), 409, "plan_not_proposed")
        .await;
    let nobody = Uuid::now_v7();
    migration.refused(Method::DELETE, &format!("/v2/plans/{nobody}"), &Value::Null, 404, "not_found").await;
    migration.refused(Method::PUT, &format!("/internal/plans/{nobody}/state"), &json!({"operation": mine}), 404, "not_found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_ends_as_its_operation_ends() {
    let (db, full) = (test_db().await, full().await);
    let migration = Migration::start(&db, &full.peers).await;
    migration.movable(&full.peers, &full.busy, 5).await;
    let order = |operation| PlanOrder { operation, ..newcomer("ledger", vec![app("ledger", 400, &[A])]) };
    let accepted = async |operation: Uuid| {
        let plan = migration.plan(&order(None)).await;
        let state = format!("/internal/plans/{}/state", plan.id);
        let _: PlanDocument = migration.ok(Method::PUT, &state, &json!({"operation": operation})).await;
        plan.id
    };
    let (applied, refused, running) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
    let plans = [accepted(applied).await, accepted(refused).await, accepted(running).await];
    // An operation that plans twice, and ends without using its second plan either.
    let fickle = Uuid::now_v7();
    let replaced = migration.plan(&order(Some(fickle))).await.id;
    let unused = migration.plan(&order(Some(fickle))).await.id;

    let read = async |id: Uuid| -> PlanDocument { migration.ok(Method::GET, &format!("/v2/plans/{id}"), &Value::Null).await };
    let first = read(replaced).await;
    assert_eq!((first.state, first.why), (PlanState::Superseded, Some(format!("operation {fickle} planned again"))));
    let ends = [
        operation_that_is(applied, OperationState::Succeeded, None),
        operation_that_is(refused, OperationState::Failed, Some("world_changed")),
        operation_that_is(fickle, OperationState::Cancelled, None),
    ];
    full.peers.known.operations.lock().unwrap().extend(ends.map(|operation| (operation.id, operation)));
    full.peers.head(50);
    let ended = async |id: Uuid| {
        eventually(TIMEOUT, async || {
            let plan = read(id).await;
            (!matches!(plan.state, PlanState::Accepted | PlanState::Proposed)).then_some((plan.state, plan.operation, plan.why))
        })
        .await
    };
    assert_eq!(ended(plans[0]).await, (PlanState::Applied, Some(applied), None));
    assert_eq!(ended(plans[1]).await, (PlanState::Refused, Some(refused), Some("as it is".into())));
    let why = format!("operation {fickle} was cancelled before it used the plan");
    assert_eq!(ended(unused).await, (PlanState::Superseded, None, Some(why)));
    assert_eq!(read(plans[2]).await.state, PlanState::Accepted, "its operation still runs");
    migration.refused(Method::DELETE, &format!("/v2/plans/{}", plans[0]), &Value::Null, 409, "plan_not_proposed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_are_deleted_after_the_configured_number_of_days() {
    let (db, full) = (test_db().await, full().await);
    let migration = Migration::start(&db, &full.peers).await;
    migration.movable(&full.peers, &full.busy, 5).await;
    let order = newcomer("ledger", vec![app("ledger", 400, &[A])]);
    let [old, carried_out, recent] = [migration.plan(&order).await, migration.plan(&order).await, migration.plan(&order).await];
    let state = format!("/internal/plans/{}/state", carried_out.id);
    let _: PlanDocument = migration.ok(Method::PUT, &state, &json!({"operation": Uuid::now_v7()})).await;
    migration.kill();
    let store = Store::connect(&StoreConfig::new("migration", db.url.clone()), &[]).await.unwrap();
    let age = "update plan set created_at = created_at - interval '31 days' where id = any($1)";
    sqlx::query(age).bind(vec![old.id, carried_out.id]).execute(&mut *store.acquire().await.unwrap()).await.unwrap();

    let migration = Migration::start(&db, &full.peers).await;
    let ids = eventually(TIMEOUT, async || {
        let list: PlanList = migration.ok(Method::GET, "/v2/plans", &Value::Null).await;
        let ids: Vec<Uuid> = list.items.iter().map(|plan| plan.id).collect();
        (ids.len() == 2).then_some(ids)
    })
    .await;
    assert_eq!(ids, [recent.id, carried_out.id], "an accepted plan is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_may_withdraw_consent_until_plan_is_accepted() {
    let (db, full) = (test_db().await, full().await);
    let migration = Migration::start(&db, &full.peers).await;
    migration.movable(&full.peers, &full.busy, 5).await;
    let plan = migration.plan(&newcomer("ledger", vec![app("ledger", 400, &[A])])).await;
    assert_eq!(moved(&plan), ["busy"]);
    migration.consent(&full.busy, false).await;
    let (state, operation) = (format!("/internal/plans/{}/state", plan.id), Uuid::now_v7());
    let problem = migration.refused(Method::PUT, &state, &json!({"operation": operation}), 409, "world_changed").await;
    assert!(problem["reasons"][0].as_str().unwrap().contains("busy/busy"), "{problem:#}");
    migration.consent(&full.busy, true).await;
    let accepted: PlanDocument = migration.ok(Method::PUT, &state, &json!({"operation": operation})).await;
    assert_eq!(accepted.state, PlanState::Accepted, "the owner agrees again");
}

#[tokio::test(flavor = "multi_thread")]
async fn held_group_is_no_candidate_and_its_intents_are_locked() {
    let (db, full) = (test_db().await, full().await);
    let migration = Migration::start(&db, &full.peers).await;
    migration.movable(&full.peers, &full.busy, 5).await;
    migration.movable(&full.peers, &full.idle, 5).await;
    let terms = DigTerms { dig: dig("ledger"), state: "Approved".into(), revision: 0, apps: vec![app("ledger", 400, &[A])] };
    full.peers.known.digs.lock().unwrap().insert("ledger".into(), terms);
    let (operation, path) = (Uuid::now_v7(), dig_path("busy"));
    *full.peers.known.holds.lock().unwrap() = vec![DigHold { dig: full.busy.dig.id, path: path.clone(), operation }];

    let newcomer = json!({"kind": "newcomer", "project": "default", "compositeApp": "ledger", "compositeAppVersion": "v1",
        "deploymentIntentGroup": "ledger"});
    let drain = json!({"kind": "drain", "clusterProvider": "onprem", "cluster": "a"});
    let why = |candidates: &[drover_scheduling::Candidate]| {
        let busy = candidates.iter().find(|candidate| candidate.app == "busy").unwrap();
        busy.why_not.as_ref().map(|why| (why.code.clone(), why.detail.contains(&operation.to_string())))
    };
    let plan: PlanDocument = migration.ok(Method::POST, "/v2/plans", &newcomer).await;
    assert_eq!(moved(&plan), ["idle"]);
    assert_eq!(why(&plan.plan.unwrap().candidates), Some(("busy".to_owned(), true)));
    let plan: PlanDocument = migration.ok(Method::POST, "/v2/plans", &drain).await;
    assert_eq!(why(&plan.infeasible.unwrap().candidates), Some(("busy".to_owned(), true)));

    let spec = json!({"metadata": {"name": "m"}, "spec": {"app": "busy", "migration": false}});
    let intent = format!("{path}/migration-intents/m");
    for (method, path, body) in
        [(Method::PUT, format!("{intent}/app-intents/m"), &spec), (Method::DELETE, format!("{intent}/app-intents/m"), &Value::Null)]
    {
        let problem = migration.refused(method, &path, body, 409, "busy").await;
        assert_eq!(problem["instance"], format!("/v2/operations/{operation}"));
    }
    migration.consent(&full.idle, false).await;
    full.peers.known.holds.lock().unwrap().clear();
    migration.consent(&full.busy, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_can_request_plans() {
    let (db, full) = (test_db().await, full().await);
    let migration = Migration::start(&db, &full.peers).await;
    migration.movable(&full.peers, &full.busy, 5).await;
    let terms = |dig, state: &str| DigTerms { dig, state: state.into(), revision: 0, apps: vec![app("ledger", 400, &[A])] };
    let known = [("ledger", terms(dig("ledger"), "Approved")), ("busy", terms(DigRef::clone(&full.busy.dig), "Instantiated"))];
    full.peers.known.digs.lock().unwrap().extend(known.map(|(name, terms)| (name.to_owned(), terms)));
    let wish = |name: &str| {
        json!({
            "kind": "newcomer", "project": "default", "compositeApp": name, "compositeAppVersion": "v1", "deploymentIntentGroup": name,
        })
    };

    let dry: PlanDocument = migration.ok(Method::POST, "/v2/plans?dryRun=All", &wish("ledger")).await;
    migration.refused(Method::GET, &format!("/v2/plans/{}", dry.id), &Value::Null, 404, "not_found").await;
    let made: PlanDocument = migration.ok(Method::POST, "/v2/plans", &wish("ledger")).await;
    assert_eq!((made.state, moved(&made)), (PlanState::Proposed, vec!["busy".to_owned()]));
    let waves = |plan: &PlanDocument| plan.plan.as_ref().unwrap().waves.clone();
    assert_eq!(waves(&dry), waves(&made), "the dry run gives the same plan");
    migration.refused(Method::POST, "/v2/plans", &wish("busy"), 409, "wrong_state").await;
    migration.refused(Method::POST, "/v2/plans", &wish("nobody"), 404, "not_found").await;
    migration.refused(Method::POST, "/v2/plans", &json!({"kind": "rebalance"}), 400, "invalid").await;
    migration.refused(Method::POST, "/v2/plans?dryRun=Some", &wish("ledger"), 400, "invalid").await;
    migration.refused(Method::POST, "/v2/plans?planSeconds=0", &wish("ledger"), 400, "invalid").await;
    let searched: PlanDocument = migration.ok(Method::POST, "/v2/plans?dryRun=All&planSeconds=2&fewestMoves=true", &wish("ledger")).await;
    assert_eq!(moved(&searched), ["busy"]);

    let drain = |cluster: &str| json!({"kind": "drain", "clusterProvider": "onprem", "cluster": cluster});
    migration.refused(Method::POST, "/v2/plans", &drain("nowhere"), 400, "unknown_cluster").await;
    let stuck: PlanDocument = migration.ok(Method::POST, "/v2/plans", &drain("a")).await;
    assert_eq!(stuck.state, PlanState::Infeasible, "idle may not move");
    migration.movable(&full.peers, &full.idle, 5).await;
    let drained: PlanDocument = migration.ok(Method::POST, "/v2/plans", &drain("a")).await;
    assert_eq!((drained.state, moved(&drained).len()), (PlanState::Proposed, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_waits_for_required_ledger_sequence() {
    let (db, full) = (test_db().await, full().await);
    let migration = Migration::start(&db, &full.peers).await;
    migration.movable(&full.peers, &full.busy, 5).await;
    let mut order = newcomer("ledger", vec![app("ledger", 400, &[A])]);
    order.after_seq = Some(41);
    let path = format!("/internal/plans/{}", Uuid::now_v7());
    let body = serde_json::to_value(&order).unwrap();
    migration.refused(Method::PUT, &path, &body, 503, "capacity_unknown").await;

    // Another app takes the destination. The plan waits for this change and does not use the destination.
    let thief = claim("thief", 2000, "aws+c", &["aws+c"]);
    let (plan, ()) = tokio::join!(migration.plan(&order), async {
        full.peers.claim(&thief);
        full.peers.head(41);
    });
    assert_eq!((plan.state, plan.made_on.as_str()), (PlanState::Infeasible, "41"));
    full.peers.tell(&format!("claim/{}", thief.id), None);
    full.peers.head(42);
    order.after_seq = Some(42);
    let plan = migration.plan(&order).await;
    assert_eq!((plan.state, plan.made_on.as_str()), (PlanState::Proposed, "42"));
    let infeasible_elsewhere = newcomer("big", vec![app("big", 4000, &[A])]);
    let refused = migration.plan(&infeasible_elsewhere).await;
    assert_eq!(refused.state, PlanState::Infeasible);
    assert!(refused.infeasible.unwrap().members.iter().any(|why| why.member == MemberKey(A.into()) && !why.reason.is_empty()));
}

/// After a restart of placement and migration the members are known before their capacity. Callers that wait for a plan must get
/// `capacity_unknown` then, not the answer that there is none.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_capacity_is_not_reported_as_infeasible() {
    let (db, full) = (test_db().await, full().await);
    full.peers.tell(&format!("capacity/{A}"), None);
    full.peers.tell("capacity/aws+c", None);
    let migration = Migration::start(&db, &full.peers).await;
    migration.movable(&full.peers, &full.busy, 5).await;
    let mut order = newcomer("ledger", vec![app("ledger", 400, &[A])]);
    order.patient = true;
    let (path, body) = (format!("/internal/plans/{}", Uuid::now_v7()), serde_json::to_value(&order).unwrap());
    let refuse = async || migration.refused(Method::PUT, &path, &body, 503, "capacity_unknown").await;
    assert!(refuse().await["detail"].as_str().unwrap().contains(A));
    let plans: PlanList = migration.ok(Method::GET, "/v2/plans", &Value::Null).await;
    assert!(plans.items.is_empty(), "a refusal stores no plan");

    // The capacity of the full cluster arrives, that of the destination does not.
    full.peers.member(A, 1, capacity(1000, &[(&full.idle, 10), (&full.busy, 450)]));
    eventually(TIMEOUT, async || refuse().await["detail"].as_str().unwrap().contains("aws+c").then_some(())).await;
    // It arrives while the plan is made: the repeated request gets a plan with the same id.
    let asked = migration.plan_at(&path, &order);
    let (plan, ()) = tokio::join!(asked, async { full.peers.member("aws+c", 5, capacity(2000, &[])) });
    assert_eq!((plan.state, moved(&plan)), (PlanState::Proposed, vec!["busy".to_owned()]));

    // A member that is reported as unreachable is not awaited.
    let set_state = |state| {
        let member = FleetMember { key: MemberKey("aws+c".into()), priority: 5, state, ..FleetMember::default() };
        full.peers.tell("member/aws+c", Some(FleetItem::Member(Box::new(member))));
        full.peers.tell("capacity/aws+c", None);
    };
    set_state(MemberState::Ready);
    // Until migration has followed the feed, a plan may still use the capacity it knew.
    let refused = eventually(TIMEOUT, async || {
        let (status, answer) = migration.send(Method::PUT, &format!("/internal/plans/{}", Uuid::now_v7()), Some(&body)).await;
        (!status.is_success()).then_some((status.as_u16(), answer))
    })
    .await;
    assert_eq!((refused.0, refused.1["code"].as_str()), (503, Some("capacity_unknown")), "{:#}", refused.1);
    set_state(MemberState::Unreachable);
    let refused = eventually(TIMEOUT, async || {
        let (status, answer) = migration.send(Method::PUT, &format!("/internal/plans/{}", Uuid::now_v7()), Some(&body)).await;
        status.is_success().then(|| serde_json::from_value::<PlanDocument>(answer).unwrap())
    })
    .await;
    assert_eq!(refused.state, PlanState::Infeasible);
    // A caller that is not patient gets the plan for the known capacity.
    set_state(MemberState::Ready);
    order.patient = false;
    eventually(TIMEOUT, async || {
        let told = migration.plan(&order).await;
        told.infeasible.is_some_and(|why| why.awaited == [MemberKey("aws+c".into())]).then_some(())
    })
    .await;
}
