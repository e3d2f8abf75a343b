//! The containers of the node: who there is (from the runtime, when something changes), and what each uses (from its files, every poll).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use drover_memguard::{Activity, Container, Facts, HighLease, Lever, Levers, Moment, Permission, Reading, judge};

use crate::api::ClusterView;
use crate::cgroup::{CpuQuota, Group, Hierarchy, Sampler};
use crate::clock;
use crate::facts;
use crate::journal::{Entry, Hold, Journal, Key, Kind};
use crate::levers::{gone, in_effect};
use crate::nri::Newcomer;
use crate::runtime::{Inspected, Runtime, RuntimeError, Sandbox};

/// A container that is known.
#[derive(Debug)]
pub struct Known {
    /// `namespace/pod/container`.
    pub name: Arc<str>,
    /// Uid of its pod.
    pub uid: String,
    /// Its pod, as namespace and name.
    pub pod: (String, String),
    /// When it was started.
    pub started: Moment,
    /// Its cgroup.
    pub group: Group,
    /// Memory limit.
    pub limit: Option<u64>,
    /// What the runtime says of it.
    facts: Facts,
    sampler: Sampler,
    /// CPU quota that it was created with, if the runtime tells.
    pub created_quota: Option<CpuQuota>,
    /// While it is held: what it used when that began, and the most that it used above that: what leaked.
    pub leak: Option<(u64, u64)>,
    verdict: Option<Verdict>,
    added: Instant,
}

/// What is only worked out anew now and then.
#[derive(Clone, Debug)]
struct Verdict {
    version: u64,
    looks: u32,
    permission: Permission,
    priority: i32,
    budgets: Vec<Arc<str>>,
}

/// Verdicts are made anew after so many looks, or when the API server said something new.
const VERDICT_EVERY: u32 = 10;

/// What is asked of the node and offered to the guard.
#[derive(Debug)]
pub struct Inventory {
    hierarchy: Hierarchy,
    proc: PathBuf,
    own_group: Option<Group>,
    levers: Levers,
    known: BTreeMap<String, Known>,
    /// Ids that could not be understood, so that each is only logged once.
    odd: BTreeMap<String, String>,
}

/// Who runs, and what those are made of that were not known.
#[derive(Debug)]
pub struct Listing {
    began: Instant,
    running: BTreeSet<String>,
    fresh: Vec<(String, Sandbox, Result<Inspected, String>)>,
}

/// Asks the runtime who runs. Takes as long as the runtime takes: the agent does not wait for it.
///
/// # Errors
/// The runtime did not answer: what was known stays known.
pub async fn list(runtime: Runtime, known: BTreeSet<String>) -> Result<Listing, RuntimeError> {
    let began = Instant::now();
    let listed = runtime.running().await?;
    let mut listing = Listing { began, running: listed.iter().map(|one| one.id.clone()).collect(), fresh: Vec::new() };
    let unknown: Vec<_> = listed.into_iter().filter(|one| !known.contains(&one.id)).collect();
    let sandboxes = if unknown.is_empty() { HashMap::new() } else { runtime.sandboxes().await? };
    for one in unknown {
        let Some(sandbox) = sandboxes.get(&one.sandbox).cloned() else { continue };
        let inspected = match runtime.inspect(&one.id).await {
            Ok(inspected) => Ok(inspected),
            Err(RuntimeError::Gone) => continue,
            Err(RuntimeError::Nonsense(call, what)) => Err(format!("{call}: {what}")),
            Err(error) => return Err(error),
        };
        listing.fresh.push((one.id, sandbox, inspected));
    }
    Ok(listing)
}

/// Something that was found out while looking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The container is gone.
    Vanished(String),
    /// The guard's hold was taken back by somebody else.
    LetGoByOthers(Entry),
}

impl Inventory {
    /// Of this machine; `proc` is `/proc`, also where tests put another one.
    pub fn new(hierarchy: Hierarchy, proc: PathBuf, levers: Levers) -> Self {
        let own_group = std::fs::read_to_string(proc.join("self/cgroup")).ok().and_then(|text| hierarchy.group_of(&text).ok());
        Self { hierarchy, proc, own_group, levers, known: BTreeMap::new(), odd: BTreeMap::new() }
    }

    /// The containers.
    pub fn known(&self) -> &BTreeMap<String, Known> {
        &self.known
    }

    /// One of them.
    pub fn get_mut(&mut self, id: &str) -> Option<&mut Known> {
        self.known.get_mut(id)
    }

    /// Forgets one that ended.
    pub fn forget(&mut self, id: &str) {
        self.known.remove(id);
        self.odd.remove(id);
    }

    /// Takes in what was listed. What cannot be understood is left out, and thereby left alone.
    pub fn update(&mut self, listing: Listing) {
        for (id, sandbox, inspected) in &listing.fresh {
            match inspected {
                Ok(inspected) => self.add(id, sandbox, inspected),
                Err(what) => self.note_odd(id, what),
            }
        }
        // Who came after the question is not in the answer.
        self.known.retain(|id, known| listing.running.contains(id) || known.added >= listing.began);
        self.odd.retain(|id, _| listing.running.contains(id));
    }

