//! What goes wrong between agent and runtime, on a runtime that misbehaves on demand and a tree of plain files: calls that do not exist,
//! silence, containers that vanish, wrong numbers. Needs no root.

use drover_memguard::Lever;
use drover_memory_guard::fake::{FakeContainer, Fault};
use drover_memory_guard::proto::containerd::events::TaskExit;
use serde_json::{Value, json};

use crate::support::until;
use crate::support::world::World;

const MIB: u64 = 1 << 20;

/// Pauses whoever may be paused, once (a second round would be the paper's sacrifice).
fn pause_everybody(lever: Lever) -> Value {
    pause_every(lever, 3600.0)
}

fn pause_every(lever: Lever, round: f64) -> Value {
    json!({
        "policy": {"policy": "paper", "upper": 0.0, "lower": 0.0, "perRound": 100, "round": round},
        "safety": {"keepRunning": 0, "levers": [lever], "highFirst": false},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_without_events_gets_the_bank_and_the_status_says_why() {
    let world = World::new();
    world.fake.fault("Events.Subscribe", Some(Fault::Unimplemented));
    world.add("a");
    let (state, socket) = (world.dir.path().join("state"), world.socket());
    let agent = world.start(&state, &socket).start().unwrap();
    let status = agent.status_when("it sees the container", |status| status.containers.len() == 1).await.unwrap();
    assert_eq!((status.policy.as_str(), status.gate.by.as_str()), ("bank", "none"));
    assert!(status.policy_because.contains("does not offer Events.Subscribe"), "{}", status.policy_because);
    assert_eq!(status.containers[0].name, "jobs/pod-a/main");
    let (code, text) = agent.get("/metrics").await.unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(code == 200 && text.contains("drover_memguard_node_capacity_bytes 1073741824"), "{text}");
    agent.stop().await.unwrap();

    world.fake.fault("Events.Subscribe", None);
    let state = world.dir.path().join("again");
    let agent = world.start(&state, &socket).start().unwrap();
    let status = agent.status_when("it sees the container", |status| status.containers.len() == 1).await.unwrap();
    assert_eq!((status.policy.as_str(), status.gate.by.as_str()), ("gate-bank", "events"));
    agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_runtime_changes_nothing_for_those_known() {
    let world = World::new();
    world.add("a");
    let (state, socket) = (world.dir.path().join("state"), world.socket());
    let agent = world.start(&state, &socket).settings(pause_everybody(Lever::Freeze)).start().unwrap();
    until("it is frozen", || world.read("a", "cgroup.freeze") == "1").await;
    world.fake.fault("ListContainers", Some(Fault::Silent));
    let status = agent.status_when("the silence is noticed", |status| status.runtime.starts_with("not answering")).await.unwrap();
    assert_eq!(status.containers.len(), 1, "it goes on with those known");
    assert_eq!(world.read("a", "cgroup.freeze"), "1");
    agent.stop().await.unwrap();
    assert_eq!(world.read("a", "cgroup.freeze"), "0", "thawing asks nobody");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_vanishes_while_it_is_held_is_forgotten() {
    let world = World::new();
    world.add("a");
    world.add("b");
    world.fake.fault("ContainerStatus", Some(Fault::NotFound));
    let (state, socket) = (world.dir.path().join("state"), world.socket());
    let agent = world.start(&state, &socket).settings(pause_every(Lever::Freeze, 1.0)).start().unwrap();
    agent.status_when("gone before it was looked at is no error", |status| status.runtime.starts_with("fake")).await.unwrap();
    world.fake.fault("ContainerStatus", None);
    until("both are frozen", || world.read("a", "cgroup.freeze") == "1" && world.read("b", "cgroup.freeze") == "1").await;
    world.fake.remove("a");
    std::fs::remove_dir_all(world.group("a")).unwrap();
    world.fake.publish("/tasks/exit", &TaskExit { container_id: "a".into(), exit_status: 137, ..TaskExit::default() }).await;
    let status = agent.status_when("it is forgotten", |status| status.containers.len() == 1).await.unwrap();
    assert_eq!(status.totals.oom_kills, 1, "exit 137 that the guard did not cause");
    until("its entry is closed", || agent.held().unwrap() == 1).await;
    agent.stop().await.unwrap();
    assert_eq!(world.read("b", "cgroup.freeze"), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_left_alone() {
    let world = World::new();
    world.add("good");
    world.fake.put("words", FakeContainer { nonsense: Some("{\"pid\": \"many\"}".into()), ..world.container("words") });
    world.fake.put("nowhere", FakeContainer { cgroups_path: "/kubepods/burstable/nowhere".into(), ..world.container("nowhere") });
    world.fake.put("empty", FakeContainer { cgroups_path: String::new(), ..world.container("empty") });
    world.add("numbers");
    std::fs::write(world.group("numbers").join("memory.current"), "a lot\n").unwrap();
    world.add("full");
    std::fs::write(world.group("full").join("memory.current"), "18446744073709551615\n").unwrap();
    let (state, socket) = (world.dir.path().join("state"), world.socket());
    let agent = world.start(&state, &socket).settings(pause_everybody(Lever::Freeze)).start().unwrap();
    until("who is understood is frozen", || world.read("good", "cgroup.freeze") == "1").await;
    let status = agent.status_when("it has looked", |status| !status.containers.is_empty()).await.unwrap();
    let ids: Vec<&str> = status.containers.iter().map(|container| container.id.as_str()).collect();
    assert_eq!(ids, ["full", "good", "numbers"]);
    for id in ["words", "nowhere", "empty", "numbers"] {
        assert_eq!(world.read(id, "cgroup.freeze"), "0", "{id} is left alone");
    }
    assert!(agent.log().contains("not understood"), "{}", agent.log());
    agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_the_runtime_refuses_is_taken_back() {
    let world = World::new();
    world.add("a");
    world.fake.fault("UpdateContainerResources", Some(Fault::Unknown("write cpu.cfs_quota_us: invalid argument".into())));
    let (state, socket) = (world.dir.path().join("state"), world.socket());
    let agent = world.start(&state, &socket).settings(pause_everybody(Lever::Quota)).start().unwrap();
    agent.status_when("it was tried", |status| status.containers.iter().any(|container| container.last.is_some())).await.unwrap();
    until("the refusal is logged", || agent.log().contains("could not be held")).await;
    world.fake.fault("UpdateContainerResources", None);
    agent.stop().await.unwrap();
    assert_eq!(world.read("a", "cpu.max"), "50000 100000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_go_through_the_runtime_and_come_back_as_they_were() {
    let world = World::new();
    world.add("a");
    let (state, socket) = (world.dir.path().join("state"), world.socket());
    let agent = world.start(&state, &socket).settings(pause_everybody(Lever::Quota)).start().unwrap();
    // A 45th of half a CPU, in the longest period.
    until("it crawls", || world.read("a", "cpu.max") == "11111 1000000").await;
    agent.status_when("it is booked", |status| status.totals.pauses == 1).await.unwrap();
    assert!(world.fake.calls().contains(&"UpdateContainerResources a".to_owned()));
    agent.stop().await.unwrap();
    assert_eq!(world.read("a", "cpu.max"), "50000 100000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_to_be_held_does_not_wait_until_the_runtime_has_been_told_of_another() {
    let world = World::new();
    world.add("a");
    world.fake.fault("UpdateContainerResources", Some(Fault::Silent));
    let (state, socket) = (world.dir.path().join("state"), world.socket());
    let mut start = world.start(&state, &socket).settings(pause_every(Lever::Quota, 1.0));
    // An agent that waited for an answer would do so for longer than this test is patient.
    start.args.iter_mut().filter(|arg| *arg == "500ms").for_each(|arg| *arg = "600000ms".to_owned());
    let agent = start.start().unwrap();
    until("the first crawls", || world.read("a", "cpu.max") == "11111 1000000").await;
    world.add("b");
    until("and the second", || world.read("b", "cpu.max") == "11111 1000000").await;
    // Not stopped: it would wait for an answer, so that the runtime forgets the quota.
    drop(agent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_memory_high_is_given_and_taken_back() {
    let world = World::new();
    world.add("a");
    world.add("b");
    let (state, socket) = (world.dir.path().join("state"), world.socket());
    // Each may take another 100 MiB, and less is free: one of them may grow.
    std::fs::write(world.proc().join("meminfo"), "MemTotal: 1048576 kB\nMemAvailable: 61440 kB\n").unwrap();
    let settings = json!({"policy": {"policy": "bank", "margin": 0.01, "reaction": 0.0}, "safety": {"highFirst": true}});
    let agent = world.start(&state, &socket).settings(settings).start().unwrap();
    until("one of them has a lease", || (world.read("a", "memory.high") == "max") != (world.read("b", "memory.high") == "max")).await;
    let leased = if world.read("a", "memory.high") == "max" { "b" } else { "a" };
    assert_eq!(world.read(leased, "memory.high"), (100 * MIB).to_string());
    assert_eq!(world.read(leased, "cgroup.freeze"), "0", "it is not frozen");
    // It leaks through: now it is.
    world.uses(leased, 125 * MIB);
    until("it is frozen", || world.read(leased, "cgroup.freeze") == "1").await;
    agent.stop().await.unwrap();
    for id in ["a", "b"] {
        assert_eq!((world.read(id, "memory.high").as_str(), world.read(id, "cgroup.freeze").as_str()), ("max", "0"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_that_is_agreed_to_and_does_not_happen_is_seen() {
    let world = World::new();
    world.add("a");
    world.fake.fault("Tasks.Pause", Some(Fault::Ignored));
    let (state, socket) = (world.dir.path().join("state"), world.socket());
    let agent = world.start(&state, &socket).settings(pause_everybody(Lever::Freeze)).args(["--freeze-by", "runtime"]).start().unwrap();
    until("the pause was asked for", || world.fake.calls().contains(&"Tasks.Pause a".to_owned())).await;
    until("and seen not to have happened", || agent.log().contains("somebody else let it go")).await;
    agent.stop().await.unwrap();
    assert!(!world.fake.paused("a"));
}
