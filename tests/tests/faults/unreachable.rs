//! A member out of reach: for others, as a destination, when something of it is to be deleted.

use std::time::Duration;

use drover_api::scheduling::MemberState;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{Backend, World, moves, succeeded};
use drover_kubesim::Fault;
use drover_store::failpoint::{Action, Failpoints};
use drover_testkit::eventually;

/// Only against hanging.
const PATIENCE: Duration = Duration::from_secs(120);
const ONLY_A: [&str; 1] = ["onprem/private-a"];

fn full(name: &str) -> Group {
    let app = |at: usize| App::new(&format!("{name}-{at}"), 1000);
    Group::of(name, (1..=4).map(app).collect()).in_project(name)
}

async fn until_unreachable(world: &World, member: &str) {
    let told = async || world.clusters().await.iter().any(|c| c.cluster == member && c.state == MemberState::Unreachable).then_some(());
    eventually(PATIENCE, told).await;
}

/// Whoever waited for it would wait for ten minutes, and the test would not.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_plan_that_does_not_concern_it_is_not_delayed() {
    let flags = ["--unreachable-seconds=600", "--gone-seconds=600", "--room-seconds=600"].map(|flag| ("orchestrator", flag));
    let world = World::shaped(&Default::default(), &flags).await;
    succeeded(&full("calm").on(&["onprem/private-a", "onprem/private-b"]).movable(5).deploy(&world.client).await.unwrap());
    world.sim().unwrap().fault("public-c", Fault::Partition { hang: true });
    let drained = full("rest").on(&["onprem/private-a", "onprem/private-b"]);
    succeeded(&drained.deploy(&world.client).await.unwrap());
    let id = drained.verb(&world.client, "terminate").await.unwrap();
    succeeded(&ended(&world.client, &id).await.unwrap());
    until_unreachable(&world, "public-c").await;
    // Two of them are on each; a newcomer that wants all of one sends these to the other.
    let home = world.home("calm-1").await;
    let apps = ["newcomer-1", "newcomer-2"].map(|name| App::new(name, 2000)).into();
    let newcomer = Group::of("newcomer", apps).in_project("other").on(&[format!("onprem/{home}").as_str()]);
    let operation = newcomer.deploy(&world.client).await.unwrap();
    succeeded(&operation);
    assert_eq!(moves(&world.client, &operation).await.len(), 2, "{operation:#?}");
    assert_eq!(world.home("newcomer-1").await, home);
    assert!(
        world.clusters().await.iter().any(|c| c.cluster == "public-c" && c.state == MemberState::Unreachable),
        "it was away all the time"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_destination_out_of_reach_is_given_up_for_the_next() {
    let world = World::new(Backend::Simulated).await;
    let sim = world.sim().unwrap();
    // private-b is full while they come, so that all are on private-a; later it is where they would rather go.
    let filler = full("filler").on(&["onprem/private-b"]);
    succeeded(&filler.deploy(&world.client).await.unwrap());
    succeeded(&full("movable").movable(5).deploy(&world.client).await.unwrap());
    let id = filler.verb(&world.client, "terminate").await.unwrap();
    succeeded(&ended(&world.client, &id).await.unwrap());
    let witness = sim.record_ready(None, "app=movable-1").unwrap();
    witness.arm();

    let newcomer = Group::new("newcomer", App::new("newcomer", 2000)).in_project("away").on(&ONLY_A);
    newcomer.approve(&world.client).await.unwrap();
    // The plan is accepted and claimed; before the first word reaches its destination, that is away.
    let (failpoints, point) = (Failpoints::of_process(), "relocate/prepare/do/before@away/newcomer/v1/newcomer");
    failpoints.set(point, Action::Pause);
    let id = newcomer.verb(&world.client, "instantiate").await.unwrap();
    eventually(PATIENCE, async || failpoints.is_paused(point).then_some(())).await;
    sim.fault("private-b", Fault::Partition { hang: true });
    failpoints.clear(point);
    let operation = ended(&world.client, &id).await.unwrap();
    succeeded(&operation);
    let made = moves(&world.client, &operation).await;
    assert!(made.len() == 2 && made.iter().all(|made| made.ends_with(">aws+public-c")), "{made:?}");
    world.serves_except("private-b", "newcomer", "private-a").await;
    assert!(witness.min() >= 1);

    // Nothing is ever applied to the destination that was given up.
    sim.clear_faults("private-b");
    eventually(PATIENCE, async || {
        let clusters = world.clusters().await;
        let back = clusters.iter().find(|c| c.cluster == "private-b")?;
        (back.state == MemberState::Ready && back.apps.is_empty() && back.total.requested.cpu == 0).then_some(())
    })
    .await;
    assert!(world.member("private-b").deployed().await.is_empty());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_could_not_be_deleted_is_cleaned_when_it_returns() {
    let world = World::new(Backend::Simulated).await;
    let group = full("left").on(&ONLY_A);
    succeeded(&group.deploy(&world.client).await.unwrap());
    world.sim().unwrap().fault("private-a", Fault::Partition { hang: true });
    let id = group.verb(&world.client, "terminate").await.unwrap();
    let operation = ended(&world.client, &id).await.unwrap();
    succeeded(&operation);
    assert_eq!(operation.leftovers.len(), 4, "{operation:#?}");
    let room = async || world.clusters().await.into_iter().find(|c| c.cluster == "private-a").unwrap();
    assert_eq!(room().await.apps.len(), 4, "what is left keeps its room");
    world.sim().unwrap().clear_faults("private-a");
    eventually(PATIENCE, async || world.member("private-a").deployed().await.is_empty().then_some(())).await;
    eventually(PATIENCE, async || (room().await.apps.is_empty() && room().await.total.requested.cpu == 0).then_some(())).await;
    // And it is a member like any other.
    succeeded(&group.deploy(&world.client).await.unwrap());
    assert_eq!(world.home("left-1").await, "private-a");
    world.end().await;
}
