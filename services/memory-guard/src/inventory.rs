//! The inventory of the node's containers: which exist (from the runtime, when something changes), and what each uses (from its cgroup
//! files, at every poll).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_memguard::{Activity, Container, Lever, Levers, MemoryHighLease, Moment, Permission, PodFacts, Reading, judge};

use crate::api::ClusterView;
use crate::cgroup::{CpuQuota, Group, Hierarchy, Sampler};
use crate::clock;
use crate::facts;
use crate::journal::{Hold, HoldKey, HoldKind, Journal, JournalEntry};
use crate::levers::{gone, in_effect};
use crate::nri::NewContainer;
use crate::runtime::{InspectedContainer, Runtime, RuntimeError, Sandbox};

/// A container of the inventory.
#[derive(Debug)]
pub struct KnownContainer {
    pub name: Arc<str>,
    pub uid: String,
    /// Namespace and name of its pod.
    pub pod: (String, String),
    pub started: Moment,
    pub group: Group,
    /// Memory limit in bytes.
    pub limit: Option<u64>,
    /// What the runtime tells about it and its pod.
    facts: PodFacts,
    sampler: Sampler,
    /// The CPU quota with which it was created, if the runtime tells.
    pub created_quota: Option<CpuQuota>,
    /// While it is held: its working set when the hold began, and the most that it used above that since, both in bytes. The latter is
    /// the leak.
    pub leak: Option<(u64, u64)>,
    verdict: Option<CachedVerdict>,
    added: Instant,
}

/// What the guard may do with a container, recomputed only now and then.
#[derive(Clone, Debug)]
struct CachedVerdict {
    version: u64,
    looks: u32,
    permission: Permission,
    priority: i32,
    budgets: Vec<Arc<str>>,
}

/// The event of an exit may come this much later than the container was seen to be gone.
const EXIT_DELAY: Duration = Duration::from_secs(60);

/// Verdicts are recomputed after this many observations, or when the API server was read again.
const VERDICT_EVERY: u32 = 10;

/// The containers of this node, and how they are read.
#[derive(Debug)]
pub struct Inventory {
    hierarchy: Hierarchy,
    proc: PathBuf,
    own_group: Option<Group>,
    levers: Levers,
    known: BTreeMap<String, KnownContainer>,
    /// Containers that vanished, since when: the event of their exit may still come.
    vanished: BTreeMap<String, Instant>,
    /// Containers that could not be understood, with the reason, so that each is logged only once.
    not_understood: BTreeMap<String, String>,
}

/// Which containers run, with the details of those that were not known.
#[derive(Debug)]
pub struct RuntimeListing {
    began: Instant,
    running: BTreeSet<String>,
    fresh: Vec<(String, Sandbox, Result<InspectedContainer, String>)>,
}

/// Asks the runtime which containers run. This takes as long as the runtime takes; the agent does not wait for it.
///
/// # Errors
/// When the runtime does not answer. The inventory then stays as it was.
pub async fn list(runtime: Runtime, known: BTreeSet<String>) -> Result<RuntimeListing, RuntimeError> {
    let began = Instant::now();
    let listed = runtime.running().await?;
    let mut listing = RuntimeListing { began, running: listed.iter().map(|one| one.id.clone()).collect(), fresh: Vec::new() };
    let unknown: Vec<_> = listed.into_iter().filter(|one| !known.contains(&one.id)).collect();
    let sandboxes = if unknown.is_empty() { HashMap::new() } else { runtime.sandboxes().await? };
    for one in unknown {
        let Some(sandbox) = sandboxes.get(&one.sandbox).cloned() else { continue };
        let inspected = match runtime.inspect(&one.id).await {
            Ok(inspected) => Ok(inspected),
            Err(RuntimeError::Gone) => continue,
            Err(RuntimeError::Malformed(call, what)) => Err(format!("{call}: {what}")),
            Err(error) => return Err(error),
        };
        listing.fresh.push((one.id, sandbox, inspected));
    }
    Ok(listing)
}

/// Something noticed while the containers were observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The cgroup of the container is gone.
    Vanished(String),
    /// Something other than the guard has undone this hold.
    ReleasedByOthers(JournalEntry),
}

impl Inventory {
    /// An empty inventory of this machine. `proc` is `/proc`, or the directory that a test provides instead.
    pub fn new(hierarchy: Hierarchy, proc: PathBuf, levers: Levers) -> Self {
        let own_group = std::fs::read_to_string(proc.join("self/cgroup")).ok().and_then(|text| hierarchy.group_of(&text).ok());
        Self { hierarchy, proc, own_group, levers, known: BTreeMap::new(), vanished: BTreeMap::new(), not_understood: BTreeMap::new() }
    }

    /// The containers by id.
    pub fn known(&self) -> &BTreeMap<String, KnownContainer> {
        &self.known
    }

