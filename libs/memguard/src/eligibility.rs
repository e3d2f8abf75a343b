//! Who may be touched at all: nobody, unless every question is answered in favour, and the answer names its reason.
//!
//! Pure: the agent collects the facts (from the API server where there is one, else from what the runtime knows) and shows the verdict.
//! A fact that is not known counts against.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Lever;

/// Label (or annotation) of a pod whose owner agrees to pauses (`true`) or forbids them (`false`).
pub const PAUSABLE: &str = "memguard/pausable";

/// What the kubelet does by default: three failures, ten seconds apart, a second of patience each. Assumed where probes are not known.
const DEFAULT_PROBE: Probe =
    Probe { period: Duration::from_secs(10), timeout: Duration::from_secs(1), failure_threshold: 3, handler: Handler::Network };
/// The kubelet may be this much earlier than we think, and we this much later.
const PROBE_SLACK: Duration = Duration::from_secs(2);
/// A pause shorter than this gains nothing.
const SHORTEST_USEFUL_PAUSE: Duration = Duration::from_secs(10);
/// Under a tiny quota an exec of `true` takes up to 0.8 s (measured): a probe that waits less than this would fail.
const PATIENT_PROBE: Duration = Duration::from_secs(2);

/// Quality of service of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Qos {
    /// Requests equal limits.
    Guaranteed,
    /// Something is requested.
    Burstable,
    /// Nothing is requested.
    BestEffort,
}

/// How a probe asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Handler {
    /// HTTP, TCP or gRPC: a frozen process does not answer.
    Network,
    /// A command in the container.
    Exec,
}

/// A liveness or startup probe: the kind whose failure restarts the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// `periodSeconds`.
    #[serde(with = "crate::time::seconds")]
    pub period: Duration,
    /// `timeoutSeconds`.
    #[serde(with = "crate::time::seconds")]
    pub timeout: Duration,
    /// `failureThreshold`.
    pub failure_threshold: u32,
    /// How it asks.
    pub handler: Handler,
}

impl Probe {
    /// The longest pause that it survives, whenever in its period the pause begins: `(failureThreshold - 1) * period - 2 s`. Of three
    /// probes ten seconds apart the third is sent as early as 20 s after the first; by then the container must run again. The time-out of
    /// that one is not counted in: on a starved node the answer takes part of it (seen on a real kubelet: a kill at the end of a pause).
    pub fn budget(&self) -> Duration {
        (self.period * self.failure_threshold.saturating_sub(1)).saturating_sub(PROBE_SLACK)
    }
}

/// Facts about a pod and one of its containers. `None` is: not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// Namespace.
    pub namespace: String,
    /// Labels of the pod.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// Kind of the controlling owner, as in `Job`.
    pub owner_kind: Option<String>,
    /// Quality of service.
    pub qos: Option<Qos>,
    /// Name of its priority class.
    pub priority_class: Option<String>,
    /// Made by the kubelet from a file.
    pub is_static: bool,
    /// Any container of the pod is privileged, or the pod uses the PID or IPC namespace of the host.
    pub privileged: bool,
    /// It serves the node: mounts the kubelet's plugin directories or the configuration of CNI (CSI and CNI drivers, device plugins).
    pub node_plugin: bool,
    /// It is the guard itself.
    pub is_guard: bool,
    /// It is named as holder of a Lease: another leader would rise meanwhile.
    pub holds_lease: bool,
    /// It has CPUs of its own (static CPU manager): a quota would be wrong.
    pub exclusive_cpus: bool,
    /// Somebody else has paused it.
    pub paused_by_others: bool,
    /// Liveness and startup probes of the container.
    pub probes: Option<Vec<Probe>>,
}

/// Levers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Levers {
    /// The freezer.
    pub freeze: bool,
    /// A tiny CPU quota.
    pub quota: bool,
    /// `memory.high` (cgroup v2).
    pub high: bool,
}

impl Levers {
    /// The first of `preferred` that is there.
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

/// How long the probes of a container may go unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Patience {
    /// No longer than this at a stretch, in milliseconds.
    pub longest_millis: u64,
    /// The stretch ends when it has run for so long: then each probe has been answered, and the kubelet has forgotten its failures.
    pub answered_millis: u64,
}

/// Whether the guard may touch a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Permission {
    /// No.
    #[serde(rename_all = "camelCase")]
    Denied {
        /// Why not.
        because: Denial,
    },
    /// Yes.
    #[serde(rename_all = "camelCase")]
    Granted {
        /// With these.
        levers: Levers,
        /// What its probes bear, if they set a bound.
        #[serde(skip_serializing_if = "Option::is_none")]
        patience: Option<Patience>,
    },
}

impl Permission {
    /// Granted with everything and without a bound.
    pub fn free() -> Self {
        Self::Granted { levers: Levers { freeze: true, quota: true, high: true }, patience: None }
    }

    /// Whether it may be touched.
    pub fn granted(&self) -> bool {
        matches!(self, Self::Granted { .. })
    }

    /// With what.
    pub fn levers(&self) -> Levers {
        match self {
            Self::Granted { levers, .. } => *levers,
            Self::Denied { .. } => Levers::default(),
        }
    }

