//! Errors between agent and runtime, on a runtime that misbehaves on demand and a machine of plain files: calls that are not implemented,
//! silence, containers that vanish, wrong numbers. Needs no root.

use drover_memguard::{Lever, Moment};
use drover_memory_guard::cgroup::Freezer;
use drover_memory_guard::fake::{CallFault, FakeContainer};
use drover_memory_guard::journal::{Hold, JournalEntry};
use drover_memory_guard::levers::{LeverError, Released, release};
use drover_memory_guard::proto::containerd::events::TaskExit;
use drover_memory_guard::runtime::Runtime;
use drover_memory_guard::wire::Status;
use serde_json::{Value, json};

use crate::support::machine::FakeMachine;
use crate::support::{PATIENCE, SWITCH, until};

const MIB: u64 = 1 << 20;

/// Settings under which every eligible container is paused, once (a second round would be the paper's sacrifice).
fn pause_all_once(lever: Lever) -> Value {
    pause_all_every(lever, 3600.0)
}

fn pause_all_every(lever: Lever, round: f64) -> Value {
    json!({
        "policy": {"policy": "paper", "upper": 0.0, "lower": 0.0, "perRound": 100, "round": round},
        "safety": {"keepRunning": 0, "levers": [lever], "highFirst": false},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auto_policy_is_the_bank_without_events_and_the_gate_with_them() {
    let machine = FakeMachine::new();
    machine.fake.fault("Events.Subscribe", Some(CallFault::Unimplemented));
    machine.add("a");
    let (state, socket) = (machine.dir.path().join("state"), machine.socket());
    let agent = machine.start(&state, &socket).start().unwrap();
    let has = |status: &Status, policy: &str, gate: &str| (status.containers.len(), &*status.policy, &*status.gate.by) == (1, policy, gate);
    let status = agent.status_when("the bank guards the container", |status| has(status, "bank", "none")).await.unwrap();
    assert!(status.policy_because.contains("does not offer Events.Subscribe"), "{}", status.policy_because);
    assert_eq!(status.containers[0].name, "jobs/pod-a/main");
    let (code, text) = agent.get("/metrics").await.unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(code == 200 && text.contains("drover_memguard_node_capacity_bytes 1073741824"), "{text}");
    agent.stop().await.unwrap();

    machine.fake.fault("Events.Subscribe", None);
    let state = machine.dir.path().join("again");
    let agent = machine.start(&state, &socket).start().unwrap();
    agent.status_when("the gate guards the container", |status| has(status, "gate-bank", "events")).await.unwrap();
    agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_keeps_holding_known_containers_while_the_runtime_is_silent() {
    let machine = FakeMachine::new();
    machine.add("a");
    let (state, socket) = (machine.dir.path().join("state"), machine.socket());
    let agent = machine.start_waiting(&state, &socket, "500ms").settings(pause_all_once(Lever::Freeze)).start().unwrap();
    until("it is frozen", || machine.read("a", "cgroup.freeze") == "1").await;
    machine.fake.fault("ListContainers", Some(CallFault::Silent));
    let status = agent.status_when("the silence is noticed", |status| status.runtime.starts_with("not answering")).await.unwrap();
    assert_eq!(status.containers.len(), 1, "the agent continues with the containers that it knows");
    // A machine that does not let the agent run for a while is another matter.
    assert!(machine.read("a", "cgroup.freeze") == "1" || agent.log().contains(SWITCH), "{}", agent.log());
    agent.stop().await.unwrap();
    assert_eq!(machine.read("a", "cgroup.freeze"), "0", "thawing needs no runtime");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_forgets_a_container_that_vanishes_while_it_is_held() {
    let machine = FakeMachine::new();
    machine.add("a");
    machine.add("b");
    machine.fake.fault("ContainerStatus", Some(CallFault::NotFound));
    let (state, socket) = (machine.dir.path().join("state"), machine.socket());
    let agent = machine.start(&state, &socket).settings(pause_all_every(Lever::Freeze, 1.0)).start().unwrap();
    agent
        .status_when("a container that is gone before it was inspected is no error", |status| status.runtime.starts_with("fake"))
        .await
        .unwrap();
    machine.fake.fault("ContainerStatus", None);
    until("both are frozen", || machine.read("a", "cgroup.freeze") == "1" && machine.read("b", "cgroup.freeze") == "1").await;
    machine.fake.remove("a");
    std::fs::remove_dir_all(machine.group("a")).unwrap();
    machine.fake.publish("/tasks/exit", &TaskExit { container_id: "a".into(), exit_status: 137, ..TaskExit::default() }).await;
    let status = agent.status_when("it is forgotten", |status| status.containers.len() == 1).await.unwrap();
    assert_eq!(status.totals.oom_kills, 1, "exit 137 that the guard did not cause");
    until("its entry is closed", || agent.held().unwrap() == 1).await;
    agent.stop().await.unwrap();
    assert_eq!(machine.read("b", "cgroup.freeze"), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_never_holds_containers_that_it_cannot_understand() {
    let machine = FakeMachine::new();
    machine.add("good");
    machine.fake.put("words", FakeContainer { malformed: Some("{\"pid\": \"many\"}".into()), ..machine.container("words") });
    machine.fake.put("nowhere", FakeContainer { cgroups_path: "/kubepods/burstable/nowhere".into(), ..machine.container("nowhere") });
    machine.fake.put("empty", FakeContainer { cgroups_path: String::new(), ..machine.container("empty") });
    machine.add("numbers");
    std::fs::write(machine.group("numbers").join("memory.current"), "a lot\n").unwrap();
    machine.add("full");
    std::fs::write(machine.group("full").join("memory.current"), "18446744073709551615\n").unwrap();
    let (state, socket) = (machine.dir.path().join("state"), machine.socket());
    let agent = machine.start(&state, &socket).settings(pause_all_once(Lever::Freeze)).start().unwrap();
    until("the container that is understood is frozen", || machine.read("good", "cgroup.freeze") == "1").await;
    let status = agent.status_when("it has observed the containers", |status| !status.containers.is_empty()).await.unwrap();
    let ids: Vec<&str> = status.containers.iter().map(|container| container.id.as_str()).collect();
    assert_eq!(ids, ["full", "good", "numbers"]);
    for id in ["words", "nowhere", "empty", "numbers"] {
        assert_eq!(machine.read(id, "cgroup.freeze"), "0", "{id} must not be frozen");
    }
    assert!(agent.log().contains("not understood"), "{}", agent.log());
    agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_the_runtime_refuses_is_restored() {
    let machine = FakeMachine::new();
    machine.add("a");
    machine.fake.fault("UpdateContainerResources", Some(CallFault::Unknown("write cpu.cfs_quota_us: invalid argument".into())));
    let (state, socket) = (machine.dir.path().join("state"), machine.socket());
    let agent = machine.start(&state, &socket).settings(pause_all_once(Lever::Quota)).start().unwrap();
    agent.status_when("the quota was tried", |status| status.containers.iter().any(|container| container.last.is_some())).await.unwrap();
    until("the refusal is logged", || agent.log().contains("could not be held")).await;
    machine.fake.fault("UpdateContainerResources", None);
    agent.stop().await.unwrap();
    assert_eq!(machine.read("a", "cpu.max"), "50000 100000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_are_set_through_the_runtime_and_restored() {
    let machine = FakeMachine::new();
    machine.add("a");
    let (state, socket) = (machine.dir.path().join("state"), machine.socket());
    let agent = machine.start(&state, &socket).settings(pause_all_once(Lever::Quota)).start().unwrap();
    // A 45th of half a CPU, with the longest period.
    until("the container is slowed", || machine.read("a", "cpu.max") == "11111 1000000").await;
    agent.status_when("the pause is counted", |status| status.totals.pauses == 1).await.unwrap();
    assert!(machine.fake.calls().contains(&"UpdateContainerResources a".to_owned()));
    agent.stop().await.unwrap();
    assert_eq!(machine.read("a", "cpu.max"), "50000 100000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_does_not_wait_until_the_runtime_was_told_about_another() {
    let machine = FakeMachine::new();
    machine.add("a");
    machine.fake.fault("UpdateContainerResources", Some(CallFault::Silent));
    let (state, socket) = (machine.dir.path().join("state"), machine.socket());
    // An agent that waited for the answer would wait for longer than this test does.
    let start = machine.start_waiting(&state, &socket, "600000ms").settings(pause_all_every(Lever::Quota, 1.0));
    let agent = start.start().unwrap();
    until("the first is slowed", || machine.read("a", "cpu.max") == "11111 1000000").await;
    machine.add("b");
    until("the second is slowed", || machine.read("b", "cpu.max") == "11111 1000000").await;
    // Killed rather than stopped, because on exit the agent would wait for the runtime to restore the quota.
    drop(agent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_high_lease_limits_growth_and_is_restored() {
    let machine = FakeMachine::new();
    machine.add("a");
    machine.add("b");
    let (state, socket) = (machine.dir.path().join("state"), machine.socket());
    // Each may take another 100 MiB, and less is free, so only one of them may grow.
    std::fs::write(machine.proc().join("meminfo"), "MemTotal: 1048576 kB\nMemAvailable: 61440 kB\n").unwrap();
    let settings = json!({"policy": {"policy": "bank", "margin": 0.01, "reaction": 0.0}, "safety": {"highFirst": true}});
    let agent = machine.start(&state, &socket).settings(settings).start().unwrap();
    let leased_at = (100 * MIB).to_string();
    let leased = || ["a", "b"].into_iter().find(|id| machine.read(id, "memory.high") == leased_at);
    until("one of them is leased at what it uses", || leased().is_some()).await;
    let leased = leased().unwrap();
    assert_eq!(machine.read(leased, "cgroup.freeze"), "0", "it is not frozen");
    // It grows past its lease.
    machine.uses(leased, 125 * MIB);
    until("it is frozen", || machine.read(leased, "cgroup.freeze") == "1").await;
    agent.stop().await.unwrap();
    for id in ["a", "b"] {
        assert_eq!((machine.read(id, "memory.high").as_str(), machine.read(id, "cgroup.freeze").as_str()), ("max", "0"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_notices_a_pause_that_the_runtime_confirms_but_does_not_carry_out() {
    let machine = FakeMachine::new();
    machine.add("a");
    machine.fake.fault("Tasks.Pause", Some(CallFault::Ignored));
    let (state, socket) = (machine.dir.path().join("state"), machine.socket());
    let agent = machine.start(&state, &socket).settings(pause_all_once(Lever::Freeze)).args(["--freeze-by", "runtime"]).start().unwrap();
    until("the pause was requested", || machine.fake.calls().contains(&"Tasks.Pause a".to_owned())).await;
    until("the agent sees that it did not happen", || agent.log().contains("something else released a held container")).await;
    agent.stop().await.unwrap();
    assert!(!machine.fake.paused("a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_is_complete_only_when_a_pause_that_was_under_way_is_over() {
    let machine = FakeMachine::new();
    machine.fake.put("a", FakeContainer { pausing: true, ..machine.container("a") });
    let freezer = Freezer::V2(machine.group("a"));
    freezer.freeze().unwrap();
    let hold = Hold::Pause { freezer: Some(freezer) };
    let entry = JournalEntry { container: "a".into(), name: "a".into(), hold, since: Moment(0), until: Moment(1), at_gate: false };
    let runtime = Runtime::at(&machine.socket(), PATIENCE);

    let early = release(&entry, Some(&runtime)).await;
    assert!(matches!(early, Err(LeverError::Pausing)), "{early:?}");
    assert_eq!(machine.read("a", "cgroup.freeze"), "0", "it runs all the same");

    machine.fake.put("a", FakeContainer { paused: true, ..machine.container("a") });
    assert_eq!(release(&entry, Some(&runtime)).await.unwrap(), Released::Restored);
    assert!(!machine.fake.paused("a"));
    assert_eq!(machine.read("a", "cgroup.freeze"), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auto_policy_becomes_the_bank_when_a_runtime_without_events_starts_late() {
    let machine = FakeMachine::without_runtime();
    machine.fake.fault("Events.Subscribe", Some(CallFault::Unimplemented));
    let (state, socket) = (machine.dir.path().join("state"), machine.socket());
    let agent = machine.start(&state, &socket).start().unwrap();
    agent.status_when("it runs without a runtime", |status| status.runtime.starts_with("not answering")).await.unwrap();
    machine.start_runtime();
    let status = agent.status_when("the bank decides", |status| status.policy == "bank").await.unwrap();
    assert!(status.policy_because.contains("does not offer Events.Subscribe"), "{}", status.policy_because);
    agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exit_event_counts_as_oom_kill_after_the_container_left_the_list() {
    let machine = FakeMachine::new();
    machine.add("a");
    let (state, socket) = (machine.dir.path().join("state"), machine.socket());
    let agent = machine.start(&state, &socket).start().unwrap();
    let ready = |status: &Status| status.containers.len() == 1 && status.gate.by == "events";
    agent.status_when("it knows the container and receives events", ready).await.unwrap();
    machine.fake.remove("a");
    agent.status_when("the container is not listed any more", |status| status.containers.is_empty()).await.unwrap();
    let exit = TaskExit { container_id: "a".into(), exit_status: 137, ..TaskExit::default() };
    machine.fake.publish("/tasks/exit", &exit).await;
    agent.status_when("its OOM kill is counted", |status| status.totals.oom_kills == 1).await.unwrap();
    // Events are processed in order, so the last one shows that the others were: a repeated one, and one of an unknown container.
    machine.add("b");
    agent.status_when("it knows the second container", |status| status.containers.len() == 1).await.unwrap();
    for id in ["a", "unknown", "b"] {
        machine.fake.publish("/tasks/exit", &TaskExit { container_id: id.into(), ..exit.clone() }).await;
    }
    let status = agent.status_when("the second OOM kill is counted", |status| status.totals.oom_kills > 1).await.unwrap();
    assert_eq!(status.totals.oom_kills, 2, "each container counts once, and only if it was known");
    agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_panic_run_again_and_are_counted() {
    let machine = FakeMachine::new();
    machine.add("a");
    let (state, socket) = (machine.dir.path().join("state"), machine.socket());
    let mut start = machine.start(&state, &socket);
    start.panics = Some("socket,runtime-events,nri-plugin");
    let agent = start.start().unwrap();
    // The status comes through the socket, and says that events are received.
    agent.status_when("the gate guards by events", |status| status.gate.by == "events").await.unwrap();
    let (_, text) = agent.get("/metrics").await.unwrap();
    let text = String::from_utf8(text).unwrap();
    for task in ["socket", "runtime-events", "nri-plugin"] {
        assert!(text.contains(&format!("drover_memguard_task_failures_total{{task=\"{task}\"}} 1")), "{text}");
    }
    agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_goes_on_while_a_write_of_memory_high_blocks() {
    let machine = FakeMachine::new();
    machine.add("a");
    machine.add("b");
    let (state, socket) = (machine.dir.path().join("state"), machine.socket());
    std::fs::write(machine.proc().join("meminfo"), "MemTotal: 1048576 kB\nMemAvailable: 61440 kB\n").unwrap();
    let settings = json!({"policy": {"policy": "bank", "margin": 0.01, "reaction": 0.0}, "safety": {"highFirst": true}});
    let mut start = machine.start(&state, &socket).settings(settings);
    start.stall_at = Some("high");
    let agent = start.start().unwrap();
    // The lease is in the journal before it is written.
    until("a lease has begun", || std::fs::read_to_string(state.join("journal")).is_ok_and(|journal| journal.contains("memory.high")))
        .await;
    // A new container is seen, so the agent polls, and its heartbeat goes on.
    machine.add("c");
    agent.status_when("the new container is seen", |status| status.containers.len() == 3).await.unwrap();
    assert_eq!([machine.read("a", "memory.high"), machine.read("b", "memory.high")], ["max", "max"], "the write still blocks");
    // Dropping the agent kills it: its exit waits for the write.
}
