//! Health and capacity of the members, in memory only, and the two feeds that publish them.
//!
//! Input: the supervisor reports which members are registered, their workers report what they observe, and a deletion reports that
//! a member is leaving. Each change is published at once; ages are computed when something is published or read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use drover_api::agents::AgentReport;
use drover_api::members::{ClusterState, Member};
use drover_scheduling::{Capacity, Cordon, MemberKey, MemberLink, MemberState};
use drover_service::FeedHub;
use uuid::Uuid;

use crate::store::registered::Registered;

/// All members; cheap to clone.
#[derive(Clone, Default)]
pub struct Fleet {
    /// Feed `members`.
    pub members: FeedHub<Member>,
    /// Feed `capacity`.
    pub capacity: FeedHub<Capacity>,
    entries: Arc<Mutex<BTreeMap<MemberKey, Entry>>>,
    /// Whether any cluster is to run an agent, so that reports are read.
    pub reads_reports: Arc<AtomicBool>,
}

/// What the agents of a member report.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// By agent.
    pub agents: BTreeMap<String, AgentReport>,
    /// Memory in use in percent, by node.
    pub nodes: BTreeMap<String, u64>,
    /// Pods that loads need beyond the bounds of their policies, by copy.
    pub unmet: BTreeMap<Uuid, u64>,
}

impl Reports {
    /// A report of a node or a load that is older than this says nothing about the present.
    pub const COUNTS_SECONDS: u64 = 60;

    /// Adds to an observed capacity what the agents say of the copies in it.
    fn add_to(&self, capacity: &mut Capacity) {
        for (binding, observed) in &mut capacity.observed {
            observed.memory_pressure = observed.requests.iter().filter_map(|(node, _)| self.nodes.get(node)).copied().max();
            observed.unmet_pods = self.unmet.get(binding).copied();
        }
    }
}

struct Entry {
    registered: Registered,
    /// As registered, or as set since.
    cordon: Option<Cordon>,
    health: ClusterState,
    /// Published as `Deregistering` until then; the limit ends the state of a deletion that failed half way.
    leaving: Option<Instant>,
    capacity: Option<(Instant, Arc<Capacity>)>,
    /// With the time at which they were read.
    reports: Option<(Instant, Reports)>,
    /// Of a linked member.
    link: MemberLink,
}

impl Entry {
    fn report(&self, agent: &str) -> Option<AgentReport> {
        let (at, reports) = self.reports.as_ref()?;
        let mut report = reports.agents.get(agent)?.clone();
        report.age_seconds += at.elapsed().as_secs();
        Some(report).filter(|report| report.age_seconds < FORGOTTEN.as_secs())
    }
}

/// Longer than a deletion takes.
const LEAVING: Duration = Duration::from_secs(30);
/// A capacity older than this is discarded.
const FORGOTTEN: Duration = Duration::from_secs(300);

impl Fleet {
    /// Adds a member, or updates its registration.
    pub fn register(&self, registered: Registered) {
        let key = registered.key();
        let mut entries = self.entries();
        match entries.get_mut(&key) {
            Some(entry) if entry.registered.id == registered.id => {
                entry.cordon = registered.cordon();
                entry.registered = registered;
            }
            _ => {
                let health = ClusterState { since: Some(now()), ..not_probed() };
                let cordon = registered.cordon();
                let entry = Entry { registered, cordon, health, leaving: None, capacity: None, reports: None, link: MemberLink::default() };
                entries.insert(key.clone(), entry);
            }
        }
        self.publish(&key, entries.get(&key));
    }

    /// Removes a member that is no longer registered.
    pub fn forget(&self, key: &MemberKey) {
        let mut entries = self.entries();
        entries.remove(key);
        self.publish(key, None);
        self.capacity.publish(key.0.clone(), None);
    }

