//! Decisions over REST: idempotent, explained, and never based on unknown capacity.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{ClusterManager, Placement, TIMEOUT, app, bindings, dig, member, nodes, request, transaction};
use drover_api::ledger::{ClaimHead, ClaimHeads, DecisionRecord, ExplainQuestion, FleetItem};
use drover_scheduling::{
    Amounts, AppRequest, CallTerms, CallTo, Capacity, Considered, DecisionRequest, GroupPolicy, LedgerChange, MemberKey, MemberState, Node,
    Observed, Outcome, RefusedDestination, Verdict,
};
use drover_testkit::{eventually, openapi, test_db};
use reqwest::{Method, StatusCode};
use uuid::Uuid;

const BOTH: [&str; 2] = ["aws+c", "onprem+a"];

async fn two_members() -> ClusterManager {
    let manager = ClusterManager::start().await;
    manager.member("onprem+a", 1, nodes(1, 1000));
    manager.member("aws+c", 5, nodes(1, 1000));
    manager
}

#[test]
fn openapi_document_matches_golden_file() {
    openapi::assert_golden("placement", &serde_json::to_value(drover_placement::openapi()).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_fills_the_preferred_member_first_and_is_idempotent() {
    let (db, manager) = (test_db().await, two_members().await);
    let placement = Placement::start(&db, &manager).await;
    let (id, shop) = (Uuid::now_v7(), dig("shop"));
    let wanted = request(&shop, vec![app("cart", 1, 600, &BOTH), app("web", 1, 600, &BOTH)]);

    let decision = placement.decide(id, &wanted).await;
    assert_eq!(decision.outcome, Outcome::Placed);
    let placed = bindings(&decision);
    let mut members: Vec<&str> = placed.values().map(|(_, member)| member.as_str()).collect();
    members.sort_unstable();
    assert_eq!(members, BOTH, "the preferred member has room for one app only");
    assert_eq!(placement.decide(id, &wanted).await, decision, "a repeated id gets the stored answer");

    let claims = placement.claims(&format!("dig={}", shop.id)).await;
    assert_eq!(claims.items.len(), 2);
    assert_eq!(placement.claims("member=onprem%2Ba").await.items.len(), 1);
    let mut heads = placement.get::<ClaimHeads>("/internal/claims/heads").await.items;
    heads.sort_by_key(|head| claims.items.iter().position(|claim| claim.id == head.id));
    assert_eq!(heads, claims.items.iter().map(ClaimHead::from).collect::<Vec<_>>());
    assert_eq!(placement.claims(&format!("operation={}", Uuid::now_v7())).await.items.len(), 0);

    let record: DecisionRecord = placement.get(&format!("/v2/decisions/{id}")).await;
    assert_eq!((record.decision, record.request), (decision.clone(), Some(wanted.clone())));
    let (status, problem) = placement.send(Method::GET, &format!("/v2/decisions/{}", Uuid::now_v7()), None::<&()>).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::NOT_FOUND, Some("not_found")));

    let clusters = placement.clusters().await;
    assert_eq!(clusters[0].member.0, "onprem+a", "in order of preference");
    assert_eq!((clusters[0].total.requested.cpu, clusters[0].total.free.cpu), (600, 400));
    assert_eq!(clusters[0].apps.len(), 1);
    let fleet = placement.fleet().await;
    assert!(matches!(&fleet["head"], FleetItem::Head(head) if head.seq == decision.seq));
    assert!(matches!(&fleet["member/onprem+a"], FleetItem::Member(member) if member.priority == 1));
    assert!(matches!(&fleet["capacity/aws+c"], FleetItem::Capacity(capacity) if capacity.nodes.len() == 1));
    for (binding, member) in placed.values() {
        assert!(matches!(&fleet[&format!("claim/{binding}")], FleetItem::Claim(published) if published.claim.member.0 == *member));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_writes_nothing_and_predicts_the_decision() {
    let (db, manager) = (test_db().await, two_members().await);
    let placement = Placement::start(&db, &manager).await;
    let wanted = request(&dig("shop"), vec![app("cart", 2, 300, &BOTH)]);
    let (status, tried) = placement.send(Method::POST, "/internal/decisions/dry-run", Some(&wanted)).await;
    assert_eq!(status, StatusCode::OK);
    assert!(placement.claims("").await.items.is_empty());
    let done = serde_json::to_value(placement.decide(Uuid::now_v7(), &wanted).await).unwrap();
    let chosen = |decision: &serde_json::Value| decision["apps"][0]["groups"][0]["placement"]["member"].clone();
    assert_eq!((&tried["outcome"], chosen(&tried)), (&done["outcome"], chosen(&done)));
}

#[tokio::test(flavor = "multi_thread")]
async fn outcome_tells_no_room_unknown_and_impossible_apart() {
    let (db, manager) = (test_db().await, two_members().await);
    let placement = Placement::start(&db, &manager).await;
    let big = |members: &[&str]| request(&dig("big"), vec![app("big", 1, 1500, members)]);

    let refused = placement.decide(Uuid::now_v7(), &big(&BOTH)).await;
    assert_eq!(refused.outcome, Outcome::NoRoom);
    let considered = &refused.apps[0].groups[0].considered;
    assert!(considered.iter().all(|c| c.verdict == Verdict::NoRoom && c.reason.contains("cpu")), "{considered:#?}");
    let nowhere = placement.decide(Uuid::now_v7(), &big(&["nobody+x"])).await;
    assert_eq!(nowhere.outcome, Outcome::Impossible);

    // An outdated capacity is unknown: nothing is claimed there, but it does not count as "no room".
    manager.report("onprem+a", Some(Capacity { nodes: Arc::new(nodes(1, 4000)), age_ms: Capacity::FRESH_MS + 1, ..Capacity::default() }));
    eventually(TIMEOUT, async || (placement.decide(Uuid::now_v7(), &big(&BOTH)).await.outcome == Outcome::Unknown).then_some(())).await;
    eventually(TIMEOUT, async || (!placement.fleet().await.contains_key("capacity/onprem+a")).then_some(())).await;
    manager.report("onprem+a", Some(Capacity { nodes: Arc::new(nodes(1, 4000)), ..Capacity::default() }));
    eventually(TIMEOUT, async || (placement.decide(Uuid::now_v7(), &big(&BOTH)).await.outcome == Outcome::Placed).then_some(())).await;
    assert_eq!(placement.claims("").await.items.len(), 1, "only the placed app has a claim");
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_is_refused_until_the_members_are_known() {
    let db = test_db().await;
    let placement = Placement::assemble(&db, "http://127.0.0.1:1/".parse().unwrap(), true).await;
    let wanted = request(&dig("shop"), vec![app("cart", 1, 100, &BOTH)]);
    let (status, problem) = placement.send(Method::PUT, &format!("/internal/decisions/{}", Uuid::now_v7()), Some(&wanted)).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::SERVICE_UNAVAILABLE, Some("capacity_unknown")));
    let (status, _) = placement.send(Method::GET, "/readyz", None::<&()>).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(placement.fleet().await.is_empty(), "the head is not published before the members");
}

#[tokio::test(flavor = "multi_thread")]
async fn explanation_shows_the_decision_and_what_would_be_decided_now() {
    let (db, manager) = (test_db().await, two_members().await);
    let placement = Placement::start(&db, &manager).await;
    let shop = dig("shop");
    let decision = placement.decide(Uuid::now_v7(), &request(&shop, vec![app("cart", 1, 600, &BOTH)])).await;
    let (binding, _) = bindings(&decision)["cart"].clone();

    let why = placement.explain("cart", &[]).await;
    assert!(!why.moved);
    assert_eq!(why.room[0].member.0, "onprem+a");
    assert_eq!(why.decided.unwrap().id, Some(decision.id));
    assert_eq!(why.now.unwrap().outcome, Outcome::Placed, "the app's own claim does not count");

    // Its pods are observed now: they do not count as pods of others either.
    let observed = Observed { requests: BTreeMap::from([("n0".to_owned(), Amounts::pod(600, 600 << 20))]).into(), ..Observed::default() };
    let capacity = Capacity { nodes: Arc::new(nodes(1, 1001)), observed: BTreeMap::from([(binding, observed)]), ..Capacity::default() };
    manager.report("onprem+a", Some(capacity));
    eventually(TIMEOUT, async || placement.clusters().await.iter().any(|c| c.total.allocatable.cpu == 1001).then_some(())).await;
    let why = placement.explain("cart", &[]).await;
    let now = why.now.unwrap().decision.groups[0].clone();
    assert_eq!(now.placement.map(|placement| placement.member.0).as_deref(), Some("onprem+a"), "{:#?}", now.considered);

    // Moved by hand, as a relocation does.
    let moved = Uuid::now_v7();
    let request = std::sync::Arc::new(app("cart", 1, 600, &BOTH));
    placement
        .transact(&transaction(
            2,
            vec![
                LedgerChange::Take {
                    claim: moved,
                    dig: shop.clone(),
                    request,
                    member: drover_scheduling::MemberKey("aws+c".into()),
                    state: None,
                },
                LedgerChange::Release { claim: binding },
            ],
        ))
        .await;
    let why = placement.explain("cart", &[]).await;
    assert!(why.moved);
    assert_eq!(why.room[0].claim, moved);

    // A change that was refused later placed nothing: what is explained is still why the app is where it is.
    let refused = DecisionRequest { fence: 3, ..self::request(&shop, vec![app("cart", 1, 5000, &BOTH)]) };
    assert_eq!(placement.decide(Uuid::now_v7(), &refused).await.outcome, Outcome::NoRoom);
    let why = placement.explain("cart", &[]).await;
    assert_eq!((why.decided.unwrap().id, why.moved), (Some(decision.id), true));

    // A member that refused its objects is left out, with the reason. What another group was refused says nothing about it.
    let refusal = |dig: Uuid, member: &str| RefusedDestination {
        dig,
        app: "cart".into(),
        member: MemberKey(member.into()),
        reason: "it refused the objects".into(),
        refuses: true,
    };
    let refused = [refusal(shop.id, "onprem+a"), refusal(Uuid::now_v7(), "aws+c")];
    let now = placement.explain("cart", &refused).await.now.unwrap().decision.groups[0].clone();
    assert_eq!(now.placement.map(|placement| placement.member.0).as_deref(), Some("aws+c"), "{:#?}", now.considered);
    let said = |c: &&Considered| c.verdict == Verdict::NotAllowed && c.reason == "it refused the objects";
    assert_eq!(now.considered.iter().filter(said).map(|c| c.member.0.as_str()).collect::<Vec<_>>(), ["onprem+a"]);

    let nobody = ExplainQuestion { project: "default".into(), group: "shop".into(), app: "nobody".into(), refused: vec![] };
    assert_eq!(placement.send(Method::POST, "/internal/explanations", Some(&nobody)).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn deregistered_member_keeps_its_claims_and_gets_no_new_ones() {
    let (db, manager) = (test_db().await, two_members().await);
    let placement = Placement::start(&db, &manager).await;
    let only_a = ["onprem+a"];
    let decision = placement.decide(Uuid::now_v7(), &request(&dig("shop"), vec![app("cart", 1, 100, &only_a)])).await;
    manager.members.publish("onprem+a", None);
    manager.report("onprem+a", None);
    eventually(TIMEOUT, async || {
        let clusters = placement.clusters().await;
        clusters.iter().find(|c| c.member.0 == "onprem+a").filter(|c| c.state == MemberState::Deregistering && c.apps.len() == 1).map(drop)
    })
    .await;
    let refused = placement.decide(Uuid::now_v7(), &request(&dig("blog"), vec![app("web", 1, 100, &only_a)])).await;
    assert_ne!(refused.outcome, Outcome::Placed);
    let (binding, _) = bindings(&decision)["cart"].clone();
    placement.transact(&transaction(2, vec![LedgerChange::Release { claim: binding }])).await;
    eventually(TIMEOUT, async || placement.clusters().await.iter().all(|c| c.member.0 != "onprem+a").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_counts_foreign_pods_and_unreachable_members() {
    let (db, manager) = (test_db().await, ClusterManager::start().await);
    let foreign = Amounts { cpu: 800, memory: 100 << 20, pods: 3, ..Amounts::default() };
    let full: Vec<Node> = nodes(1, 1000).into_iter().map(|node| Node { foreign: foreign.clone(), ..node }).collect();
    manager.member("onprem+a", 1, full);
    manager.members.publish("aws+c", Some(member("aws+c", 5, MemberState::Unreachable)));
    let placement = Placement::start_cold(&db, &manager).await;
    eventually(TIMEOUT, async || {
        let clusters = placement.clusters().await;
        (clusters.len() == 2 && clusters.iter().any(|cluster| cluster.member.0 == "onprem+a" && cluster.age_ms.is_some())).then_some(())
    })
    .await;
    let decision = placement.decide(Uuid::now_v7(), &request(&dig("shop"), vec![app("cart", 1, 300, &["onprem+a"])])).await;
    assert_eq!(decision.outcome, Outcome::NoRoom, "foreign pods take room");
    let decision = placement.decide(Uuid::now_v7(), &request(&dig("shop"), vec![app("cart", 1, 300, &BOTH)])).await;
    assert_eq!(decision.outcome, Outcome::Unknown, "the unreachable member may have room");
}

/// Capacity that was not received yet is neither claimed nor counted as full.
#[tokio::test(flavor = "multi_thread")]
async fn transaction_after_a_restart_waits_for_capacity() {
    let (db, manager) = (test_db().await, ClusterManager::start().await);
    let placement = Placement::start_cold(&db, &manager).await;
    manager.members.publish("onprem+a", Some(member("onprem+a", 1, MemberState::Ready)));
    eventually(TIMEOUT, async || placement.fleet().await.contains_key("member/onprem+a").then_some(())).await;

    let shop = dig("shop");
    let take = |state| {
        let request = std::sync::Arc::new(app("cart", 1, 600, &["onprem+a"]));
        LedgerChange::Take { claim: Uuid::now_v7(), dig: shop.clone(), request, member: MemberKey("onprem+a".into()), state }
    };
    let asked = transaction(1, vec![take(None)]);
    let id = Uuid::now_v7();
    let (status, problem) = placement.try_transact(id, &asked).await;
    assert_eq!((status.as_u16(), problem["code"].as_str()), (503, Some("capacity_unknown")), "{problem:#}");
    manager.member("onprem+a", 1, nodes(1, 1000));
    placement.ready().await;
    assert!(placement.fleet().await.contains_key("capacity/onprem+a"));
    assert_eq!(placement.try_transact(id, &asked).await.0, StatusCode::OK, "the same transaction, now that the capacity is known");
    // A member that is known to be unreachable is not waited for: the refusal is final.
    manager.members.publish("onprem+a", Some(member("onprem+a", 1, MemberState::Unreachable)));
    manager.report("onprem+a", None);
    eventually(TIMEOUT, async || {
        let clusters = placement.clusters().await;
        (clusters[0].state == MemberState::Unreachable && clusters[0].age_ms.is_none()).then_some(())
    })
    .await;
    let (_, refused) = placement.try_transact(Uuid::now_v7(), &transaction(2, vec![take(None)])).await;
    assert_eq!(refused["code"], "ledger_conflict", "{refused:#}");
    assert!(refused["reasons"].to_string().contains("member_unknown"), "{refused:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn learned_policy_is_explained_compared_and_counted() {
    let (db, manager) = (test_db().await, ClusterManager::start().await);
    let members = ["onprem+a", "onprem+b", "onprem+c"];
    members.iter().zip([2000, 1500, 1200]).for_each(|(member, cpu)| manager.member(member, 1, nodes(1, cpu)));
    let placement = Placement::start(&db, &manager).await;
    let calling = |name: &str, cpu: i64, to: &[(&str, u64)]| {
        let to = to.iter().map(|(app, calls)| CallTo { app: (*app).into(), micro_calls: calls * 1_000_000 }).collect();
        let mut request: AppRequest = app(name, 1, cpu, &members);
        request.terms.calls = Some(CallTerms { to, rho: 2, policy: GroupPolicy::Learned, ..CallTerms::default() });
        request
    };
    let apps = vec![
        calling("web", 500, &[("cart", 3), ("find", 5)]),
        calling("cart", 300, &[("cart-db", 18)]),
        calling("cart-db", 700, &[]),
        calling("find", 400, &[("index", 9)]),
        calling("index", 600, &[]),
    ];
    let (id, shop) = (Uuid::now_v7(), dig("shop"));
    let decision = placement.decide(id, &request(&shop, apps.clone())).await;
    let story = decision.calls.as_ref().unwrap().chosen_by.as_ref().unwrap();
    assert_eq!((decision.outcome, story.policy), (Outcome::Placed, GroupPolicy::Learned));
    assert!(story.objective <= story.greedy.unwrap() + 1e-9, "greedy's placement is taken if it is better: {story:?}");
    placement.decide(id, &request(&shop, apps)).await;

    let why = placement.explain("cart", &[]).await;
    let calls = why.calls.unwrap();
    assert_eq!(calls.decided, decision.calls, "the explanation says what the policy saw when it decided");
    let by_policy: Vec<(GroupPolicy, u32)> =
        calls.by_policy.iter().map(|story| (story.chosen_by.as_ref().unwrap().policy, story.rho)).collect();
    assert_eq!(by_policy, [(GroupPolicy::CgsGreedy, 2), (GroupPolicy::Learned, 2)]);
    assert!(calls.by_rho.iter().all(|story| story.chosen_by.as_ref().unwrap().policy == GroupPolicy::Learned));

    let (_, metrics) = placement.send(Method::GET, "/metrics", None::<&()>).await;
    let counted = format!("drover_group_decisions_total{{policy=\"learned\",taken=\"{}\"}} 1", story.taken.name());
    assert!(metrics.as_str().unwrap().contains(&counted), "a repeated id counts once, a question never: {metrics}");
}
