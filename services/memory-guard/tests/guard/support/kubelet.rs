//! As much of a kubelet as the experiment needs: keeps jobs running on a node with so many slots, restarts what failed with a back-off.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use drover_memory_guard::proto::runtime::v1 as cri;

use super::containerd::{Containerd, Spec};

/// The first restart is immediate, the second waits this long, each further one twice as long (a real kubelet's 10 s, scaled).
const BACK_OFF: Duration = Duration::from_millis(350);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(10);

/// What came of a workflow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Containers that ended with another code than 0.
    pub restarts: usize,
    /// From the first start to the last end.
    pub makespan: Duration,
}

enum Slot {
    Runs(String),
    Waits(Instant),
}

struct Pod {
    spec: Spec,
    sandbox: (String, cri::PodSandboxConfig),
    failures: u32,
    slot: Slot,
}

/// Runs all jobs to their end.
pub async fn workflow(containerd: &Containerd, jobs: &[Spec], slots: usize, patience: Duration) -> Outcome {
    let began = Instant::now();
    let mut queue = jobs.iter();
    let mut pods: Vec<Pod> = Vec::new();
    let mut outcome = Outcome::default();
    loop {
        while pods.len() < slots
            && let Some(spec) = queue.next()
        {
            let sandbox = containerd.sandbox(spec).await;
            let id = containerd.container(&sandbox, spec, 0).await;
            pods.push(Pod { spec: spec.clone(), sandbox, failures: 0, slot: Slot::Runs(id) });
        }
        if pods.is_empty() {
            outcome.makespan = began.elapsed();
            return outcome;
        }
        assert!(began.elapsed() < patience, "the workflow does not end: {} pods are left, {outcome:?}", pods.len());
        tokio::time::sleep(Duration::from_millis(50)).await;
        let ended = ended(containerd).await;
        let mut left = Vec::new();
        for mut pod in pods {
            match &pod.slot {
                Slot::Runs(id) => match ended.get(id) {
                    Some(0) => {
                        let _ =
                            containerd.runtime.raw().stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id: pod.sandbox.0 }).await;
                        continue;
                    }
                    Some(_) => {
                        outcome.restarts += 1;
                        let request = cri::RemoveContainerRequest { container_id: id.clone() };
                        let _ = containerd.runtime.raw().remove_container(request).await;
                        let wait = match pod.failures {
                            0 => Duration::ZERO,
                            n => (BACK_OFF * 2u32.pow(n.min(8) - 1)).min(LONGEST_BACK_OFF),
                        };
                        pod.failures += 1;
                        pod.slot = Slot::Waits(Instant::now() + wait);
                    }
                    None => {}
                },
                Slot::Waits(when) if Instant::now() >= *when => {
                    pod.slot = Slot::Runs(containerd.container(&pod.sandbox, &pod.spec, pod.failures).await);
                }
                Slot::Waits(_) => {}
            }
            left.push(pod);
        }
        pods = left;
    }
}

/// Exit codes of the containers that ended.
async fn ended(containerd: &Containerd) -> BTreeMap<String, i32> {
    let state = Some(cri::ContainerStateValue { state: cri::ContainerState::ContainerExited.into() });
    let filter = Some(cri::ContainerFilter { state, ..Default::default() });
    let listed = containerd.runtime.raw().list_containers(cri::ListContainersRequest { filter }).await.unwrap().into_inner().containers;
    let mut codes = BTreeMap::new();
    for container in listed {
        let request = cri::ContainerStatusRequest { container_id: container.id.clone(), verbose: false };
        if let Ok(answer) = containerd.runtime.raw().container_status(request).await {
            codes.insert(container.id, answer.into_inner().status.map_or(-1, |status| status.exit_code));
        }
    }
    codes
}
