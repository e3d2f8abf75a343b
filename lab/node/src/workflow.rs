//! The part of a kubelet that the experiment needs: keeps jobs running in the slots of a node and restarts failed ones with a back-off.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::containerd::{Containerd, Pod, Spec};
use drover_memory_guard::proto::runtime::v1 as cri;

/// The first restart is immediate, the second waits this long, each further one twice as long (a real kubelet's 10 s, scaled).
const BACK_OFF: Duration = Duration::from_millis(350);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(10);

/// The result of a workflow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// How many containers ended with a code other than 0.
    pub restarts: usize,
    /// Time from the first start to the last end.
    pub makespan: Duration,
}

enum SlotState {
    Runs(String),
    Waits(Instant),
}

struct Slot {
    spec: Spec,
    pod: Pod,
    failures: u32,
    state: SlotState,
}

/// Runs all jobs to their end.
///
/// # Errors
/// When the runtime refuses, or the jobs have not ended within `patience`.
pub async fn workflow(containerd: &Containerd, jobs: &[Spec], slots: usize, patience: Duration) -> Result<Outcome> {
    let began = Instant::now();
    let mut queue = jobs.iter();
    let mut taken: Vec<Slot> = Vec::new();
    let mut outcome = Outcome::default();
    loop {
        while taken.len() < slots
            && let Some(spec) = queue.next()
        {
            let pod = containerd.sandbox(spec).await?;
            let id = containerd.container(&pod, spec, 0).await?;
            taken.push(Slot { spec: spec.clone(), pod, failures: 0, state: SlotState::Runs(id) });
        }
        if taken.is_empty() {
            outcome.makespan = began.elapsed();
            return Ok(outcome);
        }
        ensure!(began.elapsed() < patience, "the workflow does not end: {} pods are left, {outcome:?}", taken.len());
        tokio::time::sleep(Duration::from_millis(50)).await;
        let ended = ended(containerd).await?;
        let mut left = Vec::new();
        for mut slot in taken {
            match &slot.state {
                SlotState::Runs(id) => match ended.get(id) {
                    Some(0) => {
                        let request = cri::StopPodSandboxRequest { pod_sandbox_id: slot.pod.id };
                        let _ = containerd.runtime.raw().stop_pod_sandbox(request).await;
                        continue;
                    }
                    Some(_) => {
                        outcome.restarts += 1;
                        let request = cri::RemoveContainerRequest { container_id: id.clone() };
                        let _ = containerd.runtime.raw().remove_container(request).await;
                        let wait = match slot.failures {
                            0 => Duration::ZERO,
                            n => (BACK_OFF * 2u32.pow(n.min(8) - 1)).min(LONGEST_BACK_OFF),
                        };
                        slot.failures += 1;
                        slot.state = SlotState::Waits(Instant::now() + wait);
                    }
                    None => {}
                },
                SlotState::Waits(when) if Instant::now() >= *when => {
                    slot.state = SlotState::Runs(containerd.container(&slot.pod, &slot.spec, slot.failures).await?);
                }
                SlotState::Waits(_) => {}
            }
            left.push(slot);
        }
        taken = left;
    }
}

/// Exit codes of the containers that have ended, by id.
async fn ended(containerd: &Containerd) -> Result<BTreeMap<String, i32>> {
    let state = Some(cri::ContainerStateValue { state: cri::ContainerState::ContainerExited.into() });
    let filter = Some(cri::ContainerFilter { state, ..Default::default() });
    let listed = containerd.runtime.raw().list_containers(cri::ListContainersRequest { filter }).await?.into_inner().containers;
    let mut codes = BTreeMap::new();
    for container in listed {
        let request = cri::ContainerStatusRequest { container_id: container.id.clone(), verbose: false };
        if let Ok(answer) = containerd.runtime.raw().container_status(request).await {
            codes.insert(container.id, answer.into_inner().status.map_or(-1, |status| status.exit_code));
        }
    }
    Ok(codes)
}
