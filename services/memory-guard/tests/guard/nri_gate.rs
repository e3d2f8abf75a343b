//! The start gate by NRI on a real containerd 2: a container that does not fit is refused before it exists and is allowed later; an agent
//! that hangs or dies refuses no container.

use std::time::{Duration, Instant};

use drover_lab_node::{Agent, Containerd, Pod, Spec};
use drover_memguard::Activity;
use drover_memory_guard::wire::Status;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::{containerd_two, guard, missing, say, until};

const MIB: u64 = 1 << 20;

fn spec(name: &str) -> Spec {
    // With the demand factor that is assumed at first, two containers of 220 MiB fit into 512 MiB, and a third does not.
    Spec { memory: i64::try_from(220 * MIB).unwrap(), quota: 0, ..Spec::new(name, &["grow", "50"]) }
}

async fn agent(containerd: &Containerd) -> Agent {
    let state = containerd.dir.path().join("agent");
    let start = guard(&state, &containerd.socket).settings(json!({"policy": {"policy": "gate-bank"}}));
    let agent = start.args(["--mode", "apply", "--poll", "100ms", "--cgroup", &containerd.node]).start().unwrap();
    agent.status_when("the runtime asks it", |status| status.gate.by == "nri" && status.hindered.is_none()).await.unwrap();
    agent
}

fn waits(status: &Status, pod: &str) -> bool {
    let at_gate = |activity| matches!(activity, Activity::AtGate { .. });
    status.containers.iter().any(|container| container.name == format!("jobs/{pod}/main") && at_gate(container.activity))
}

#[tokio::test]
#[ignore = "long: containerd 2 is built from its Go module, two minutes the first time"]
async fn nri_gate_refuses_a_container_until_it_fits() {
    if missing("nri_gate_refuses_a_container_until_it_fits") {
        return;
    }
    let containerd = Containerd::start(512 * MIB, containerd_two()).await.unwrap();
    let (name, version) = containerd.runtime.version().await.unwrap();
    assert!(version.trim_start_matches('v').starts_with("2."), "{name} {version}");
    let agent = agent(&containerd).await;

    let first = containerd.pod(&spec("first")).await.unwrap();
    containerd.pod(&spec("second")).await.unwrap();
    agent.status_when("both run", |status| status.containers.len() == 2).await.unwrap();

    // A container that may not be held (no label, no Job) is never refused.
    let bystander = Spec { labels: Default::default(), memory: 16 << 20, ..spec("bystander") };
    let sandbox = containerd.sandbox(&bystander).await.unwrap();
    containerd.create(&sandbox, &bystander, 0).await.unwrap();

    let third = containerd.sandbox(&spec("third")).await.unwrap();
    let asked = Instant::now();
    let refused = containerd.create(&third, &spec("third"), 0).await.unwrap_err();
    say(&format!("containerd {version}: refused by NRI after {:?}: {}", asked.elapsed(), refused.message()));
    assert!(refused.message().contains("memory guard: held at its start"), "{refused:?}");
    let listed = containerd.runtime.running().await.unwrap();
    assert!(listed.iter().all(|container| container.sandbox != third.id), "nothing was created, so nothing leaks");
    agent.status_when("it is shown at the gate", |status| waits(status, "third")).await.unwrap();

    // A later container does not overtake it, even one that would fit beside those that run.
    let small = Spec { memory: 20 << 20, ..spec("small") };
    let fourth = containerd.sandbox(&small).await.unwrap();
    containerd.create(&fourth, &small, 0).await.unwrap_err();

    // The kubelet would try again and again.
    containerd.runtime.stop(&first, Duration::from_secs(1)).await.unwrap();
    let id = loop {
        if let Ok(id) = containerd.create(&third, &spec("third"), 0).await {
            break id;
        }
        assert!(asked.elapsed() < Duration::from_secs(120), "it was never allowed:\n{}", agent.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    agent.status_when("it runs or is about to", |status| !waits(status, "third")).await.unwrap();
    containerd.runtime.stop(&id, Duration::from_secs(1)).await.unwrap();
    assert_eq!(agent.held().unwrap(), 0, "there is nothing to release");
    agent.stop().await.unwrap();
}

#[tokio::test]
#[ignore = "long: containerd 2 is built from its Go module, two minutes the first time"]
async fn nri_gate_refuses_nothing_while_the_agent_hangs_or_is_dead_and_refuses_again_afterwards() {
    if missing("nri_gate_refuses_nothing_while_the_agent_hangs_or_is_dead_and_refuses_again_afterwards") {
        return;
    }
    let mut containerd = Containerd::start(512 * MIB, containerd_two()).await.unwrap();
    let hung = agent(&containerd).await;
    for name in ["first", "second"] {
        containerd.pod(&spec(name)).await.unwrap();
    }
    let third = containerd.sandbox(&spec("third")).await.unwrap();
    containerd.create(&third, &spec("third"), 0).await.unwrap_err();

    let pid = Pid::from_raw(hung.child.id().unwrap().cast_signed());
    kill(pid, Signal::SIGSTOP).unwrap();
    let asked = Instant::now();
    containerd.create(&third, &spec("third"), 0).await.unwrap();
    say(&format!("a hanging agent delayed a creation by {:?}", asked.elapsed()));
    // The runtime has dropped the plugin; the agent registers again when it continues.
    kill(pid, Signal::SIGCONT).unwrap();
    let fourth = containerd.sandbox(&spec("fourth")).await.unwrap();
    until_refused(&containerd, &fourth, "fourth").await;

    // It also registers again after a restart of the runtime.
    containerd.kill().unwrap();
    containerd.again().await.unwrap();
    hung.status_when("the restarted runtime asks it", |status| status.gate.by == "nri").await.unwrap();
    until_refused(&containerd, &fourth, "fourth").await;

    kill(pid, Signal::SIGKILL).unwrap();
    until("the agent is gone", || !std::path::Path::new(&format!("/proc/{pid}/fd")).read_dir().is_ok_and(|mut fds| fds.next().is_some()))
        .await;
    containerd.create(&fourth, &spec("fourth"), 0).await.unwrap();
}

/// Tries to create the container until it is refused; each container that was created is removed.
async fn until_refused(containerd: &Containerd, pod: &Pod, name: &str) {
    let began = Instant::now();
    while let Ok(id) = containerd.create(pod, &spec(name), 0).await {
        let request = drover_memory_guard::proto::runtime::v1::RemoveContainerRequest { container_id: id };
        containerd.runtime.raw().remove_container(request).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(60), "{name} is never refused");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
