//! One batch is committed while the next is decided: nothing is answered or published that is not in the log, whatever fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{ClusterManager, Placement, TIMEOUT, app, bindings, dig, nodes, request, transaction};
use drover_api::ledger::{DecisionRecord, FleetItem, LedgerReceipt};
use drover_scheduling::{Decision, LedgerChange, MemberKey, Outcome};
use drover_store::failpoint::Action;
use drover_store::{Store, StoreConfig};
use drover_testkit::{ChaosProxy, TestDb, eventually, test_db};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::task::JoinHandle;
use uuid::Uuid;

const A: [&str; 1] = ["onprem+a"];
const BEFORE: &str = "ledger/commit/before";
const AFTER: &str = "ledger/commit/after";

async fn one_member(count: usize, cpu: i64) -> ClusterManager {
    let manager = ClusterManager::start().await;
    manager.member("onprem+a", 1, nodes(count, cpu));
    manager
}

fn asks(placement: &Arc<Placement>, id: Uuid, name: &str, cpu: i64) -> JoinHandle<(StatusCode, Value)> {
    let (placement, wanted) = (placement.clone(), request(&dig(name), vec![app("web", 1, cpu, &A)]));
    tokio::spawn(async move { placement.send(Method::PUT, &format!("/internal/decisions/{id}"), Some(&wanted)).await })
}

fn takes(placement: &Arc<Placement>, id: Uuid, claim: Uuid, cpu: i64) -> JoinHandle<(StatusCode, Value)> {
    let request = Arc::new(app("web", 1, cpu, &A));
    let take = LedgerChange::Take { claim, dig: dig("taken"), request, member: MemberKey("onprem+a".into()), state: None };
    let (placement, wanted) = (placement.clone(), transaction(1, vec![take]));
    tokio::spawn(async move { placement.try_transact(id, &wanted).await })
}

fn decision((status, body): (StatusCode, Value)) -> Decision {
    assert_eq!(status, StatusCode::OK, "{body:#}");
    serde_json::from_value(body).unwrap()
}

async fn until_paused(placement: &Placement, failpoint: &str) {
    eventually(TIMEOUT, async || placement.failpoints.is_paused(failpoint).then_some(())).await;
}

/// Waits until decisions, committed or not, request this much CPU.
async fn until_decided(placement: &Placement, cpu: i64) {
    eventually(TIMEOUT, async || (placement.clusters().await[0].total.requested.cpu == cpu).then_some(())).await;
}

/// Number of claims on the feed `fleet`, and its head.
async fn published(placement: &Placement) -> (usize, i64) {
    let fleet = placement.fleet().await;
    let head = fleet.values().find_map(|item| if let FleetItem::Head(head) = item { Some(head.seq) } else { None });
    (fleet.keys().filter(|key| key.starts_with("claim/")).count(), head.unwrap_or(-1))
}