    /// One container.
    pub fn get_mut(&mut self, id: &str) -> Option<&mut KnownContainer> {
        self.known.get_mut(id)
    }

    /// Removes a container that ended. Returns whether it was known, or had vanished only a short time ago.
    pub fn forget(&mut self, id: &str) -> bool {
        self.not_understood.remove(id);
        self.known.remove(id).is_some() | self.vanished.remove(id).is_some()
    }

    /// Removes a container whose end was noticed otherwise than by the event of its exit.
    fn vanish(&mut self, id: &str) {
        if self.known.remove(id).is_some() {
            self.vanished.insert(id.to_owned(), Instant::now());
        }
    }

    /// Updates the inventory from a list. Containers that cannot be understood are left out and therefore never held.
    pub fn update(&mut self, listing: RuntimeListing) {
        for (id, sandbox, inspected) in &listing.fresh {
            match inspected {
                Ok(inspected) => self.add(id, sandbox, inspected),
                Err(what) => self.note_not_understood(id, what),
            }
        }
        // A container that was added after the list was requested is not in it.
        let ended = |(id, known): &(&String, &KnownContainer)| !listing.running.contains(*id) && known.added < listing.began;
        let ended: Vec<String> = self.known.iter().filter(ended).map(|(id, _)| id.clone()).collect();
        ended.iter().for_each(|id| self.vanish(id));
        self.vanished.retain(|_, since| since.elapsed() < EXIT_DELAY);
        self.not_understood.retain(|id, _| listing.running.contains(id));
    }

    /// Adds a container. Its cgroup is the one of the process `inspected.pid`.
    pub fn add(&mut self, id: &str, sandbox: &Sandbox, inspected: &InspectedContainer) {
        match self.understand(sandbox, inspected) {
            Ok(known) => {
                self.not_understood.remove(id);
                self.known.insert(id.to_owned(), known);
            }
            Err(error) if gone(&error) => {}
            Err(error) => self.note_not_understood(id, &error.to_string()),
        }
    }

    fn note_not_understood(&mut self, id: &str, what: &str) {
        if self.not_understood.insert(id.to_owned(), what.to_owned()).is_none() {
            tracing::warn!(container.id = id, what, "a container is not understood and is therefore never held");
        }
    }

