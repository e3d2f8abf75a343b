//! An unreachable member: when others are planned for, when it is a destination, and when something on it is to be deleted.

use std::time::Duration;

use drover_api::scheduling::MemberState;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{Backend, SHORT, System, moves, succeeded};
use drover_kubesim::Fault;
use drover_store::failpoint::{Action, Failpoints};
use drover_testkit::eventually;

/// It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(120);
const ONLY_A: [&str; 1] = ["onprem/private-a"];

fn full(name: &str) -> Group {
    let app = |at: usize| App::new(&format!("{name}-{at}"), 1000);
    Group::of(name, (1..=4).map(app).collect()).in_project(name)
}

async fn until_unreachable(system: &System, member: &str) {
    let told = async || system.clusters().await.iter().any(|c| c.cluster == member && c.state == MemberState::Unreachable).then_some(());
    eventually(TIMEOUT, told).await;
}

/// The time limits are longer than the test waits, so an operation that waited for the unreachable member would fail the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn plan_is_not_delayed_by_an_unrelated_unreachable_member() {
    let system = System::new(Backend::Simulated).await;
    succeeded(&full("calm").on(&["onprem/private-a", "onprem/private-b"]).movable(5).deploy(&system.client).await.unwrap());
    system.sim().unwrap().fault("public-c", Fault::Partition { hang: true });
    let drained = full("rest").on(&["onprem/private-a", "onprem/private-b"]);
    succeeded(&drained.deploy(&system.client).await.unwrap());
    let id = drained.verb(&system.client, "terminate").await.unwrap();
    succeeded(&ended(&system.client, &id).await.unwrap());
    until_unreachable(&system, "public-c").await;
    // Each member has two of the apps. A newcomer that needs a whole member makes its two apps move to the other one.
    let home = system.home("calm-1").await;
    let apps = ["newcomer-1", "newcomer-2"].map(|name| App::new(name, 2000)).into();
    let newcomer = Group::of("newcomer", apps).in_project("other").on(&[format!("onprem/{home}").as_str()]);
    let operation = newcomer.deploy(&system.client).await.unwrap();
    succeeded(&operation);
    assert_eq!(moves(&system.client, &operation).await.len(), 2, "{operation:#?}");
    assert_eq!(system.home("newcomer-1").await, home);
    assert!(
        system.clusters().await.iter().any(|c| c.cluster == "public-c" && c.state == MemberState::Unreachable),
        "the member was unreachable all the time"
    );
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unreachable_destination_is_replaced_by_the_next() {
    let system = System::with(Backend::Simulated, &SHORT).await;
    let sim = system.sim().unwrap();
    // private-b is full when the movable apps are deployed, so they are placed on private-a; later it is their preferred destination.
    let filler = full("filler").on(&["onprem/private-b"]);
    succeeded(&filler.deploy(&system.client).await.unwrap());
    succeeded(&full("movable").movable(5).deploy(&system.client).await.unwrap());
    let id = filler.verb(&system.client, "terminate").await.unwrap();
    succeeded(&ended(&system.client, &id).await.unwrap());
    let witness = sim.record_ready(None, "app=movable-1").unwrap();
    witness.arm();

    let newcomer = Group::new("newcomer", App::new("newcomer", 2000)).in_project("away").on(&ONLY_A);
    newcomer.approve(&system.client).await.unwrap();
    // The destination becomes unreachable when the plan is accepted and claimed, and before anything was sent there.
    let (failpoints, point) = (Failpoints::of_process(), "relocate/prepare/do/before@away/newcomer/v1/newcomer");
    failpoints.set(point, Action::Pause);
    let id = newcomer.verb(&system.client, "instantiate").await.unwrap();
    eventually(TIMEOUT, async || failpoints.is_paused(point).then_some(())).await;
    sim.fault("private-b", Fault::Partition { hang: true });
    failpoints.clear(point);
    let operation = ended(&system.client, &id).await.unwrap();
    succeeded(&operation);
    let made = moves(&system.client, &operation).await;
    assert!(made.len() == 2 && made.iter().all(|made| made.ends_with(">aws+public-c")), "{made:?}");
    system.serves_except("private-b", "newcomer", "private-a").await;
    assert!(witness.min() >= 1);

    // Nothing is applied to the first destination any more, even when it is back.
    sim.clear_faults("private-b");
    eventually(TIMEOUT, async || {
        let clusters = system.clusters().await;
        let back = clusters.iter().find(|c| c.cluster == "private-b")?;
        (back.state == MemberState::Ready && back.apps.is_empty() && back.total.requested.cpu == 0).then_some(())
    })
    .await;
    assert!(system.member("private-b").deployed().await.is_empty());
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leftovers_are_deleted_when_the_member_is_back() {
    let flags = ["--unreachable-seconds=5", "--gone-seconds=10"].map(|flag| ("orchestrator", flag));
    let system = System::with(Backend::Simulated, &flags).await;
    let group = full("left").on(&ONLY_A);
    succeeded(&group.deploy(&system.client).await.unwrap());
    system.sim().unwrap().fault("private-a", Fault::Partition { hang: true });
    let id = group.verb(&system.client, "terminate").await.unwrap();
    let operation = ended(&system.client, &id).await.unwrap();
    succeeded(&operation);
    assert_eq!(operation.leftovers.len(), 4, "{operation:#?}");
    let room = async || system.clusters().await.into_iter().find(|c| c.cluster == "private-a").unwrap();
    assert_eq!(room().await.apps.len(), 4, "leftovers keep their room");
    system.sim().unwrap().clear_faults("private-a");
    eventually(TIMEOUT, async || system.member("private-a").deployed().await.is_empty().then_some(())).await;
    eventually(TIMEOUT, async || (room().await.apps.is_empty() && room().await.total.requested.cpu == 0).then_some(())).await;
    // The member can be used again.
    succeeded(&group.deploy(&system.client).await.unwrap());
    assert_eq!(system.home("left-1").await, "private-a");
    system.end().await;
}