#[tokio::test(flavor = "multi_thread")]
async fn next_batch_is_decided_during_a_commit_and_published_after_its_own() {
    let (db, manager) = (test_db().await, one_member(1, 1000).await);
    let placement = Arc::new(Placement::start(&db, &manager).await);
    placement.failpoints.set(BEFORE, Action::Pause);
    let (id, transacted, claim) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
    let first = asks(&placement, id, "first", 600);
    until_paused(&placement, BEFORE).await;
    let second = asks(&placement, Uuid::now_v7(), "second", 300);
    until_decided(&placement, 900).await;
    let taken = takes(&placement, transacted, claim, 50);
    until_decided(&placement, 950).await;
    // Repeats of uncommitted requests: of the batch being committed, and of the one behind it. Decided again, the repeated take would be
    // refused, because the claim exists.
    let again = asks(&placement, id, "first", 600);
    let taken_again = takes(&placement, transacted, claim, 50);
    let too_much = asks(&placement, Uuid::now_v7(), "third", 100);
    assert_eq!(published(&placement).await, (0, 0), "nothing is written yet");
    assert!(placement.claims("").await.items.is_empty());
    assert!(!first.is_finished() && !second.is_finished() && !taken.is_finished());

    placement.failpoints.clear(BEFORE);
    let (first, second) = (decision(first.await.unwrap()), decision(second.await.unwrap()));
    assert_eq!((first.seq, first.outcome, second.seq, second.outcome), (1, Outcome::Placed, 2, Outcome::Placed));
    assert_eq!(decision(again.await.unwrap()), first);
    let (taken, taken_again) = (taken.await.unwrap(), taken_again.await.unwrap());
    assert_eq!(taken.0, StatusCode::OK, "{taken:?}");
    assert_eq!(taken, taken_again);
    assert_eq!(decision(too_much.await.unwrap()).outcome, Outcome::NoRoom);
    eventually(TIMEOUT, async || (published(&placement).await == (3, 4)).then_some(())).await;
    assert_eq!(placement.claims("").await.items.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_behind_a_lost_batch_is_decided_again() {
    let (db, manager) = (test_db().await, one_member(1, 1000).await);
    let (one, other) = (Arc::new(Placement::start(&db, &manager).await), Arc::new(Placement::start(&db, &manager).await));
    one.failpoints.set(BEFORE, Action::Pause);
    let first = asks(&one, Uuid::now_v7(), "first", 600);
    until_paused(&one, BEFORE).await;
    let second = asks(&one, Uuid::now_v7(), "second", 400);
    until_decided(&one, 1000).await;
    let winner = decision(asks(&other, Uuid::now_v7(), "winner", 600).await.unwrap());
    one.failpoints.clear(BEFORE);
    assert_eq!(decision(first.await.unwrap()).outcome, Outcome::NoRoom, "the other process has taken its room");
    let second = decision(second.await.unwrap());
    assert_eq!((winner.seq, second.outcome, second.seq), (1, Outcome::Placed, 3));
    for placement in [&one, &other] {
        until_decided(placement, 1000).await;
        eventually(TIMEOUT, async || (published(placement).await == (2, 3)).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_commit_leaves_the_batch_behind_it_correct() {
    let (db, manager) = (test_db().await, one_member(1, 1000).await);
    let proxy = ChaosProxy::start(db.address()).await;
    let placement = Arc::new(Placement::start_on(db.url_through(proxy.address()), &manager).await);
    let under_way = async |first: Uuid, second: Uuid, more: i64| {
        placement.failpoints.set(BEFORE, Action::Pause);
        let first = asks(&placement, first, "first", 200);
        until_paused(&placement, BEFORE).await;
        let second = asks(&placement, second, "second", 100);
        until_decided(&placement, more).await;
        (first, second)
    };

    // Committed, but not answered.
    let (id, behind) = (Uuid::now_v7(), Uuid::now_v7());
    let (first, second) = under_way(id, behind, 300).await;
    placement.failpoints.set(AFTER, Action::ErrorOnce);
    placement.failpoints.clear(BEFORE);
    assert_eq!(first.await.unwrap().0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(decision(second.await.unwrap()).seq, 2, "it is decided on the committed batch");
    assert_eq!(decision(asks(&placement, id, "first", 200).await.unwrap()).seq, 1);

    // Not committed: the database is unreachable.
    let (id, behind) = (Uuid::now_v7(), Uuid::now_v7());
    let (first, second) = under_way(id, behind, 600).await;
    proxy.cut();
    placement.failpoints.clear(BEFORE);
    for lost in [first, second] {
        assert_eq!(lost.await.unwrap().0, StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(placement.clusters().await[0].total.requested.cpu, 300, "the book reverted both");
    assert_eq!(published(&placement).await, (2, 2));
    proxy.restore();
    for (id, name) in [(id, "first"), (behind, "second")] {
        eventually(TIMEOUT, async || (asks(&placement, id, name, 100).await.unwrap().0 == StatusCode::OK).then_some(())).await;
    }
    assert_eq!(placement.claims("").await.items.len(), 4);
}

/// A seeded random generator (splitmix64), so that a failure can be repeated.
struct Chance(AtomicU64);

impl Chance {
    fn below(&self, bound: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// The answers that a client received.
#[derive(Default)]
struct Received {
    decisions: BTreeMap<Uuid, Decision>,
    receipts: BTreeMap<Uuid, LedgerReceipt>,
    /// Claims whose release was requested, answered or not.
    released: BTreeSet<Uuid>,
}

impl Received {
    /// Sends a random request: a decision, the repeat of one, or a release. An unanswered request may have been carried out or not.
    async fn ask(&mut self, placement: &Placement, chance: &Chance, client: u64) {
        let known: Vec<Uuid> = self.decisions.keys().copied().collect();
        let any = |known: &[Uuid]| known.get(chance.below(known.len().max(1) as u64) as usize).copied();
        let open = self.decisions.values().flat_map(|decision| bindings(decision).into_values().map(|(claim, _)| claim));
        let open: Vec<Uuid> = open.filter(|claim| !self.released.contains(claim)).collect();
        match (chance.below(4), any(&known), any(&open)) {
            (0, Some(id), _) => {
                let again = request(&dig("again"), vec![app("web", 1, 1, &A)]);
                if let Some(answer) = put::<Decision>(placement, &format!("/internal/decisions/{id}"), &again).await {
                    assert_eq!(answer, self.decisions[&id], "a repeated id gets the stored answer");
                }
            }
            (1, _, Some(claim)) => {
                self.released.insert(claim);
                let (id, release) = (Uuid::now_v7(), transaction(1, vec![LedgerChange::Release { claim }]));
                let path = format!("/internal/transactions/{id}");
                // Twice at once: both get the same receipt.
                let twice = tokio::join!(put(placement, &path, &release), put(placement, &path, &release));
                let (one, other): (Option<LedgerReceipt>, Option<LedgerReceipt>) = twice;
                for receipt in [one, other].into_iter().flatten() {
                    assert_eq!(*self.receipts.entry(id).or_insert_with(|| receipt.clone()), receipt);
                }
            }
            _ => {
                let (id, cpu) = (Uuid::now_v7(), 10 + chance.below(90) as i64);
                let wanted = request(&dig(&format!("app-{client}")), vec![app("web", 1, cpu, &A)]);
                if let Some(answer) = put(placement, &format!("/internal/decisions/{id}"), &wanted).await {
                    self.decisions.insert(id, answer);
                }
            }
        }
    }
}

/// The answer; `None` after 503.
async fn put<T: serde::de::DeserializeOwned>(placement: &Placement, path: &str, body: &impl serde::Serialize) -> Option<T> {
    let (status, answer) = placement.send(Method::PUT, path, Some(body)).await;
    assert!(matches!(status.as_u16(), 200 | 503), "{status}: {answer:#}");
    status.is_success().then(|| serde_json::from_value(answer).unwrap())
}

/// Two processes on one database. Connections are cut, and commits fail before or after, at random: once per so many requests, not per
/// time.
#[tokio::test(flavor = "multi_thread")]
async fn random_faults_leave_answers_and_books_equal_to_the_log() {
    let seed = Uuid::new_v4().as_u64_pair().0;
    println!("seed {seed}");
    let chance = Arc::new(Chance(AtomicU64::new(seed)));
    let (db, manager) = (test_db().await, one_member(2, 1000).await);
    let (mut placements, mut proxies) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let proxy = ChaosProxy::start(db.address()).await;
        placements.push(Arc::new(Placement::start_on(db.url_through(proxy.address()), &manager).await));
        proxies.push(proxy);
    }
    let proxies = Arc::new(proxies);
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..8 {
        let (placement, proxies, chance) = (placements[client as usize % 2].clone(), proxies.clone(), chance.clone());
        clients.spawn(async move {
            let proxy = &proxies[client as usize % 2];
            let mut received = Received::default();
            for _ in 0..15 {
                match chance.below(15) {
                    0 => placement.failpoints.set(BEFORE, Action::ErrorOnce),
                    1 => placement.failpoints.set(AFTER, Action::ErrorOnce),
                    2 => proxy.cut(),
                    _ => {}
                }
                received.ask(&placement, &chance, client).await;
                proxy.restore();
            }
            received
        });
    }
    let received = clients.join_all().await;
    for placement in &placements {
        placement.failpoints.clear(BEFORE);
        placement.failpoints.clear(AFTER);
    }
    assert_log_matches(&db, &placements, &received).await;
}

async fn assert_log_matches(db: &TestDb, placements: &[Arc<Placement>], received: &[Received]) {
    let store = Store::connect(&StoreConfig::new("placement", db.url.clone()), &[]).await.unwrap();
    let entries: Vec<i64> = sqlx::query_scalar("select seq from decision union all select seq from receipt order by seq")
        .fetch_all(&mut *store.acquire().await.unwrap())
        .await
        .unwrap();
    let head: i64 = sqlx::query_scalar("select seq from head").fetch_one(&mut *store.acquire().await.unwrap()).await.unwrap();
    assert_eq!(entries, (1..=head).collect::<Vec<_>>(), "every sequence number exists once");
    let claims: BTreeSet<Uuid> = placements[0].claims("").await.items.iter().map(|claim| claim.id).collect();
    let decisions: Vec<&Decision> = received.iter().flat_map(|client| client.decisions.values()).collect();
    assert!(
        decisions.len() > 20 && received.iter().any(|client| !client.receipts.is_empty()),
        "too few requests succeeded for the test to mean anything"
    );
    for client in received {
        for (id, decision) in &client.decisions {
            let record: DecisionRecord = placements[0].get(&format!("/v2/decisions/{id}")).await;
            assert_eq!(record.decision, *decision);
            for (claim, _) in bindings(decision).values() {
                assert!(claims.contains(claim) || client.released.contains(claim), "claim {claim} was answered but is not stored");
            }
        }
        for receipt in client.receipts.values() {
            assert!(entries.contains(&receipt.seq));
        }
    }
    for placement in placements {
        let requested: i64 = eventually(TIMEOUT, async || {
            let member = placement.clusters().await.remove(0);
            let same: BTreeSet<Uuid> = member.apps.iter().map(|app| app.claim).collect();
            let over = member.nodes.iter().any(|node| node.room.free.cpu < 0);
            assert!(!over, "{member:#?}");
            (same == claims).then_some(member.total.requested.cpu)
        })
        .await;
        let counted: i64 = placement
            .claims("")
            .await
            .items
            .iter()
            .flat_map(|claim| claim.request.demand.groups.iter())
            .map(|group| group.requests.cpu)
            .sum();
        assert_eq!(requested, counted);
        eventually(TIMEOUT, async || (published_claims(placement).await == (claims.clone(), head)).then_some(())).await;
    }
}

/// The claims on the feed `fleet`, and its head.
async fn published_claims(placement: &Placement) -> (BTreeSet<Uuid>, i64) {
    let mut claims = BTreeSet::new();
    let mut head = -1;
    for item in placement.fleet().await.into_values() {
        match item {
            FleetItem::Claim(claim) => drop(claims.insert(claim.claim.id)),
            FleetItem::Head(at) => head = at.seq,
            _ => {}
        }
    }
    (claims, head)
}
