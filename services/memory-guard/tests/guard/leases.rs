//! `memory.high` leases on a real cgroup v2 with a real containerd. Where this machine's kernel has v1 only, `tests/emulated/run.sh`
//! boots one with v2 and runs this test there.

use std::path::Path;
use std::time::Duration;

use drover_lab_node::{Containerd, Spec, Version};
use drover_memguard::Activity;
use drover_memory_guard::cgroup::Hierarchy;
use drover_memory_guard::wire::{ContainerStatus, Status};
use serde_json::json;

use crate::support::{guard, missing, say};

const MIB: u64 = 1 << 20;

fn of<'a>(status: &'a Status, id: &str) -> Option<&'a ContainerStatus> {
    status.containers.iter().find(|container| container.id == id)
}

fn leased(status: &Status, id: &str) -> bool {
    of(status, id).is_some_and(|container| matches!(container.activity, Activity::Running { lease: Some(_) }))
}

/// Two containers that want 200 MiB each, on a node of 320 MiB: the kernel stops the growth of one, which is not frozen and grows again
/// when the other is gone.
#[tokio::test]
#[ignore = "long: needs cgroup v2, which tests/emulated/run.sh boots"]
async fn lease_limits_growth_without_freezing_and_ends_when_memory_is_free() {
    if !Hierarchy::detect(Path::new("/sys/fs/cgroup")).is_ok_and(|hierarchy| hierarchy.version() == "v2") {
        say(
            "SKIPPED, proves nothing: lease_limits_growth_without_freezing_and_ends_when_memory_is_free lacks cgroup v2: services/memory-guard/tests/emulated/run.sh",
        );
        return;
    }
    if missing("lease_limits_growth_without_freezing_and_ends_when_memory_is_free") {
        return;
    }
    let containerd = Containerd::start(320 * MIB, Version::Debian).await.unwrap();
    let state = containerd.dir.path().join("agent");
    // The tolerance is so large that a container that grows past its lease is not frozen.
    let settings = json!({"policy": {"policy": "bank", "margin": 0.04}, "safety": {"leakTolerance": 400 * MIB, "maxPause": 600.0}});
    let start = guard(&state, &containerd.socket).settings(settings);
    let agent = start.args(["--mode", "apply", "--poll", "100ms", "--deadline", "20000ms", "--cgroup", &containerd.node]).start().unwrap();
    agent.status_when("it may act", |status| status.hindered.is_none()).await.unwrap();

    // Each always holds 100 MiB and grows to 200 in steps of 25, each of which takes a second of CPU.
    let job = |name: &str, seed: &str| {
        let args = ["job", "200", "100", "25", "40", "1000", "200", "1000", seed];
        Spec { memory: i64::try_from(210 * MIB).unwrap(), quota: 0, ..Spec::new(name, &args) }
    };
    let one = containerd.pod(&job("one", "1")).await.unwrap();
    let other = containerd.pod(&job("other", "2")).await.unwrap();
    let status = agent.status_when("one of them is leased", |status| leased(status, &one) || leased(status, &other)).await.unwrap();
    let (held, free) = if leased(&status, &one) { (&one, &other) } else { (&other, &one) };
    let group = containerd.group(held).await.unwrap();
    let high: u64 = std::fs::read_to_string(group.high_file().unwrap()).unwrap().trim().parse().unwrap();
    assert!(!group.freezer().frozen().unwrap(), "it is not frozen");
    let used = of(&agent.status().await.unwrap(), held).and_then(|container| container.memory).unwrap();
    say(&format!("leased at {} MiB, uses {} MiB", high / MIB, used / MIB));

    containerd.runtime.stop(free, Duration::from_secs(1)).await.unwrap();
    agent.status_when("it may grow again", |status| of(status, held).is_some() && !leased(status, held)).await.unwrap();
    assert_eq!(std::fs::read_to_string(group.high_file().unwrap()).unwrap().trim(), "max", "memory.high is restored");
    let status = agent.status().await.unwrap();
    say(&format!("{:?}", status.totals));
    assert!(status.totals.leases > 0 && status.totals.oom_kills == 0, "{:?}", status.totals);
    agent.stop().await.unwrap();
}
