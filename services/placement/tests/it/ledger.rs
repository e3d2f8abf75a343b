//! The ledger as a log: transactions are atomic and idempotent, room is never overcommitted, and state survives a kill, also with several
//! writers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{ClusterManager, Placement, TIMEOUT, app, bindings, dig, nodes, request, transaction};
use drover_api::ledger::{FleetClaim, FleetItem};
use drover_scheduling::{Amounts, Capacity, Claim, ClaimState, Decision, LedgerChange, LedgerReceipt, MemberKey, Observed, Outcome};
use drover_store::failpoint::Action;
use drover_testkit::{eventually, test_db};
use reqwest::{Method, StatusCode};
use uuid::Uuid;

const A: [&str; 1] = ["onprem+a"];

fn key(member: &str) -> MemberKey {
    MemberKey(member.into())
}

async fn one_member(count: usize, cpu: i64) -> ClusterManager {
    let manager = ClusterManager::start().await;
    manager.member("onprem+a", 1, nodes(count, cpu));
    manager
}

async fn place(placement: &Placement, name: &str, cpu: i64) -> (Uuid, Decision) {
    let decision = placement.decide(Uuid::now_v7(), &request(&dig(name), vec![app("web", 1, cpu, &A)])).await;
    assert_eq!(decision.outcome, Outcome::Placed);
    (bindings(&decision)["web"].0, decision)
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_is_atomic_and_refusal_names_every_difference() {
    let (db, manager) = (test_db().await, one_member(1, 1000).await);
    manager.member("aws+c", 5, nodes(1, 1000));
    let placement = Placement::start(&db, &manager).await;
    let (victim, _) = place(&placement, "shop", 900).await;
    let take = |claim, member: &str, cpu| LedgerChange::Take {
        claim,
        dig: dig("new"),
        request: Arc::new(app("web", 1, cpu, &["onprem+a", "aws+c"])),
        member: key(member),
        state: None,
    };

    let before = placement.claims("").await;
    let wrong = transaction(
        2,
        vec![
            LedgerChange::Leave { claim: victim, member: key("aws+c") },
            LedgerChange::Admit { claim: Uuid::now_v7() },
            take(Uuid::now_v7(), "aws+c", 100),
        ],
    );
    let (status, problem) = placement.try_transact(Uuid::now_v7(), &wrong).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::CONFLICT, Some("ledger_conflict")));
    let reasons = problem["reasons"].to_string();
    assert!(reasons.contains("claim_moved") && reasons.contains("claim_missing"), "{reasons}");
    let dry = async |transaction| placement.send(Method::POST, "/internal/transactions/dry-run", Some(transaction)).await;
    let (status, tried) = dry(&wrong).await;
    assert_eq!((status, &tried["reasons"]), (StatusCode::CONFLICT, &problem["reasons"]));
    assert_eq!(placement.claims("").await, before, "nothing was written");

    // A claim that changes twice is a bug of the caller, and the answer says so.
    let leave = LedgerChange::Leave { claim: victim, member: key("onprem+a") };
    let (status, problem) = placement.try_transact(Uuid::now_v7(), &transaction(2, vec![leave.clone(), leave])).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::BAD_REQUEST, Some("invalid")), "{problem:#}");
    assert!(
        problem["detail"].to_string().contains("bug in Drover") && problem["reasons"].to_string().contains("changed_twice"),
        "{problem}"
    );

    // Room for a newcomer that fits only when the victim has gone: promised first, held when there is room now.
    let (home, newcomer) = (Uuid::now_v7(), Uuid::now_v7());
    let make_room = transaction(
        2,
        vec![LedgerChange::Leave { claim: victim, member: key("onprem+a") }, take(home, "aws+c", 900), take(newcomer, "onprem+a", 800)],
    );
    let (status, tried) = dry(&make_room).await;
    assert_eq!((status, tried["claims"].as_array().unwrap().len()), (StatusCode::OK, 3));
    assert_eq!(placement.claims("").await, before, "nothing was written");
    let id = Uuid::now_v7();
    let receipt: LedgerReceipt = serde_json::from_value(placement.try_transact(id, &make_room).await.1).unwrap();
    let states: BTreeMap<Uuid, ClaimState> = receipt.claims.iter().map(|claim| (claim.claim, claim.state)).collect();
    assert_eq!(states, BTreeMap::from([(victim, ClaimState::Leaving), (home, ClaimState::Held), (newcomer, ClaimState::Promised)]));
    let again: LedgerReceipt = serde_json::from_value(placement.try_transact(id, &make_room).await.1).unwrap();
    assert_eq!(again, receipt, "a repeated id gets the stored answer");
    let clusters = placement.clusters().await;
    assert_eq!((clusters[0].total.requested.cpu, clusters[0].total.reserved.cpu), (900, 800));

    let admit = transaction(2, vec![LedgerChange::Admit { claim: newcomer }]);
    let (status, problem) = placement.try_transact(Uuid::now_v7(), &admit).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(problem["reasons"].to_string().contains("no_room"), "{problem}");
    placement.transact(&transaction(2, vec![LedgerChange::Release { claim: victim }])).await;
    assert_eq!(placement.transact(&admit).await.claims[0].state, ClaimState::Held);
}

