//! Eligibility: which containers the guard may hold at all. A container is denied unless every rule allows it, and each denial names its
//! rule.
//!
//! Pure: the agent collects the facts (from the API server where there is one, else from the runtime) and shows the verdict. A fact that
//! is not known counts against the container.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Lever;

/// Label (or annotation) of a pod by which its owner allows pauses (`true`) or forbids them (any other value).
pub const PAUSABLE: &str = "memguard/pausable";

/// The kubelet's default probe: three failures, ten seconds apart, with a time-out of one second. Assumed where the probes are not known.
const DEFAULT_PROBE: Probe = Probe { period: Duration::from_secs(10), timeout: Duration::from_secs(1), failure_threshold: 3 };
/// Safety margin: the kubelet may probe this much earlier, and the guard may resume this much later, than calculated.
const PROBE_SLACK: Duration = Duration::from_secs(2);
/// A pause shorter than this is of no use.
const SHORTEST_USEFUL_PAUSE: Duration = Duration::from_secs(10);
/// Under a tiny CPU quota an exec of `true` takes up to 0.8 s (measured), so a probe with a shorter time-out than this would fail.
const PATIENT_PROBE: Duration = Duration::from_secs(2);

/// Quality-of-service class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QosClass {
    /// Requests equal limits.
    Guaranteed,
    /// Something is requested.
    Burstable,
    /// Nothing is requested.
    BestEffort,
}

/// A liveness or startup probe. When it fails often enough, the kubelet restarts the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    #[serde(with = "crate::time::seconds")]
    pub period: Duration,
    #[serde(with = "crate::time::seconds")]
    pub timeout: Duration,
    pub failure_threshold: u32,
}

impl Probe {
    /// The longest pause that the probe tolerates, whenever in its period the pause begins: `(failureThreshold - 1) * period - 2 s`. Of
    /// three probes ten seconds apart, the third is sent as early as 20 s after the first, and by then the container must run again. The
    /// time-out of that third probe is not counted: on a busy node answering takes part of it. (A real kubelet was seen to kill a
    /// container at the end of a pause that used it up.)
    pub fn budget(&self) -> Duration {
        (self.period * self.failure_threshold.saturating_sub(1)).saturating_sub(PROBE_SLACK)
    }
}

/// What is known about a pod and one of its containers. `None` means: not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodFacts {
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Kind of the controlling owner, for example `Job`.
    pub owner_kind: Option<String>,
    pub qos: Option<QosClass>,
    pub priority_class: Option<String>,
    /// The kubelet created the pod from a file.
    pub is_static: bool,
    /// Any container of the pod is privileged, or the pod uses the PID or IPC namespace of the host.
    pub privileged: bool,
    /// The pod serves the node: it mounts the kubelet's plugin directories or the CNI configuration (CSI and CNI drivers, device
    /// plugins).
    pub node_plugin: bool,
    /// The pod is the guard itself.
    pub is_guard: bool,
    /// The pod holds a Kubernetes Lease. While it is paused, another replica would become leader.
    pub holds_lease: bool,
    /// The pod has exclusive CPUs (static CPU manager), so a CPU quota would be wrong.
    pub exclusive_cpus: bool,
    /// Something other than the guard has paused the container.
    pub paused_by_others: bool,
    pub probes: Option<Vec<Probe>>,
}

/// The levers that may be used on a container, or that the node offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Levers {
    pub freeze: bool,
    pub quota: bool,
    /// The node has `memory.high` (cgroup v2).
    pub high: bool,
}

impl Levers {
    /// The first of `preferred` that is available.
    pub fn stop(self, preferred: &[Lever]) -> Option<Lever> {
        preferred.iter().copied().find(|lever| match lever {
            Lever::Freeze => self.freeze,
            Lever::Quota => self.quota,
        })
    }

    fn any(self) -> bool {
        self.freeze || self.quota || self.high
    }
}

/// How long the liveness and startup probes of a container may go unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeBudget {
    /// The probes may go unanswered for this long at a stretch.
    pub longest_millis: u64,
    /// The stretch ends when the container has run for this long: by then every probe was answered, and the kubelet's failure count is
    /// reset.
    pub answered_millis: u64,
}

/// Whether the guard may hold a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Permission {
    #[serde(rename_all = "camelCase")]
    Denied { because: Denial },
    #[serde(rename_all = "camelCase")]
    Granted {
        levers: Levers,
        #[serde(rename = "patience", skip_serializing_if = "Option::is_none")]
        probe_budget: Option<ProbeBudget>,
    },
}

impl Permission {
    /// Granted with every lever and without a probe budget.
    pub fn free() -> Self {
        Self::Granted { levers: Levers { freeze: true, quota: true, high: true }, probe_budget: None }
    }

    /// Whether the container may be held.
    pub fn granted(&self) -> bool {
        matches!(self, Self::Granted { .. })
    }

    /// The levers that may be used; none if the container may not be held.
    pub fn levers(&self) -> Levers {
        match self {
            Self::Granted { levers, .. } => *levers,
            Self::Denied { .. } => Levers::default(),
        }
    }

    /// How long the container may be held at a stretch: `max`, or the probe budget if that is shorter; zero if it may not be held.
    pub fn longest(&self, max: Duration) -> Duration {
        match self {
            Self::Granted { probe_budget: Some(probe_budget), .. } => Duration::from_millis(probe_budget.longest_millis).min(max),
            Self::Granted { .. } => max,
            Self::Denied { .. } => Duration::ZERO,
        }
    }