    /// Takes one in; `pid` is where its cgroup is looked up.
    pub fn add(&mut self, id: &str, sandbox: &Sandbox, inspected: &Inspected) {
        match self.understand(sandbox, inspected) {
            Ok(known) => {
                self.odd.remove(id);
                self.known.insert(id.to_owned(), known);
            }
            Err(error) if gone(&error) => {}
            Err(error) => self.note_odd(id, &error.to_string()),
        }
    }

    fn note_odd(&mut self, id: &str, what: &str) {
        if self.odd.insert(id.to_owned(), what.to_owned()).is_none() {
            tracing::warn!(container.id = id, what, "a container is not understood and is left alone");
        }
    }

    fn understand(&self, sandbox: &Sandbox, inspected: &Inspected) -> io::Result<Known> {
        // Where its process really is; the runtime's word where there is no process (yet).
        let membership = std::fs::read_to_string(self.proc.join(inspected.pid.to_string()).join("cgroup"));
        let group = match membership {
            Ok(text) if inspected.pid > 0 => self.hierarchy.group_of(&text)?,
            _ if inspected.cgroups_path.is_empty() => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "neither a process nor a cgroup path"));
            }
            _ => self.hierarchy.group_at(&facts::cgroup_path(&inspected.cgroups_path)),
        };
        let container = inspected.labels.get("io.kubernetes.container.name").map_or("?", String::as_str);
        let mut facts = facts::from_runtime(sandbox, inspected);
        facts.is_guard = self.own_group.as_ref().is_some_and(|own| own.memory_dir().starts_with(group.memory_dir()));
        Ok(Known {
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

    /// Looks at everybody. Reads only files. `undecided` are entries on their way in or out, of which the files say nothing yet; those
    /// on their way in, `holding`, count as held.
    pub fn look(
        &mut self,
        journal: &Journal,
        undecided: &BTreeSet<Key>,
        holding: &BTreeSet<Key>,
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
                    tracing::warn!(container.name = %known.name, %error, "its memory cannot be read");
                    Reading::Missing
                }
            };
            let entry = |kind| journal.open_entries().get(&(id.clone(), kind));
            let mut holds: Vec<&Entry> = [Kind::Freeze, Kind::Quota, Kind::High].into_iter().filter_map(entry).collect();
            holds.retain(|entry| {
                let key = entry.key();
                let kept = entry.at_gate && undecided.contains(&key) || holding.contains(&key) || in_effect(entry);
                if !kept && !undecided.contains(&key) {
                    findings.push(Finding::LetGoByOthers((*entry).clone()));
                }
                kept
            });
            // What it takes once it may is no leak, though the runtime may still have to be told.
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
                self.known.remove(id);
            }
        }
        (seen, findings)
    }

    /// The same of one that the runtime asks about before it exists: no probe counts yet, and there is nothing to freeze. The place in
    /// the queue is that of `since`.
    pub fn stranger(&self, newcomer: &Newcomer, id: &str, cluster: &ClusterView, since: Moment) -> Container {
        let Newcomer { container, sandbox, inspected, limit, .. } = newcomer;
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

    /// A container as the gate sees it: about to start, holding nothing yet.
    pub fn newcomer(&mut self, id: &str, cluster: &ClusterView, now: Moment) -> Option<Container> {
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

impl Known {
    fn verdict(&mut self, cluster: &ClusterView, node: Levers, holds: &[&Entry]) -> Verdict {
        if let Some(verdict) = self.verdict.as_mut().filter(|old| old.version == cluster.version && old.looks < VERDICT_EVERY) {
            verdict.looks += 1;
            return verdict.clone();
        }
        let mut facts = self.facts.clone();
        cluster.complete(&self.uid, &self.pod, self.name.rsplit('/').next().unwrap_or_default(), &mut facts);
        facts.paused_by_others =
            holds.iter().all(|entry| entry.hold.kind() != Kind::Freeze) && self.group.freezer().frozen().unwrap_or(false);
        let offered = Levers {
            freeze: node.freeze,
            quota: node.quota && self.group.cpu_quota().is_ok(),
            high: node.high && self.group.high_file().is_some(),
        };
        let verdict = Verdict {
            version: cluster.version,
            looks: 0,
            permission: judge(&facts, offered),
            priority: cluster.priority(&self.uid),
            budgets: cluster.budgets_of(&self.pod.0, &facts.labels),
        };
        self.verdict.insert(verdict).clone()
    }
}

fn activity(holds: &[&Entry]) -> Activity {
    let stopped = holds.iter().find(|entry| entry.hold.kind() != Kind::High);
    match (stopped, holds.first()) {
        (Some(entry), _) if entry.at_gate => Activity::AtGate { since: entry.since },
        (Some(entry), _) => {
            let lever = if entry.hold.kind() == Kind::Freeze { Lever::Freeze } else { Lever::Quota };
            Activity::Paused { since: entry.since, lever }
        }
        (None, Some(entry)) => {
            let high = match &entry.hold {
                Hold::High { file, .. } => std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0),
                _ => 0,
            };
            Activity::Running { lease: Some(HighLease { high, since: entry.since }) }
        }
        (None, None) => Activity::Running { lease: None },
    }
}