    /// How long at a time, at most `max`.
    pub fn longest(&self, max: Duration) -> Duration {
        match self {
            Self::Granted { patience: Some(patience), .. } => Duration::from_millis(patience.longest_millis).min(max),
            Self::Granted { .. } => max,
            Self::Denied { .. } => Duration::ZERO,
        }
    }

    /// The same without a bound by probes.
    pub fn unprobed(self) -> Self {
        match self {
            Self::Granted { levers, .. } => Self::Granted { levers, patience: None },
            denied @ Self::Denied { .. } => denied,
        }
    }

    /// What its probes bear, if they set a bound.
    pub fn patience(&self) -> Option<Patience> {
        match self {
            Self::Granted { patience, .. } => *patience,
            Self::Denied { .. } => None,
        }
    }
}

/// Why a container may not be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Denial {
    /// It is the guard.
    Guard,
    /// Namespace `kube-system`, `kube-public` or `kube-node-lease`.
    SystemNamespace,
    /// Static pod.
    StaticPod,
    /// Priority class `system-…`.
    SystemPriority,
    /// Privileged.
    Privileged,
    /// CSI, CNI or device plugin.
    NodePlugin,
    /// Owned by a DaemonSet.
    DaemonSet,
    /// Owned by a StatefulSet, without consent: members of a quorum live in these.
    StatefulSet,
    /// Guaranteed.
    Guaranteed,
    /// Its quality of service is not known.
    UnknownQos,
    /// It holds a Lease.
    LeaseHolder,
    /// Its owner says no.
    Forbidden,
    /// Neither of a Job nor labelled.
    NotOptedIn,
    /// Somebody else has paused it.
    PausedByOthers,
    /// Its probes leave no useful pause and nothing gentler is at hand.
    ProbesTooTight,
    /// The node offers no lever.
    NoLever,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guard => "it is the guard itself",
            Self::SystemNamespace => "its namespace belongs to the system",
            Self::StaticPod => "it is a static pod",
            Self::SystemPriority => "its priority class belongs to the system",
            Self::Privileged => "it is privileged or uses namespaces of the host",
            Self::NodePlugin => "it serves the node (CSI, CNI or device plugin)",
            Self::DaemonSet => "it belongs to a DaemonSet",
            Self::StatefulSet => "it belongs to a StatefulSet and is not labelled memguard/pausable=true",
            Self::Guaranteed => "it is Guaranteed",
            Self::UnknownQos => "its quality of service is not known",
            Self::LeaseHolder => "it holds a Lease: another leader would rise while it is paused",
            Self::Forbidden => "it is labelled memguard/pausable=false",
            Self::NotOptedIn => "it is neither of a Job nor labelled memguard/pausable=true",
            Self::PausedByOthers => "somebody else has paused it",
            Self::ProbesTooTight => "its liveness probe would restart it before a pause is of use",
            Self::NoLever => "the node offers nothing to hold it with",
        })
    }
}

/// May this container be touched, with what of what the node offers, and how long at a time?
pub fn judge(facts: &Facts, offered: Levers) -> Permission {
    match refusal(facts) {
        Some(because) => Permission::Denied { because },
        None => within_probes(facts, offered),
    }
}

fn refusal(facts: &Facts) -> Option<Denial> {
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
        (facts.qos == Some(Qos::Guaranteed), Denial::Guaranteed),
        (facts.qos.is_none(), Denial::UnknownQos),
        (facts.holds_lease, Denial::LeaseHolder),
        (facts.paused_by_others, Denial::PausedByOthers),
        (said.is_some_and(|word| word != "true"), Denial::Forbidden),
        (said.is_none() && owner == Some("StatefulSet"), Denial::StatefulSet),
        (said.is_none() && owner != Some("Job"), Denial::NotOptedIn),
    ];
    rules.into_iter().find_map(|(holds, denial)| holds.then_some(denial))
}

fn within_probes(facts: &Facts, offered: Levers) -> Permission {
    let unknown = [DEFAULT_PROBE];
    let probes: &[Probe] = facts.probes.as_deref().unwrap_or(&unknown);
    let budget = probes.iter().map(Probe::budget).min();
    let freeze = offered.freeze && budget.is_none_or(|budget| budget >= SHORTEST_USEFUL_PAUSE);
    let quota = offered.quota && !facts.exclusive_cpus && probes.iter().all(|probe| probe.timeout >= PATIENT_PROBE || freeze);
    let levers = Levers { freeze, quota, high: offered.high };
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let answered = probes.iter().map(|probe| probe.period + probe.timeout).max().unwrap_or_default();
    let patience = |budget| Patience { longest_millis: millis(budget), answered_millis: millis(answered) };
    let patience = budget.filter(|_| freeze).map(patience);
    match (levers.any(), offered.any()) {
        (true, _) => Permission::Granted { levers, patience },
        (false, false) => Permission::Denied { because: Denial::NoLever },
        (false, true) => Permission::Denied { because: Denial::ProbesTooTight },
    }
}