    /// The same permission without a probe budget.
    pub fn unprobed(self) -> Self {
        match self {
            Self::Granted { levers, .. } => Self::Granted { levers, probe_budget: None },
            denied @ Self::Denied { .. } => denied,
        }
    }

    /// The probe budget of the container; `None` if no probe limits a pause, or if the container may not be held.
    pub fn probe_budget(&self) -> Option<ProbeBudget> {
        match self {
            Self::Granted { probe_budget, .. } => *probe_budget,
            Self::Denied { .. } => None,
        }
    }
}

/// Why a container may not be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Denial {
    Guard,
    SystemNamespace,
    StaticPod,
    /// Its priority class begins with `system-`.
    SystemPriority,
    /// Privileged, or in the PID or IPC namespace of the host.
    Privileged,
    /// CSI or CNI driver, or device plugin.
    NodePlugin,
    DaemonSet,
    /// Owned by a StatefulSet and not labelled. StatefulSets often run members of a quorum.
    StatefulSet,
    /// Its quality-of-service class is Guaranteed.
    Guaranteed,
    UnknownQos,
    /// It holds a Kubernetes Lease.
    LeaseHolder,
    /// Its label or annotation says something else than `true`.
    Forbidden,
    /// It neither belongs to a Job nor is labelled.
    NotOptedIn,
    /// Something other than the guard has paused the container.
    PausedByOthers,
    /// Its probes tolerate no useful pause, and neither a CPU quota nor `memory.high` can be used.
    ProbesTooTight,
    NoLever,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guard => "it is the guard itself",
            Self::SystemNamespace => "its namespace belongs to Kubernetes itself",
            Self::StaticPod => "it is a static pod",
            Self::SystemPriority => "its priority class is a system one",
            Self::Privileged => "it is privileged or shares a PID or IPC namespace with the host",
            Self::NodePlugin => "it serves the node (CSI, CNI or device plugin)",
            Self::DaemonSet => "it belongs to a DaemonSet",
            Self::StatefulSet => "it belongs to a StatefulSet and is not labelled memguard/pausable=true",
            Self::Guaranteed => "its quality-of-service class is Guaranteed",
            Self::UnknownQos => "its quality-of-service class is not known",
            Self::LeaseHolder => "it holds a Kubernetes Lease: another replica would become leader while it is paused",
            Self::Forbidden => "it is labelled memguard/pausable=false",
            Self::NotOptedIn => "it neither belongs to a Job nor is labelled memguard/pausable=true",
            Self::PausedByOthers => "something other than the guard has paused it",
            Self::ProbesTooTight => "its liveness or startup probe tolerates no useful pause",
            Self::NoLever => "the node offers no way to hold it",
        })
    }
}

/// Judges one container: whether the guard may hold it, with which of the levers that the node offers, and for how long at a stretch.
pub fn judge(facts: &PodFacts, offered: Levers) -> Permission {
    match denial(facts) {
        Some(because) => Permission::Denied { because },
        None => within_probes(facts, offered),
    }
}

fn denial(facts: &PodFacts) -> Option<Denial> {
    let said = facts.labels.get(PAUSABLE).or_else(|| facts.annotations.get(PAUSABLE)).map(String::as_str);
    let owner = facts.owner_kind.as_deref();
    let rules = [
        (facts.is_guard, Denial::Guard),
        (matches!(facts.namespace.as_str(), "kube-system" | "kube-public" | "kube-node-lease"), Denial::SystemNamespace),
        (facts.is_static, Denial::StaticPod),
        (facts.priority_class.as_deref().is_some_and(|class| class.starts_with("system-")), Denial::SystemPriority),
        (facts.privileged, Denial::Privileged),
        (facts.node_plugin, Denial::NodePlugin),
        (owner == Some("DaemonSet"), Denial::DaemonSet),
        (facts.qos == Some(QosClass::Guaranteed), Denial::Guaranteed),
        (facts.qos.is_none(), Denial::UnknownQos),
        (facts.holds_lease, Denial::LeaseHolder),
        (facts.paused_by_others, Denial::PausedByOthers),
        (said.is_some_and(|word| word != "true"), Denial::Forbidden),
        (said.is_none() && owner == Some("StatefulSet"), Denial::StatefulSet),
        (said.is_none() && owner != Some("Job"), Denial::NotOptedIn),
    ];
    rules.into_iter().find_map(|(holds, denial)| holds.then_some(denial))
}

fn within_probes(facts: &PodFacts, offered: Levers) -> Permission {
    let unknown = [DEFAULT_PROBE];
    let probes: &[Probe] = facts.probes.as_deref().unwrap_or(&unknown);
    let budget = probes.iter().map(Probe::budget).min();
    let freeze = offered.freeze && budget.is_none_or(|budget| budget >= SHORTEST_USEFUL_PAUSE);
    let quota = offered.quota && !facts.exclusive_cpus && probes.iter().all(|probe| probe.timeout >= PATIENT_PROBE || freeze);
    let levers = Levers { freeze, quota, high: offered.high };
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let answered = probes.iter().map(|probe| probe.period + probe.timeout).max().unwrap_or_default();
    let probe_budget = |budget| ProbeBudget { longest_millis: millis(budget), answered_millis: millis(answered) };
    let probe_budget = budget.filter(|_| freeze).map(probe_budget);
    match (levers.any(), offered.any()) {
        (true, _) => Permission::Granted { levers, probe_budget },
        (false, false) => Permission::Denied { because: Denial::NoLever },
        (false, true) => Permission::Denied { because: Denial::ProbesTooTight },
    }
}