    fn understand(&self, sandbox: &Sandbox, inspected: &InspectedContainer) -> io::Result<KnownContainer> {
        // The cgroup that its process is in; where there is no process yet, the path that the runtime tells.
        let membership = std::fs::read_to_string(self.proc.join(inspected.pid.to_string()).join("cgroup"));
        let group = match membership {
            Ok(text) if inspected.pid > 0 => self.hierarchy.group_of(&text)?,
            _ if inspected.cgroups_path.is_empty() => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the container has neither a process nor a cgroup path"));
            }
            _ => self.hierarchy.group_at(&facts::cgroup_path(&inspected.cgroups_path)),
        };
        let container = inspected.labels.get("io.kubernetes.container.name").map_or("?", String::as_str);
        let mut facts = facts::from_runtime(sandbox, inspected);
        facts.is_guard = self.own_group.as_ref().is_some_and(|own| own.memory_dir().starts_with(group.memory_dir()));
        Ok(KnownContainer {
            name: format!("{}/{}/{container}", sandbox.namespace, sandbox.pod).into(),
            uid: sandbox.uid.clone(),
            pod: (sandbox.namespace.clone(), sandbox.pod.clone()),
            started: clock::of_wall(inspected.started),
            limit: group.limit()?,
            sampler: group.sampler()?,
            group,
            facts,
            created_quota: inspected.created_quota,
            leak: None,
            verdict: None,
            added: Instant::now(),
        })
    }

    /// Observes every container by reading files only. `undecided` are journal entries that are being carried out or undone, whose files
    /// may not show it yet; those of them that are being carried out, `holding`, count as held.
    pub fn observe(
        &mut self,
        journal: &Journal,
        undecided: &BTreeSet<HoldKey>,
        holding: &BTreeSet<HoldKey>,
        cluster: &ClusterView,
        now: Moment,
    ) -> (Vec<Container>, Vec<Finding>) {
        let mut seen = Vec::with_capacity(self.known.len());
        let mut findings = Vec::new();
        for (id, known) in &mut self.known {
            let memory = match known.sampler.working_set() {
                Ok(bytes) => Reading::seen(bytes, now),
                Err(error) if gone(&error) => {
                    findings.push(Finding::Vanished(id.clone()));
                    continue;
                }
                Err(error) => {
                    tracing::warn!(container.name = %known.name, %error, "the memory of a container cannot be read");
                    Reading::Missing
                }
            };
            let entry = |kind| journal.open_entries().get(&(id.clone(), kind));
            let mut holds: Vec<&JournalEntry> = [HoldKind::Freeze, HoldKind::Quota, HoldKind::High].into_iter().filter_map(entry).collect();
            holds.retain(|entry| {
                let key = entry.key();
                let kept = entry.at_gate && undecided.contains(&key) || holding.contains(&key) || in_effect(entry);
                if !kept && !undecided.contains(&key) {
                    findings.push(Finding::ReleasedByOthers((*entry).clone()));
                }
                kept
            });
            // What it allocates after its release is no leak, even if the runtime still has to be told.
            if let (Some((base, most)), Reading::Seen { value, .. }, false) = (&mut known.leak, memory, holds.is_empty()) {
                *most = (*most).max(value.saturating_sub(*base));
            }
            let verdict = known.verdict(cluster, self.levers, &holds);
            seen.push(Container {
                id: id.as_str().into(),
                name: known.name.clone(),
                started: known.started,
                memory,
                limit: known.limit,
                activity: activity(&holds),
                permission: verdict.permission,
                priority: verdict.priority,
                budgets: verdict.budgets,
            });
        }
        for finding in &findings {
            if let Finding::Vanished(id) = finding {
                self.vanish(id);
            }
        }
        (seen, findings)
    }

    /// Describes a container that the runtime asks about before it exists. No probe counts yet, and there is nothing to freeze. `since`
    /// decides its place in the queue.
    pub fn describe_before_creation(&self, newcomer: &NewContainer, id: &str, cluster: &ClusterView, since: Moment) -> Container {
        let NewContainer { container, sandbox, inspected, limit, .. } = newcomer;
        let mut facts = facts::from_runtime(sandbox, inspected);
        let pod = (sandbox.namespace.clone(), sandbox.pod.clone());
        cluster.complete(&sandbox.uid, &pod, container, &mut facts);
        facts.probes = Some(Vec::new());
        Container {
            id: id.into(),
            name: format!("{}/{}/{container}", sandbox.namespace, sandbox.pod).into(),
            started: since,
            memory: Reading::seen(0, since),
            limit: *limit,
            activity: Activity::AtGate { since },
            permission: judge(&facts, self.levers),
            priority: cluster.priority(&sandbox.uid),
            budgets: cluster.budgets_of(&pod.0, &facts.labels),
        }
    }

    /// Describes a known container that is about to start and has allocated nothing yet.
    pub fn describe_at_start(&mut self, id: &str, cluster: &ClusterView, now: Moment) -> Option<Container> {
        let levers = self.levers;
        let known = self.known.get_mut(id)?;
        let verdict = known.verdict(cluster, levers, &[]);
        Some(Container {
            id: id.into(),
            name: known.name.clone(),
            started: now,
            memory: Reading::seen(0, now),
            limit: known.limit,
            activity: Activity::AtGate { since: now },
            permission: verdict.permission,
            priority: verdict.priority,
            budgets: verdict.budgets,
        })
    }
}

impl KnownContainer {
    fn verdict(&mut self, cluster: &ClusterView, node: Levers, holds: &[&JournalEntry]) -> CachedVerdict {
        if let Some(verdict) = self.verdict.as_mut().filter(|old| old.version == cluster.version && old.looks < VERDICT_EVERY) {
            verdict.looks += 1;
            return verdict.clone();
        }
        let mut facts = self.facts.clone();
        cluster.complete(&self.uid, &self.pod, self.name.rsplit('/').next().unwrap_or_default(), &mut facts);
        facts.paused_by_others =
            holds.iter().all(|entry| entry.hold.kind() != HoldKind::Freeze) && self.group.freezer().frozen().unwrap_or(false);
        let offered = Levers {
            freeze: node.freeze,
            quota: node.quota && self.group.cpu_quota().is_ok(),
            high: node.high && self.group.high_file().is_some(),
        };
        let verdict = CachedVerdict {
            version: cluster.version,
            looks: 0,
            permission: judge(&facts, offered),
            priority: cluster.priority(&self.uid),
            budgets: cluster.budgets_of(&self.pod.0, &facts.labels),
        };
        self.verdict.insert(verdict).clone()
    }
}

fn activity(holds: &[&JournalEntry]) -> Activity {
    let stopped = holds.iter().find(|entry| entry.hold.kind() != HoldKind::High);
    match (stopped, holds.first()) {
        (Some(entry), _) if entry.at_gate => Activity::AtGate { since: entry.since },
        (Some(entry), _) => {
            let lever = if entry.hold.kind() == HoldKind::Freeze { Lever::Freeze } else { Lever::Quota };
            Activity::Paused { since: entry.since, lever }
        }
        (None, Some(entry)) => {
            let high = match &entry.hold {
                Hold::High { file, .. } => std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0),
                _ => 0,
            };
            Activity::Running { lease: Some(MemoryHighLease { high, since: entry.since }) }
        }
        (None, None) => Activity::Running { lease: None },
    }
}
