//! Many operations at the same time that compete for the same room.

use drover_api::operations::{Operation, OperationState};
use drover_e2e::System;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::members::Shape;
use futures::{StreamExt, TryStreamExt};

use super::look;

/// How many requests are sent at the same time.
const AT_ONCE: usize = 4;

async fn approved(system: &System, groups: &[Group]) {
    let approvals = futures::stream::iter(groups).map(|group| group.approve(&system.client));
    approvals.buffer_unordered(AT_ONCE).try_collect::<()>().await.unwrap();
}

/// Instantiates all groups, and waits for the first operation only when all have been started.
async fn instantiated(system: &System, groups: &[Group]) -> Vec<Operation> {
    let begun = futures::stream::iter(groups).map(|group| group.insist(&system.client, "instantiate"));
    let ids: Vec<String> = begun.buffered(AT_ONCE).try_collect().await.unwrap();
    let each = futures::stream::iter(&ids).map(|id| ended(&system.client, id));
    each.buffered(ids.len()).try_collect().await.unwrap()
}

fn winners(operations: &[Operation]) -> usize {
    operations.iter().filter(|operation| operation.state == OperationState::Succeeded).count()
}

/// Asserts that every other operation failed with one of `codes` and names each of `clusters` in its reasons.
fn losers_have_reasons(operations: &[Operation], clusters: &[&str], codes: &[&str]) {
    for loser in operations.iter().filter(|operation| operation.state != OperationState::Succeeded) {
        let code = loser.code.as_deref().unwrap_or_default();
        assert!(loser.state == OperationState::Failed && codes.contains(&code), "{loser:#?}");
        let reasons = loser.reasons.join("\n");
        assert!(clusters.iter().all(|cluster| reasons.contains(cluster)), "the reasons name each cluster: {loser:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn forty_of_a_hundred_racing_apps_are_placed() {
    let members = vec![("left", "onprem", 1), ("right", "onprem", 1)];
    let system = System::shaped(&Shape { members, nodes: 4, cpu: 5, ..Shape::default() }, &[]).await;
    let places = ["onprem/left", "onprem/right"];
    let named = |at: usize| format!("racer-{at}");
    let racer = |at| Group::new(&named(at), App::new(&named(at), 1000)).among(&places).on(&places);
    let groups: Vec<Group> = (0..100).map(racer).collect();
    approved(&system, &groups).await;
    let operations = instantiated(&system, &groups).await;
    assert_eq!(winners(&operations), 40);
    losers_have_reasons(&operations, &["onprem+left", "onprem+right"], &["plan_infeasible"]);

    // Each member has four nodes of five CPUs, and all of them are used.
    let taken = look::taken(&system).await;
    assert!(taken.len() == 8 && taken.values().all(|taken| *taken == 5000), "{taken:?}");
    assert_eq!(system.claims().await.unwrap().len(), 40);
    for (operation, at) in operations.iter().zip(0..) {
        let wanted = usize::from(operation.state == OperationState::Succeeded);
        let created =
            system.members().iter().map(|member| system.sim().unwrap().created(member.name, "deployments.apps", "default", &named(at)));
        assert_eq!(created.sum::<usize>(), wanted, "{operation:#?}");
    }
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn newcomers_with_the_same_victims_move_each_at_most_once() {
    const VICTIMS: usize = 8;
    let members = vec![("crowded", "onprem", 1), ("spare", "aws", 5)];
    let system = System::shaped(&Shape { members, nodes: 2, cpu: 4, ..Shape::default() }, &[]).await;
    let places = ["onprem/crowded", "aws/spare"];
    let victim = |at: usize| format!("victim-{at}");
    let victims: Vec<Group> =
        (0..VICTIMS).map(|at| Group::new(&victim(at), App::new(&victim(at), 1000)).among(&places).on(&places).movable(5)).collect();
    approved(&system, &victims).await;
    assert_eq!(winners(&instantiated(&system, &victims).await), VICTIMS);
    let sim = system.sim().unwrap();
    let created = |member: &str, at: usize| sim.created(member, "deployments.apps", "default", &victim(at));
    assert!((0..VICTIMS).all(|at| created("crowded", at) == 1), "the victims fill the preferred member");
    let witnesses: Vec<_> = (0..VICTIMS).map(|at| sim.record_ready(None, &format!("app={}", victim(at))).unwrap()).collect();
    witnesses.iter().for_each(drover_kubesim::ReadyRecorder::arm);

    // Each newcomer needs two of the eight CPUs, so at most four get a place, and all of them compete for the same victims.
    let newcomer = |at: usize| format!("newcomer-{at}");
    let newcomers: Vec<Group> =
        (0..20).map(|at| Group::new(&newcomer(at), App::new(&newcomer(at), 2000)).among(&places).on(&places[..1])).collect();
    approved(&system, &newcomers).await;
    let operations = instantiated(&system, &newcomers).await;
    let winners = winners(&operations);
    assert!((1..=4).contains(&winners), "{winners} newcomers have a place");
    losers_have_reasons(&operations, &[], &["plan_infeasible", "victim_busy", "world_changed", "room_lost"]);
    let losers = operations.iter().filter(|operation| operation.state != OperationState::Succeeded);
    losers.for_each(|loser| assert!(!loser.reasons.is_empty() || !loser.message.is_empty(), "{loser:#?}"));

    for (at, witness) in witnesses.iter().enumerate() {
        assert!(witness.min() >= 1, "{} had a moment without a ready replica", victim(at));
        assert!(created("crowded", at) == 1 && created("spare", at) <= 1, "{} moved more than once", victim(at));
        let home = if created("spare", at) == 1 { "spare" } else { "crowded" };
        system.serves_on(&victim(at), home).await;
        assert_eq!(system.home(&victim(at)).await, home);
    }
    look::no_node_is_over(&system, 4000).await;
    let claims = system.claims().await.unwrap();
    assert_eq!(claims.len(), VICTIMS + winners, "{claims:#?}");
    system.end().await;
}
