//! What is known of the members now, in memory only, and the two feeds that tell it.
//!
//! The supervisor says who is registered, the workers what they see, a deletion that a member is leaving. Each change is
//! published at once; ages are computed when something is published or read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use drover_api::members::{ClusterState, Member};
use drover_scheduling::{Capacity, MemberKey, MemberState};
use drover_service::FeedHub;
use uuid::Uuid;

use crate::store::registered::Registered;

/// The members; cheap to clone.
#[derive(Clone, Default)]
pub struct Fleet {
    /// Feed of members.
    pub members: FeedHub<Member>,
    /// Feed of their room.
    pub capacity: FeedHub<Capacity>,
    entries: Arc<Mutex<BTreeMap<MemberKey, Entry>>>,
}

struct Entry {
    registered: Registered,
    seen: ClusterState,
    /// Told to be leaving until then; a deletion that failed half way is forgotten by itself.
    leaving: Option<Instant>,
    room: Option<(Instant, Arc<Capacity>)>,
}

/// A deletion takes less.
const LEAVING: Duration = Duration::from_secs(30);
/// Room that was last seen so long ago is no use even for people.
const FORGOTTEN: Duration = Duration::from_secs(300);

impl Fleet {
    /// A member is registered, like this.
    pub fn register(&self, registered: Registered) {
        let key = registered.key();
        let mut entries = self.entries();
        match entries.get_mut(&key) {
            Some(entry) if entry.registered.id == registered.id => entry.registered = registered,
            _ => {
                let seen = ClusterState { state: MemberState::Unknown, since: Some(now()), reason: Some("not probed yet".to_owned()) };
                entries.insert(key.clone(), Entry { registered, seen, leaving: None, room: None });
            }
        }
        self.tell(&key, entries.get(&key));
    }

    /// A member is no longer registered.
    pub fn forget(&self, key: &MemberKey) {
        let mut entries = self.entries();
        entries.remove(key);
        self.tell(key, None);
        self.capacity.publish(key.0.clone(), None);
    }

    /// A worker found the member in this state.
    pub fn found(&self, key: &MemberKey, id: Uuid, state: MemberState, reason: Option<String>) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key).filter(|entry| entry.registered.id == id) else { return };
        let since = if entry.seen.state == state { entry.seen.since.take() } else { Some(now()) };
        if entry.seen.state != state {
            tracing::info!(member = %key, ?state, reason = reason.as_deref().unwrap_or(""), "member is now {state:?}");
        }
        entry.seen = ClusterState { state, since, reason };
        self.tell(key, Some(entry));
    }

    /// A worker saw this room just now.
    pub fn room(&self, key: &MemberKey, id: Uuid, capacity: Capacity) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key).filter(|entry| entry.registered.id == id) else { return };
        let capacity = Arc::new(capacity);
        entry.room = Some((Instant::now(), capacity.clone()));
        self.capacity.publish_shared(key.0.clone(), Some(capacity));
    }

    /// Tells the room that was last seen with its present age; after a while, that it is not known.
    pub fn age(&self, key: &MemberKey) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return };
        if entry.room.as_ref().is_some_and(|(at, _)| at.elapsed() > FORGOTTEN) {
            entry.room = None;
        }
        self.capacity.publish(key.0.clone(), entry.room.as_ref().map(aged));
    }

    /// The member is about to be deleted: nothing new goes there.
    pub fn deregister(&self, key: &MemberKey) {
        self.leaving(key, Some(Instant::now() + LEAVING));
    }

    /// It is not deleted after all.
    pub fn stay(&self, key: &MemberKey) {
        self.leaving(key, None);
    }

    fn leaving(&self, key: &MemberKey, until: Option<Instant>) {
        let mut entries = self.entries();
        if let Some(entry) = entries.get_mut(key) {
            entry.leaving = until;
        }
        self.tell(key, entries.get(key));
    }

    /// What is known of a member.
    pub fn state(&self, key: &MemberKey) -> ClusterState {
        self.entries().get(key).map_or_else(
            || ClusterState { state: MemberState::Unknown, since: None, reason: Some("not probed yet".to_owned()) },
            Entry::state,
        )
    }

    /// The room last seen, with its age.
    pub fn capacity_now(&self, key: &MemberKey) -> Option<Capacity> {
        self.entries().get(key).and_then(|entry| entry.room.as_ref()).map(aged)
    }

    fn tell(&self, key: &MemberKey, entry: Option<&Entry>) {
        self.members.publish_if_changed(key.0.clone(), entry.map(|entry| entry.member(key)));
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<MemberKey, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn state(&self) -> ClusterState {
        if self.leaving.is_some_and(|until| until > Instant::now()) {
            let reason = Some("it is being deleted".to_owned());
            return ClusterState { state: MemberState::Deregistering, since: self.seen.since.clone(), reason };
        }
        self.seen.clone()
    }

    fn member(&self, key: &MemberKey) -> Member {
        let ClusterState { state, since, reason } = self.state();
        Member {
            id: self.registered.id,
            key: key.clone(),
            priority: u8::try_from(self.registered.priority).unwrap_or(10),
            labels: self.registered.labels.clone(),
            state,
            since,
            reason,
            credential_version: self.registered.credential.unwrap_or_default(),
        }
    }
}

fn aged((at, capacity): &(Instant, Arc<Capacity>)) -> Capacity {
    let age = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
    Capacity { age_ms: capacity.age_ms.saturating_add(age), ..Capacity::clone(capacity) }
}

fn now() -> String {
    drover_store::now().to_string()
}
