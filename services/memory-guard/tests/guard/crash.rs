//! The agent is killed at every point of a pause and of its release, on a real containerd: every container runs again, and the quotas are
//! restored in the kernel and in the runtime.

use drover_lab_node::{Containerd, Spec, Version};
use drover_memguard::Lever;
use drover_memory_guard::cgroup::{CpuQuota, Group};
use drover_memory_guard::failpoint::POINTS;
use drover_memory_guard::journal;
use drover_memory_guard::proto::runtime::v1 as cri;
use drover_memory_guard::runtime::PauseState;
use drover_memory_guard::watchdog::StateFiles;
use drover_memory_guard::wire::Status;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use crate::support::{SWITCH, guard, missing, until};

const GIB: u64 = 1 << 30;
/// For agents that must not be taken for dead before the test kills them: the dead man's switch waits for three polls.
const POLL: &str = "1000ms";

/// Settings under which every eligible container is paused at once and released after `seconds`.
fn pause_all(lever: Lever, seconds: f64) -> Value {
    json!({
        "policy": {"policy": "paper", "upper": 0.0, "lower": 0.0, "perRound": 100, "round": 3600},
        "safety": {"keepRunning": 0, "maxPause": seconds, "cooldown": 60, "levers": [lever], "highFirst": false},
    })
}

/// Sends an unrelated update, as the kubelet's CPU manager does: the runtime then writes everything that it remembers.
async fn touch(containerd: &Containerd, id: &str) {
    let linux = Some(cri::LinuxContainerResources { cpu_shares: 512, ..Default::default() });
    let request = cri::UpdateContainerResourcesRequest { container_id: id.to_owned(), linux, ..Default::default() };
    containerd.runtime.raw().update_container_resources(request).await.unwrap();
}

struct Before {
    ids: Vec<String>,
    groups: Vec<Group>,
    quotas: Vec<CpuQuota>,
}

impl Before {
    async fn of(containerd: &Containerd, ids: Vec<String>) -> Self {
        let mut groups = Vec::new();
        for id in &ids {
            groups.push(containerd.group(id).await.unwrap());
        }
        let quotas = groups.iter().map(|group| group.cpu_quota().unwrap()).collect();
        Self { ids, groups, quotas }
    }

    fn restored(&self) -> bool {
        self.groups
            .iter()
            .zip(&self.quotas)
            .all(|(group, quota)| !group.freezer().frozen().unwrap() && group.cpu_quota().unwrap() == *quota)
    }

    /// Asserts that the quotas are also restored in the memory of the runtime, and that exec works.
    async fn restored_for_good(&self, containerd: &Containerd) {
        for (id, (group, quota)) in self.ids.iter().zip(self.groups.iter().zip(&self.quotas)) {
            assert_eq!(containerd.runtime.pause_state(id).await.unwrap(), PauseState::Running, "{id} for containerd");
            touch(containerd, id).await;
            assert_eq!(group.cpu_quota().unwrap(), *quota, "the runtime remembered the tiny quota");
            let request = cri::ExecSyncRequest { container_id: id.clone(), cmd: vec!["/workload".into(), "true".into()], timeout: 30 };
            let answer = containerd.runtime.raw().exec_sync(request).await.unwrap().into_inner();
            assert_eq!(answer.exit_code, 0, "exec must work");
        }
    }
}

async fn two_pods(containerd: &Containerd) -> Before {
    // One pod has a quota, the other has none.
    let bounded = containerd.pod(&Spec::new("bounded", &["spin"])).await.unwrap();
    let free = containerd.pod(&Spec { quota: 0, ..Spec::new("free", &["pause"]) }).await.unwrap();
    Before::of(containerd, vec![bounded, free]).await
}

