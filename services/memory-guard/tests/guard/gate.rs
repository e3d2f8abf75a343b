//! The start gate by events, on a real containerd: what a container takes between its start and the freeze, and that `runc start` returns.

use drover_lab_node::{Containerd, Spec, Version};
use drover_memguard::Activity;
use drover_memory_guard::wire::Status;
use serde_json::json;

use crate::support::{guard, missing, say};

const MIB: u64 = 1 << 20;

fn at_gate(status: &Status) -> usize {
    status.containers.iter().filter(|container| matches!(container.activity, Activity::AtGate { .. })).count()
}

#[tokio::test]
async fn a_container_that_does_not_fit_is_held_at_its_start() {
    if missing("a_container_that_does_not_fit_is_held_at_its_start") {
        return;
    }
    let containerd = Containerd::start(512 * MIB, Version::Debian).await.unwrap();
    let state = containerd.dir.path().join("agent");
    let settings = json!({"policy": {"policy": "gate-bank"}, "safety": {"maxHold": 600}});
    let start = guard(&state, &containerd.socket).settings(settings);
    let agent = start.args(["--mode", "apply", "--poll", "100ms", "--cgroup", &containerd.node]).start().unwrap();
    agent.status_when("it hears events", |status| status.gate.by == "events" && status.hindered.is_none()).await.unwrap();

    // Two of 220 MiB fit into 512 MiB at the factor that is assumed at first, a third does not.
    let size = i64::try_from(220 * MIB).unwrap();
    let spec = |name: &str| Spec { memory: size, quota: 0, ..Spec::new(name, &["grow", "150"]) };
    let first = containerd.pod(&spec("first")).await.unwrap();
    containerd.pod(&spec("second")).await.unwrap();
    agent.status_when("both run", |status| status.containers.len() == 2).await.unwrap();
    let third = containerd.pod(&spec("third")).await.unwrap();
    let status = agent.status_when("the third is held", |status| at_gate(status) == 1).await.unwrap();
    let held = status.containers.iter().find(|container| container.id == third).unwrap();
    // Published, not judged: it depends on the machine. It would have taken 150 MiB in about 0.15 s.
    say(&format!("leak of the start gate by events: {:.1} MiB of 150", held.memory.unwrap() as f64 / MIB as f64));
    assert!(held.memory.unwrap() < 150 * MIB, "it was stopped on its way");
    assert!(containerd.group(&third).await.unwrap().freezer().frozen().unwrap());
    assert!(held.last.as_ref().is_some_and(|last| last.done && last.words.contains("expected to be used")), "{:?}", held.last);

    containerd.runtime.stop(&first, std::time::Duration::from_secs(1)).await.unwrap();
    agent
        .status_when("the third was let in", |status| at_gate(status) == 0 && status.containers.iter().any(|c| c.id == third))
        .await
        .unwrap();
    assert!(!containerd.group(&third).await.unwrap().freezer().frozen().unwrap());
    agent.stop().await.unwrap();
}
