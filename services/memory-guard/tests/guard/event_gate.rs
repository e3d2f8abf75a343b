//! The start gate by events on a real containerd: a container that does not fit is frozen after its start, the call that starts it
//! returns, and it is released when it fits.

use drover_lab_node::{Containerd, Spec, Version};
use drover_memguard::Activity;
use drover_memory_guard::wire::Status;
use serde_json::json;

use crate::support::{guard, missing, say, until};

const MIB: u64 = 1 << 20;

fn at_gate(status: &Status) -> usize {
    status.containers.iter().filter(|container| matches!(container.activity, Activity::AtGate { .. })).count()
}

#[tokio::test]
async fn event_gate_freezes_a_container_that_does_not_fit_and_releases_it_later() {
    if missing("event_gate_freezes_a_container_that_does_not_fit_and_releases_it_later") {
        return;
    }
    let containerd = Containerd::start(512 * MIB, Version::Debian).await.unwrap();
    let state = containerd.dir.path().join("agent");
    let settings = json!({"policy": {"policy": "gate-bank"}, "safety": {"maxHold": 600, "maxAge": 60}});
    let start = guard(&state, &containerd.socket).settings(settings);
    let agent = start.args(["--mode", "apply", "--poll", "1000ms", "--cgroup", &containerd.node]).start().unwrap();
    agent.status_when("it receives events", |status| status.gate.by == "events" && status.hindered.is_none()).await.unwrap();

    // With the demand factor that is assumed at first, two containers of 220 MiB fit into 512 MiB, and a third does not.
    let size = i64::try_from(220 * MIB).unwrap();
    let spec = |name: &str| Spec { memory: size, quota: 0, ..Spec::new(name, &["grow", "150"]) };
    let first = containerd.pod(&spec("first")).await.unwrap();
    containerd.pod(&spec("second")).await.unwrap();
    agent.status_when("both run", |status| status.containers.len() == 2).await.unwrap();
    let third = containerd.pod(&spec("third")).await.unwrap();
    agent.status_when("the third is at the gate", |status| at_gate(status) == 1).await.unwrap();
    let group = containerd.group(&third).await.unwrap();
    // It is shown at the gate as soon as that is decided, which is before it is frozen.
    until("the third is frozen", || group.freezer().frozen().unwrap()).await;
    let status = agent.status().await.unwrap();
    let held = status.containers.iter().find(|container| container.id == third).unwrap();
    // Printed but not asserted, because it depends on the speed of the machine.
    say(&format!(
        "leak of the start gate by events: {:.1} MiB of 150",
        group.sampler().unwrap().working_set().unwrap() as f64 / MIB as f64
    ));
    assert!(held.last.as_ref().is_some_and(|last| last.done && last.words.contains("expected to be used")), "{:?}", held.last);

    containerd.runtime.stop(&first, std::time::Duration::from_secs(1)).await.unwrap();
    agent
        .status_when("the third was admitted", |status| at_gate(status) == 0 && status.containers.iter().any(|c| c.id == third))
        .await
        .unwrap();
    assert!(!group.freezer().frozen().unwrap());
    agent.stop().await.unwrap();
}