#[tokio::test]
async fn watchdog_restores_every_container_when_the_agent_is_killed_at_any_failpoint() {
    if missing("watchdog_restores_every_container_when_the_agent_is_killed_at_any_failpoint") {
        return;
    }
    let containerd = Containerd::start(GIB, Version::Debian).await.unwrap();
    let before = two_pods(&containerd).await;
    for (name, lever, by) in
        [("freezer", Lever::Freeze, "cgroup"), ("quota", Lever::Quota, "cgroup"), ("runtime", Lever::Freeze, "runtime")]
    {
        for point in POINTS {
            let only_quota = matches!(point, "mid_hold" | "mid_release");
            if only_quota && lever != Lever::Quota {
                continue;
            }
            let mut tries = 0;
            let (agent, status) = loop {
                tries += 1;
                let state = containerd.dir.path().join(format!("{name}-{point}-{tries}"));
                let start = guard(&state, &containerd.socket).settings(pause_all(lever, 0.3));
                let mut start = start.args(["--mode", "apply", "--poll", "50ms", "--freeze-by", by, "--cgroup", &containerd.node]);
                start.die_at = Some(point);
                let mut agent = start.start().unwrap();
                let mut status = None;
                until(&format!("{name}: {point} is reached"), || {
                    status = agent.child.try_wait().unwrap();
                    status.is_some() || agent.log().contains(SWITCH)
                })
                .await;
                match status.or_else(|| agent.child.try_wait().unwrap()) {
                    Some(status) => break (agent, status),
                    // It lives, but the machine did not let it run for so long that it was taken for dead: it may never get to the point.
                    None => assert!(tries < 20, "{name}: {point} is not reached:\n{}", agent.log()),
                }
                let _ = agent.child.kill().await;
                until(&format!("{name}: all is restored before another try"), || before.restored()).await;
            };
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::SIGKILL as i32), "{}", agent.log());
            until(&format!("{name}: all is restored after death at {point}"), || before.restored()).await;
            // The runtime is told a moment later. The dead agent's journal tells about how many containers.
            let released = || agent.log().matches(SWITCH).count();
            until(&format!("{name}: the runtime was told after death at {point}"), || released() >= agent.held().unwrap()).await;
            before.restored_for_good(&containerd).await;
            assert!(before.restored(), "{name}: {point}");
            drop(agent);
        }
    }
}

#[tokio::test]
async fn thaw_restores_every_container_across_a_restart_of_containerd() {
    if missing("thaw_restores_every_container_across_a_restart_of_containerd") {
        return;
    }
    let mut containerd = Containerd::start(GIB, Version::Debian).await.unwrap();
    let before = two_pods(&containerd).await;
    for (name, lever, by) in
        [("freezer", Lever::Freeze, "cgroup"), ("quota", Lever::Quota, "cgroup"), ("runtime", Lever::Freeze, "runtime")]
    {
        let state = containerd.dir.path().join(name);
        let start = guard(&state, &containerd.socket).settings(pause_all(lever, 100.0));
        let start = start.args(["--mode", "apply", "--poll", POLL, "--freeze-by", by, "--cgroup", &containerd.node]);
        let mut agent = start.start().unwrap();
        let mut held = 0;
        until("both are held", || {
            held = before
                .groups
                .iter()
                .zip(&before.quotas)
                .filter(|(group, quota)| group.freezer().frozen().unwrap() || group.cpu_quota().unwrap() != **quota)
                .count();
            held == 2
        })
        .await;
        // Both processes and the daemon die, so nothing is left that could act.
        agent.status_when("both are paused", |status| status.totals.pauses == 2).await.unwrap();
        kill(agent.watchdog().unwrap(), Signal::SIGKILL).unwrap();
        agent.child.kill().await.unwrap();
        agent.child.wait().await.unwrap();
        containerd.kill().unwrap();
        assert!(!before.restored(), "{name}: the containers must still be held");
        let socket = containerd.socket.clone();
        let thaw = || async {
            let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_drover-memory-guard"));
            command.arg("thaw").arg("--state").arg(&state).arg("--runtime").arg(&socket).args(["--deadline", "1000ms"]);
            command.stderr(std::process::Stdio::null()).status().await.unwrap().success()
        };
        if name != "freezer" {
            // Without the runtime every container runs again at once; the runtime still has to be told about the quota and about its own
            // pause.
            assert!(!thaw().await, "{name}: the runtime was not told yet, so thaw must fail");
            assert!(before.restored(), "{name}: the kernel's side does not need the runtime");
        }
        containerd.again().await.unwrap();
        // It fails while the runtime is too slow to answer, and has to be run again.
        let began = std::time::Instant::now();
        while !thaw().await {
            assert!(began.elapsed() < crate::support::PATIENCE, "{name}: the runtime is never told");
        }
        assert!(before.restored(), "{name}");
        if by == "cgroup" {
            before.restored_for_good(&containerd).await;
        } // otherwise containerd 1.6 finds a paused task when it starts, and reports the container as CONTAINER_UNKNOWN from then on
    }
}

