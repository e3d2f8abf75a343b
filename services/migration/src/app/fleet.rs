//! The copy of the fleet on which plans are made. It follows placement's feed `fleet`.
//!
//! The copy may be behind placement. A plan made on old data may be refused when it is applied, but reserves no room. A plan that must see
//! a certain decision waits for its sequence number.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use drover_api::ledger::FleetItem;
use drover_scheduling::{AppRequest, DigRef, Fleet, ImageNames, Interner, MemberKey};
use tokio::sync::watch;
use uuid::Uuid;

/// How long a plan waits for the required sequence number, and for the capacity of members that is expected soon.
pub const MAX_WAIT: Duration = Duration::from_secs(2);

/// The copy of the fleet; cheap to clone.
#[derive(Clone)]
pub struct FleetCopy(Arc<Shared>);

struct Shared {
    state: RwLock<FleetState>,
    /// Head of the ledger; `None` until the first batch has arrived.
    head: watch::Sender<Option<i64>>,
    /// Notified after every batch.
    news: watch::Sender<()>,
}

#[derive(Default)]
struct FleetState {
    fleet: Fleet,
    /// When the capacity of each member arrived.
    seen: HashMap<MemberKey, Instant>,
    /// Requests of apps, by the key that their claims name.
    requests: HashMap<Uuid, Arc<AppRequest>>,
    names: ImageNames,
    clouds: Interner<[MemberKey]>,
    digs: Interner<DigRef>,
}

/// The fleet at one moment, with current ages.
pub struct FleetSnapshot {
    /// The fleet.
    pub fleet: Fleet,
    /// Sequence number of the ledger that the fleet includes.
    pub head: i64,
}

impl Default for FleetCopy {
    fn default() -> Self {
        Self(Arc::new(Shared { state: RwLock::default(), head: watch::channel(None).0, news: watch::Sender::new(()) }))
    }
}

impl FleetCopy {
    /// Applies a batch of the feed.
    pub fn follow(&self, reset: bool, items: Vec<(String, Option<FleetItem>)>) {
        let mut head = None;
        {
            let mut state = self.0.state.write().unwrap_or_else(PoisonError::into_inner);
            if reset {
                *state = FleetState::default();
            }
            for (key, item) in items {
                if let Some(FleetItem::Head(at)) = &item {
                    head = Some(at.seq);
                }
                state.apply(&key, item);
            }
        }
        // Updated after the claims, so that callers that wait for the head see them.
        self.0.head.send_if_modified(|known| {
            let next = head.or(if reset { None } else { *known });
            std::mem::replace(known, next) != next
        });
        self.0.news.send_replace(());
    }

    /// Whether the first batch has arrived.
    pub fn is_ready(&self) -> bool {
        self.0.head.borrow().is_some()
    }

    /// Changes after every batch of the feed.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.news.subscribe()
    }

    /// Waits until the capacity of one of these members is no longer awaited. Returns false if that does not happen before `give_up`.
    pub async fn until_heard(&self, awaited: &[MemberKey], give_up: tokio::time::Instant) -> bool {
        let heard = |(): &()| {
            let state = self.0.state.read().unwrap_or_else(PoisonError::into_inner);
            awaited.iter().any(|key| !state.awaits(key))
        };
        let mut news = self.0.news.subscribe();
        let heard = tokio::time::timeout_at(give_up, news.wait_for(heard)).await;
        tokio::time::Instant::now() < give_up && heard.is_ok_and(|heard| heard.is_ok())
    }

    /// Whether any app of a group has a claim. Reads the copy in place.
    pub fn has_claim_of(&self, dig: Uuid) -> bool {
        let state = self.0.state.read().unwrap_or_else(PoisonError::into_inner);
        state.fleet.claims.values().any(|claim| claim.dig.id == dig)
    }

    /// The fleet including the sequence number `after`, or `None` if the copy does not reach it within [`MAX_WAIT`].
    pub async fn snapshot(&self, after: Option<i64>) -> Option<FleetSnapshot> {
        let mut head = self.0.head.subscribe();
        let far_enough = head.wait_for(|head| head.is_some_and(|head| after.is_none_or(|after| head >= after)));
        let head = (*tokio::time::timeout(MAX_WAIT, far_enough).await.ok()?.ok()?)?;
        let state = self.0.state.read().unwrap_or_else(PoisonError::into_inner);
        let mut fleet = state.fleet.clone();
        for (key, capacity) in &mut fleet.capacity {
            let since = state.since(key);
            if since > 0 {
                Arc::make_mut(capacity).age_ms = capacity.age_ms.saturating_add(since);
            }
        }
        Some(FleetSnapshot { fleet, head })
    }
}

impl FleetState {
    /// Whether the capacity of a member is unknown but expected soon.
    fn awaits(&self, key: &MemberKey) -> bool {
        let age = self.fleet.capacity.get(key).map(|capacity| capacity.age_ms.saturating_add(self.since(key)));
        self.fleet.members.get(key).is_some_and(|member| member.state.is_awaited(age))
    }

    /// Milliseconds since the capacity of a member arrived.
    fn since(&self, key: &MemberKey) -> u64 {
        self.seen.get(key).map_or(u64::MAX, |seen| u64::try_from(seen.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn apply(&mut self, key: &str, item: Option<FleetItem>) {
        match (key.split_once('/'), item) {
            (Some(("member", key)), Some(FleetItem::Member(member))) => {
                self.fleet.members.insert(MemberKey(key.to_owned()), *member);
            }
            (Some(("member", key)), None) => {
                self.fleet.members.remove(&MemberKey(key.to_owned()));
            }
            (Some(("capacity", key)), Some(FleetItem::Capacity(mut capacity))) => {
                let key = MemberKey(key.to_owned());
                self.names.share_all(Arc::make_mut(&mut capacity), self.fleet.capacity.get(&key).map(Arc::as_ref));
                self.seen.insert(key.clone(), Instant::now());
                self.fleet.capacity.insert(key, capacity);
            }
            (Some(("capacity", key)), None) => {
                self.fleet.capacity.remove(&MemberKey(key.to_owned()));
            }
            (Some(("request", id)), Some(FleetItem::Request(mut request))) => {
                let terms = &mut Arc::make_mut(&mut request).terms;
                terms.logical_cloud = self.clouds.intern(Arc::clone(&terms.logical_cloud));
                if let Ok(id) = id.parse() {
                    self.requests.insert(id, request);
                }
            }
            (Some(("request", id)), None) => {
                if let Ok(id) = id.parse::<Uuid>() {
                    self.requests.remove(&id);
                }
            }
            (Some(("claim", _)), Some(FleetItem::Claim(claim))) => match self.requests.get(&claim.request).cloned() {
                Some(request) => {
                    let mut claim = claim.with(request);
                    claim.dig = self.digs.intern(Arc::unwrap_or_clone(claim.dig));
                    self.fleet.claims.insert(claim.id, Arc::new(claim));
                }
                None => tracing::error!(claim.id = %claim.claim.id, "the fleet feed has a claim without its request"),
            },
            (Some(("claim", id)), None) => {
                if let Ok(id) = id.parse::<Uuid>() {
                    self.fleet.claims.remove(&id);
                }
            }
            (None, Some(FleetItem::Head(_))) => {}
            (_, item) => tracing::warn!(key, known = item.is_some(), "the fleet feed has an unknown key"),
        }
    }
}
