//! Many at once who want the same.

use drover_api::operations::{Operation, OperationState};
use drover_e2e::World;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended, patiently};
use drover_e2e::members::Shape;
use futures::{StreamExt, TryStreamExt};

use super::look;

/// Who loses shall lose to others, and not to a machine that is busy.
const PATIENT: [(&str, &str); 5] = [
    ("orchestrator", "--ready-seconds=600"),
    ("orchestrator", "--room-seconds=600"),
    ("orchestrator", "--unschedulable-seconds=600"),
    ("orchestrator", "--unreachable-seconds=600"),
    ("orchestrator", "--gone-seconds=600"),
];
/// So many ask at once.
const AT_ONCE: usize = 4;

async fn approved(world: &World, groups: &[Group]) {
    let approvals = futures::stream::iter(groups).map(async |group| patiently(async || group.approve(&world.client).await).await);
    approvals.buffer_unordered(AT_ONCE).try_collect::<()>().await.unwrap();
}

/// All are under way before any of them is waited for.
async fn instantiated(world: &World, groups: &[Group]) -> Vec<Operation> {
    let begun = futures::stream::iter(groups).map(|group| group.insist(&world.client, "instantiate"));
    let ids: Vec<String> = begun.buffered(AT_ONCE).try_collect().await.unwrap();
    let each = futures::stream::iter(&ids).map(|id| ended(&world.client, id));
    each.buffered(ids.len()).try_collect().await.unwrap()
}

fn winners(operations: &[Operation]) -> usize {
    operations.iter().filter(|operation| operation.state == OperationState::Succeeded).count()
}

/// Who did not win was told why, in each of its clusters' words.
fn told_why(operations: &[Operation], clusters: &[&str], codes: &[&str]) {
    for loser in operations.iter().filter(|operation| operation.state != OperationState::Succeeded) {
        let code = loser.code.as_deref().unwrap_or_default();
        assert!(loser.state == OperationState::Failed && codes.contains(&code), "{loser:#?}");
        let reasons = loser.reasons.join("\n");
        assert!(clusters.iter().all(|cluster| reasons.contains(cluster)), "each cluster says why not: {loser:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_apps_race_for_forty_places() {
    let members = vec![("left", "onprem", 1), ("right", "onprem", 1)];
    let world = World::shaped(&Shape { members, nodes: 4, cpu: 5 }, &PATIENT).await;
    let places = ["onprem/left", "onprem/right"];
    let named = |at: usize| format!("racer-{at}");
    let racer = |at| Group::new(&named(at), App::new(&named(at), 1000)).among(&places).on(&places);
    let groups: Vec<Group> = (0..100).map(racer).collect();
    approved(&world, &groups).await;
    let operations = instantiated(&world, &groups).await;
    assert_eq!(winners(&operations), 40);
    told_why(&operations, &["onprem+left", "onprem+right"], &["plan_infeasible"]);

    // Twenty whole CPUs in each member, five on each node, and every one of them serves.
    let taken = look::taken(&world).await;
    assert!(taken.len() == 8 && taken.values().all(|taken| *taken == 5000), "{taken:?}");
    assert_eq!(world.claims().await.unwrap().len(), 40);
    for (operation, at) in operations.iter().zip(0..) {
        let wanted = usize::from(operation.state == OperationState::Succeeded);
        let created =
            world.members().iter().map(|member| world.sim().unwrap().created(member.name, "deployments.apps", "default", &named(at)));
        assert_eq!(created.sum::<usize>(), wanted, "{operation:#?}");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn newcomers_that_want_the_same_victims_do_not_tear_them_apart() {
    const VICTIMS: usize = 8;
    let members = vec![("crowded", "onprem", 1), ("spare", "aws", 5)];
    let world = World::shaped(&Shape { members, nodes: 2, cpu: 4 }, &PATIENT).await;
    let places = ["onprem/crowded", "aws/spare"];
    let victim = |at: usize| format!("victim-{at}");
    let victims: Vec<Group> =
        (0..VICTIMS).map(|at| Group::new(&victim(at), App::new(&victim(at), 1000)).among(&places).on(&places).movable(5)).collect();
    approved(&world, &victims).await;
    assert_eq!(winners(&instantiated(&world, &victims).await), VICTIMS);
    let sim = world.sim().unwrap();
    let created = |member: &str, at: usize| sim.created(member, "deployments.apps", "default", &victim(at));
    assert!((0..VICTIMS).all(|at| created("crowded", at) == 1), "they fill the preferred one");
    let witnesses: Vec<_> = (0..VICTIMS).map(|at| sim.record_ready(None, &format!("app={}", victim(at))).unwrap()).collect();
    witnesses.iter().for_each(drover_kubesim::ReadyRecorder::arm);

    // Two CPUs each where there are eight: four may come, and every victim is wanted by all.
    let newcomer = |at: usize| format!("newcomer-{at}");
    let newcomers: Vec<Group> =
        (0..20).map(|at| Group::new(&newcomer(at), App::new(&newcomer(at), 2000)).among(&places).on(&places[..1])).collect();
    approved(&world, &newcomers).await;
    let operations = instantiated(&world, &newcomers).await;
    let winners = winners(&operations);
    assert!((1..=4).contains(&winners), "{winners} have a place");
    told_why(&operations, &[], &["plan_infeasible", "victim_busy", "world_changed", "room_lost"]);
    let losers = operations.iter().filter(|operation| operation.state != OperationState::Succeeded);
    losers.for_each(|loser| assert!(!loser.reasons.is_empty() || !loser.message.is_empty(), "{loser:#?}"));

    for (at, witness) in witnesses.iter().enumerate() {
        assert!(witness.min() >= 1, "{} had a moment without a ready replica", victim(at));
        assert!(created("crowded", at) == 1 && created("spare", at) <= 1, "{} moved more than once", victim(at));
        let home = if created("spare", at) == 1 { "spare" } else { "crowded" };
        world.serves_on(&victim(at), home).await;
        assert_eq!(world.home(&victim(at)).await, home);
    }
    look::no_node_is_over(&world, 4000).await;
    let claims = world.claims().await.unwrap();
    assert_eq!(claims.len(), VICTIMS + winners, "{claims:#?}");
    world.end().await;
}