    /// Sets the state that a worker found. Ignored if the member was registered again under another id.
    pub fn set_state(&self, key: &MemberKey, id: Uuid, state: MemberState, reason: Option<String>) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key).filter(|entry| entry.registered.id == id) else { return };
        let since = if entry.health.state == state { entry.health.since.take() } else { Some(now()) };
        if entry.health.state != state {
            tracing::info!(member = %key, ?state, reason = reason.as_deref().unwrap_or(""), "member is now {state:?}");
        }
        entry.health = ClusterState { state, since, reason, cordoned: None };
        self.publish(key, Some(entry));
    }

    /// Sets the capacity that a worker has just observed. Ignored if the member was registered again under another id.
    pub fn set_capacity(&self, key: &MemberKey, id: Uuid, mut capacity: Capacity) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key).filter(|entry| entry.registered.id == id) else { return };
        if let Some((_, reports)) = entry.reports.as_ref().filter(|(at, _)| at.elapsed().as_secs() <= Reports::COUNTS_SECONDS) {
            reports.add_to(&mut capacity);
        }
        let capacity = Arc::new(capacity);
        entry.capacity = Some((Instant::now(), capacity.clone()));
        self.capacity.publish_shared(key.0.clone(), Some(capacity));
    }

    /// Publishes the last capacity with its current age; once it is too old, that the capacity is unknown.
    pub fn publish_aged(&self, key: &MemberKey) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return };
        if entry.capacity.as_ref().is_some_and(|(at, _)| at.elapsed() > FORGOTTEN) {
            entry.capacity = None;
        }
        self.capacity.publish(key.0.clone(), entry.capacity.as_ref().map(aged));
    }

    /// Whether the reports of agents are to be read.
    pub fn wants_reports(&self) -> bool {
        self.reads_reports.load(Ordering::Relaxed)
    }

    /// Sets what the agents of a member report. Ignored if the member was registered again under another id.
    pub fn set_reports(&self, key: &MemberKey, id: Uuid, reports: Reports) {
        let mut entries = self.entries();
        if let Some(entry) = entries.get_mut(key).filter(|entry| entry.registered.id == id) {
            entry.reports = Some((Instant::now(), reports));
        }
    }

    /// What an agent of a member reported last, with its present age; nothing once it is too old.
    pub fn report(&self, key: &MemberKey, agent: &str) -> Option<AgentReport> {
        self.entries().get(key)?.report(agent)
    }

    /// All reports that are not too old.
    pub fn reports(&self) -> Vec<(MemberKey, String, AgentReport)> {
        let entries = self.entries();
        let of = |(key, entry): (&MemberKey, &Entry)| {
            let agents = entry.reports.iter().flat_map(|(_, reports)| reports.agents.keys());
            agents.filter_map(|agent| Some((key.clone(), agent.clone(), entry.report(agent)?))).collect::<Vec<_>>()
        };
        entries.iter().flat_map(of).collect()
    }

    /// The linked members, and the ids of their documents.
    pub fn linked(&self) -> Vec<(MemberKey, Uuid)> {
        let entries = self.entries();
        let linked = entries.iter().filter(|(_, entry)| entry.registered.linked);
        linked.map(|(key, entry)| (key.clone(), entry.registered.id)).collect()
    }

    /// Sets how the agent of a linked member is. Ignored if the member was registered again under another id.
    pub fn set_link(&self, key: &MemberKey, id: Uuid, link: MemberLink) {
        let mut entries = self.entries();
        if let Some(entry) = entries.get_mut(key).filter(|entry| entry.registered.id == id) {
            entry.link = link;
            self.publish(key, Some(entry));
        }
    }

    /// Marks the member as about to be deleted: it gets no new apps.
    pub fn deregister(&self, key: &MemberKey) {
        self.set_leaving(key, Some(Instant::now() + LEAVING));
    }

    /// Takes [`Fleet::deregister`] back: the member is not deleted.
    pub fn cancel_deregistration(&self, key: &MemberKey) {
        self.set_leaving(key, None);
    }

    /// Closes a member to new copies of apps, or opens it. Published at once, so that the next decision knows it.
    pub fn set_cordon(&self, key: &MemberKey, cordon: Option<Cordon>) {
        let mut entries = self.entries();
        if let Some(entry) = entries.get_mut(key) {
            entry.cordon = cordon;
        }
        self.publish(key, entries.get(key));
    }

    fn set_leaving(&self, key: &MemberKey, until: Option<Instant>) {
        let mut entries = self.entries();
        if let Some(entry) = entries.get_mut(key) {
            entry.leaving = until;
        }
        self.publish(key, entries.get(key));
    }

    /// The id of a member.
    pub fn id(&self, key: &MemberKey) -> Option<Uuid> {
        self.entries().get(key).map(|entry| entry.registered.id)
    }

    /// The health of a member.
    pub fn state(&self, key: &MemberKey) -> ClusterState {
        self.entries().get(key).map_or_else(not_probed, Entry::state)
    }

    /// The capacity last observed, with its current age.
    pub fn capacity_now(&self, key: &MemberKey) -> Option<Capacity> {
        self.entries().get(key).and_then(|entry| entry.capacity.as_ref()).map(aged)
    }

    fn publish(&self, key: &MemberKey, entry: Option<&Entry>) {
        self.members.publish_if_changed(key.0.clone(), entry.map(|entry| entry.member(key)));
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<MemberKey, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn state(&self) -> ClusterState {
        if self.leaving.is_some_and(|until| until > Instant::now()) {
            let reason = Some("the cluster is being deleted".to_owned());
            return ClusterState { state: MemberState::Deregistering, reason, cordoned: self.cordon.clone(), ..self.health.clone() };
        }
        ClusterState { cordoned: self.cordon.clone(), ..self.health.clone() }
    }

    fn member(&self, key: &MemberKey) -> Member {
        let ClusterState { state, since, reason, cordoned } = self.state();
        Member {
            id: self.registered.id,
            key: key.clone(),
            priority: u8::try_from(self.registered.priority).unwrap_or(10),
            labels: self.registered.labels.clone(),
            state,
            since,
            reason,
            cordoned,
            link: self.registered.linked.then(|| self.link.clone()),
            credential_version: self.registered.credential.unwrap_or_default(),
        }
    }
}

fn aged((at, capacity): &(Instant, Arc<Capacity>)) -> Capacity {
    let age = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
    Capacity { age_ms: capacity.age_ms.saturating_add(age), ..Capacity::clone(capacity) }
}

fn not_probed() -> ClusterState {
    ClusterState { state: MemberState::Unknown, since: None, reason: Some("not probed yet".to_owned()), cordoned: None }
}

fn now() -> String {
    drover_store::now().to_string()
}