#[tokio::test]
async fn next_agent_releases_what_the_last_one_held() {
    if missing("next_agent_releases_what_the_last_one_held") {
        return;
    }
    let containerd = Containerd::start(GIB, Version::Debian).await.unwrap();
    let before = two_pods(&containerd).await;
    let state = containerd.dir.path().join("state");
    let start = || {
        let start = guard(&state, &containerd.socket).settings(pause_all(Lever::Quota, 100.0));
        start.args(["--poll", POLL, "--cgroup", &containerd.node])
    };
    let mut agent = start().args(["--mode", "apply"]).start().unwrap();
    agent.status_when("both are paused", |status| status.totals.pauses == 2).await.unwrap();
    kill(agent.watchdog().unwrap(), Signal::SIGKILL).unwrap();
    agent.child.kill().await.unwrap();
    agent.child.wait().await.unwrap();
    assert_eq!(journal::read(&StateFiles::of(&state).journal()).unwrap().len(), 2);
    drop(agent);
    // An agent that only recommends releases them all the same.
    let agent = start().args(["--mode", "recommend"]).start().unwrap();
    until("all is restored", || before.restored() && agent.held().unwrap() == 0).await;
    before.restored_for_good(&containerd).await;
    let decided = |status: &Status| status.containers.iter().any(|container| container.last.is_some());
    let status = agent.status_when("it has decided again", decided).await.unwrap();
    assert_eq!((status.totals.pauses, agent.held().unwrap()), (0, 0), "an agent that only recommends must hold nothing");
    agent.stop().await.unwrap();
}

#[tokio::test]
async fn agent_holds_nothing_without_a_watchdog_and_releases_everything_when_it_stops() {
    if missing("agent_holds_nothing_without_a_watchdog_and_releases_everything_when_it_stops") {
        return;
    }
    let containerd = Containerd::start(GIB, Version::Debian).await.unwrap();
    let before = two_pods(&containerd).await;
    let settings = pause_all(Lever::Freeze, 100.0);
    let alone = containerd.dir.path().join("alone");
    let start = guard(&alone, &containerd.socket).settings(settings.clone());
    let agent = start.args(["--mode", "apply", "--poll", POLL, "--external-watchdog", "--cgroup", &containerd.node]).start().unwrap();
    let status =
        agent.status_when("it has decided", |status| status.containers.iter().any(|container| container.last.is_some())).await.unwrap();
    assert!(status.hindered.is_some_and(|why| why.contains("dead man's switch")));
    assert!(before.restored() && status.totals.pauses == 0);
    agent.stop().await.unwrap();

    let guarded = containerd.dir.path().join("guarded");
    let start = guard(&guarded, &containerd.socket).settings(settings);
    let agent = start.args(["--mode", "apply", "--poll", POLL, "--cgroup", &containerd.node]).start().unwrap();
    agent.status_when("both are paused", |status| status.totals.pauses == 2).await.unwrap();
    assert!(before.groups.iter().all(|group| group.freezer().frozen().unwrap()));
    // An exec probe of the kubelet fails at once, without a time-out.
    let request = cri::ExecSyncRequest { container_id: before.ids[0].clone(), cmd: vec!["/workload".into(), "true".into()], timeout: 30 };
    let error = containerd.runtime.raw().exec_sync(request).await.unwrap_err();
    assert!(error.message().contains("paused"), "{error}");
    agent.stop().await.unwrap();
    assert!(before.restored(), "on exit everything is released");
    before.restored_for_good(&containerd).await;
}