#[tokio::test(flavor = "multi_thread")]
async fn release_is_answered_only_after_its_pods_are_seen_gone() {
    let (db, manager) = (test_db().await, one_member(1, 1000).await);
    let placement = Arc::new(Placement::start(&db, &manager).await);
    let (claim, _) = place(&placement, "shop", 1000).await;
    let observed = Observed { requests: BTreeMap::from([("n0".to_owned(), Amounts::pod(1000, 1000 << 20))]).into(), ..Observed::default() };
    let publish_with_pods = |count: usize| {
        let (nodes, observed) = (Arc::new(nodes(count, 1000)), [(claim, observed.clone())].into());
        manager.report("onprem+a", Some(Capacity { nodes, observed, ..Capacity::default() }));
    };
    publish_with_pods(1);
    eventually(TIMEOUT, async || {
        let fleet = placement.fleet().await;
        let observed = |item: &FleetItem| matches!(item, FleetItem::Capacity(capacity) if !capacity.observed.is_empty());
        fleet.values().any(observed).then_some(())
    })
    .await;
    let asked = placement.clone();
    let released = tokio::spawn(async move { asked.transact(&transaction(2, vec![LedgerChange::Release { claim }])).await });
    eventually(TIMEOUT, async || placement.claims("").await.items.is_empty().then_some(())).await;
    // The release is committed. Two barriers before it may be called unanswered: a capacity update that still shows the pods
    // was processed, and a release without pods, which passed the same queue later, was answered.
    publish_with_pods(2);
    eventually(TIMEOUT, async || (placement.clusters().await[0].nodes.len() == 2).then_some(())).await;
    placement.transact(&transaction(2, vec![LedgerChange::Release { claim: Uuid::now_v7() }])).await;
    assert!(!released.is_finished(), "answered although the pods are still observed");
    manager.member("onprem+a", 1, nodes(1, 1000));
    released.await.unwrap();
    assert_eq!(placement.clusters().await[0].nodes.len(), 1, "answered before the update without the pods was processed");
    place(&placement, "next", 1000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_with_a_lower_fence_is_refused() {
    let (db, manager) = (test_db().await, one_member(1, 1000).await);
    let placement = Placement::start(&db, &manager).await;
    let (claim, _) = place(&placement, "shop", 100).await;
    placement.transact(&transaction(7, vec![LedgerChange::Leave { claim, member: key("onprem+a") }])).await;
    let stale = [LedgerChange::Stay { claim }, LedgerChange::Release { claim }];
    for change in stale {
        let (status, problem) = placement.try_transact(Uuid::now_v7(), &transaction(6, vec![change])).await;
        assert_eq!(status, StatusCode::CONFLICT);
        assert!(problem["reasons"].to_string().contains("stale_fence"), "{problem}");
    }

    // A claim that never existed is released before an older take arrives: that take is refused, also after a restart.
    let late = Uuid::now_v7();
    placement.transact(&transaction(8, vec![LedgerChange::Release { claim: late }, LedgerChange::Release { claim }])).await;
    let take = |fence| {
        transaction(
            fence,
            vec![LedgerChange::Take {
                claim: late,
                dig: dig("late"),
                request: Arc::new(app("web", 1, 100, &A)),
                member: key("onprem+a"),
                state: None,
            }],
        )
    };
    let (status, _) = placement.try_transact(Uuid::now_v7(), &take(7)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    placement.kill();
    let placement = Placement::start(&db, &manager).await;
    let (status, problem) = placement.try_transact(Uuid::now_v7(), &take(7)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(problem["reasons"].to_string().contains("stale_fence"), "{problem}");
    placement.transact(&take(9)).await;
    assert_eq!(placement.claims("").await.items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_survives_a_kill_before_and_after_the_commit() {
    let (db, manager) = (test_db().await, one_member(2, 1000).await);
    let placement = Placement::start(&db, &manager).await;
    place(&placement, "shop", 300).await;
    let wanted = request(&dig("blog"), vec![app("web", 1, 200, &A)]);
    let put = |id: Uuid| format!("/internal/decisions/{id}");

    let (lost, kept) = (Uuid::now_v7(), Uuid::now_v7());
    placement.failpoints.set("ledger/commit/before", Action::ErrorOnce);
    assert_eq!(placement.send(Method::PUT, &put(lost), Some(&wanted)).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(placement.claims("").await.items.len(), 1);
    assert_eq!(placement.clusters().await[0].total.requested.cpu, 300, "the book reverted it");
    // Committed, but not answered.
    placement.failpoints.set("ledger/commit/after", Action::ErrorOnce);
    assert_eq!(placement.send(Method::PUT, &put(kept), Some(&wanted)).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(placement.claims("").await.items.len(), 2);
    let first = placement.decide(kept, &wanted).await;
    assert_eq!(first.outcome, Outcome::Placed);

    let claims = placement.claims("").await;
    assert_eq!(claims.items.len(), 2, "the repeat claimed nothing more");
    placement.kill();
    let placement = Placement::start(&db, &manager).await;
    assert_eq!(placement.claims("").await, claims);
    assert_eq!(placement.clusters().await[0].total.requested.cpu, 500);
    assert_eq!(placement.decide(kept, &wanted).await, first);
    let fleet = placement.fleet().await;
    let with_request = |claim: FleetClaim| match &fleet[&format!("request/{}", claim.request)] {
        FleetItem::Request(request) => claim.with(Arc::clone(request)),
        other => panic!("{other:?}"),
    };
    let published = fleet.values().filter_map(|item| if let FleetItem::Claim(claim) = item { Some(claim.clone()) } else { None });
    let loaded: Vec<Claim> = published.map(with_request).collect();
    assert_eq!(loaded.len(), 2);
    assert!(loaded.iter().all(|claim| claims.items.contains(claim)), "loaded claims equal the stored ones");
}

/// Lets `clients` request room concurrently until they are refused; returns how many requests were placed.
async fn place_until_full(placements: &[Arc<Placement>], clients: usize, cpu: i64) -> usize {
    let mut running = tokio::task::JoinSet::new();
    for client in 0..clients {
        let placement = placements[client % placements.len()].clone();
        running.spawn(async move {
            let mut placed = 0;
            loop {
                let decision =
                    placement.decide(Uuid::now_v7(), &request(&dig(&format!("app-{client}")), vec![app("web", 2, cpu, &A)])).await;
                match decision.outcome {
                    Outcome::Placed => placed += 1,
                    Outcome::NoRoom => return placed,
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    running.join_all().await.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_clients_never_overcommit() {
    let (db, manager) = (test_db().await, one_member(5, 1000).await);
    let placement = Arc::new(Placement::start(&db, &manager).await);
    // 5 nodes of 1000m hold 10 pods of 100m each: 25 apps of two.
    assert_eq!(place_until_full(std::slice::from_ref(&placement), 16, 100).await, 25);
    let clusters = placement.clusters().await;
    assert!(clusters[0].nodes.iter().all(|node| node.room.free.cpu == 0), "{clusters:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_on_one_database_never_overcommit() {
    let (db, manager) = (test_db().await, one_member(5, 1000).await);
    let both = [Arc::new(Placement::start(&db, &manager).await), Arc::new(Placement::start(&db, &manager).await)];
    assert_eq!(place_until_full(&both, 8, 100).await, 25);
    assert_eq!(both[0].claims("").await.items.len(), 25);
    // Each process, and its feed, shows the claims of the other.
    for placement in &both {
        eventually(TIMEOUT, async || (placement.clusters().await[0].apps.len() == 25).then_some(())).await;
        eventually(TIMEOUT, async || (placement.fleet().await.keys().filter(|key| key.starts_with("claim/")).count() == 25).then_some(()))
            .await;
    }
    // The same id sent to both at once is one decision.
    both[0]
        .transact(&transaction(
            9,
            both[0].claims("").await.items.iter().take(3).map(|claim| LedgerChange::Release { claim: claim.id }).collect(),
        ))
        .await;
    let (id, wanted) = (Uuid::now_v7(), request(&dig("twice"), vec![app("web", 2, 100, &A)]));
    let (one, other) = tokio::join!(both[0].decide(id, &wanted), both[1].decide(id, &wanted));
    assert_eq!(one, other);
    assert_eq!(one.outcome, Outcome::Placed);
    assert_eq!(both[1].claims("").await.items.len(), 23);
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_postgres_rejects_fails_only_its_own_request() {
    let (db, manager) = (test_db().await, one_member(5, 1000).await);
    let placement = Arc::new(Placement::start(&db, &manager).await);
    let mut running = tokio::task::JoinSet::new();
    for n in 0..16 {
        let placement = placement.clone();
        running.spawn(async move {
            // Postgres stores no NUL in text.
            let name = if n == 7 { "bad\0name".to_owned() } else { format!("app-{n}") };
            let wanted = request(&dig(&name), vec![app("web", 1, 10, &A)]);
            let (status, _) = placement.send(Method::PUT, &format!("/internal/decisions/{}", Uuid::now_v7()), Some(&wanted)).await;
            (n, status.as_u16())
        });
    }
    for (n, status) in running.join_all().await {
        assert_eq!(status, if n == 7 { 500 } else { 200 }, "client {n}");
    }
    assert_eq!(placement.claims("").await.items.len(), 15);
    assert_eq!(placement.clusters().await[0].total.requested.cpu, 150);
}
