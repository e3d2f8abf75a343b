//! The links that are open in this process, by member. Nothing of it is stored: an agent whose connection breaks comes back.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_link::carry::Link;
use drover_members::links::{Dialled, Links, Stream};
use drover_scheduling::{MemberKey, MemberLink};
use drover_store::Timestamp;
use tokio::sync::watch;
use uuid::Uuid;

use super::Fleet;

/// All open links; cheap to clone.
#[derive(Clone, Default)]
pub struct OpenLinks {
    state: Arc<Mutex<State>>,
    /// Raised when a link opens or ends, or an agent is accepted or revoked.
    changes: Arc<watch::Sender<()>>,
}

#[derive(Default)]
struct State {
    open: HashMap<Uuid, Vec<Open>>,
    /// No link is to begin any more.
    ended: bool,
}

/// How many links a member may have: one, and earlier ones whose streams run to their end while it changes its certificate.
const EACH: usize = 4;

struct Open {
    generation: i64,
    link: Link,
    health: LinkHealth,
}

/// How the connection of an agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkHealth {
    pub since: Timestamp,
    /// Until when its certificate is valid.
    pub until: Timestamp,
    /// The version that the agent says it has.
    pub version: Option<String>,
}

impl From<LinkHealth> for MemberLink {
    fn from(health: LinkHealth) -> Self {
        Self {
            connected_since: Some(health.since.to_string()),
            certificate_expires: Some(health.until.to_string()),
            version: health.version,
        }
    }
}

impl OpenLinks {
    /// Adds a link. Streams are opened on the newest one; those on earlier ones run on until their link ends. After [`OpenLinks::end`] it is
    /// cut instead, and `false` is returned.
    pub fn add(&self, member: Uuid, generation: i64, link: Link, health: LinkHealth) -> bool {
        let mut state = self.state();
        if state.ended {
            link.cut();
            return false;
        }
        let links = state.open.entry(member).or_default();
        // A certificate that was renewed is a new link, but the agent was there all the time.
        let before = links.iter().rev().find(|open| open.generation == generation && !open.link.is_over());
        let since = before.map_or(health.since, |open| open.health.since);
        links.push(Open { generation, link, health: LinkHealth { since, ..health } });
        let surplus = links.len().saturating_sub(EACH);
        links.iter().take(surplus).for_each(|open| open.link.cut());
        drop(state);
        self.raise();
        true
    }

    /// Cuts all links, and each that begins later: agents are to look for the next process.
    pub fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.open.values().flatten().for_each(|open| open.link.cut());
    }

    /// Forgets links that are over.
    pub fn tidy(&self) {
        self.state().open.retain(|_, links| {
            links.retain(|open| !open.link.is_over());
            !links.is_empty()
        });
        self.raise();
    }

    /// How the agent of a member is connected.
    pub fn health(&self, member: Uuid) -> Option<LinkHealth> {
        self.state().open.get(&member)?.iter().rev().find(|open| !open.link.is_over()).map(|open| open.health.clone())
    }

    /// Breaks the links of these members that are of an earlier generation than the present one, or whose member has none any more. Links that
    /// were opened since the generations were read stay.
    pub fn keep(&self, asked: &[Uuid], present: &HashMap<Uuid, i64>) {
        let state = self.state();
        for member in asked {
            let now = present.get(member);
            let earlier = state.open.get(member).into_iter().flatten().filter(|open| now.is_none_or(|now| open.generation < *now));
            earlier.for_each(|open| open.link.cut());
        }
    }

    /// The members with a link.
    pub fn members(&self) -> Vec<Uuid> {
        self.state().open.iter().filter(|(_, links)| links.iter().any(|open| !open.link.is_over())).map(|(member, _)| *member).collect()
    }

    /// Whether the agent of a member is connected.
    pub fn has(&self, member: Uuid) -> bool {
        self.newest(member).is_some()
    }

    /// Tells when something changes.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Says that something has changed.
    pub fn raise(&self) {
        self.changes.send_replace(());
    }

    /// Waits until the agent of a member is connected.
    pub async fn connected(&self, member: Uuid) {
        let mut changes = self.changes();
        while !self.has(member) {
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn newest(&self, member: Uuid) -> Option<Link> {
        self.state().open.get(&member)?.iter().rev().find(|open| !open.link.is_over()).map(|open| open.link.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ways to linked members for this process.
pub struct OwnLinks {
    pub fleet: Fleet,
    pub open: OpenLinks,
}

impl OwnLinks {
    /// A new connection to the API server of a member.
    ///
    /// # Errors
    /// Its agent is not connected, or cannot reach the API server.
    pub async fn stream(&self, member: &MemberKey) -> io::Result<drover_link::carry::Stream> {
        // By id: a cluster that is registered again under the same name is another one, with another agent.
        let link = self.fleet.id(member).and_then(|id| self.open.newest(id));
        let gone = || io::Error::new(io::ErrorKind::NotConnected, format!("the agent of {member} is not connected"));
        link.ok_or_else(gone)?.open().await
    }
}

impl Links for OwnLinks {
    fn dial<'a>(&'a self, member: &'a MemberKey) -> Dialled<'a> {
        Box::pin(async move { Ok(Box::new(self.stream(member).await?) as Box<dyn Stream>) })
    }
}

#[cfg(test)]
mod tests {
    use drover_store::now;
    use hyper_util::rt::TokioIo;

    use super::*;

    #[tokio::test]
    async fn end_cuts_the_links_that_are_open_and_those_that_begin_later() {
        let links = OpenLinks::default();
        let (near, _far) = tokio::io::duplex(4096);
        let (later, _far_too) = tokio::io::duplex(4096);
        let health = || LinkHealth { since: now(), until: now(), version: None };
        let member = Uuid::now_v7();
        let open = Link::start(TokioIo::new(near)).await.unwrap();
        assert!(links.add(member, 1, open.clone(), health()));
        assert!(links.has(member) && !open.is_over());
        links.end();
        let late = Link::start(TokioIo::new(later)).await.unwrap();
        assert!(!links.add(member, 1, late.clone(), health()));
        assert!(open.is_over() && late.is_over() && !links.has(member));
    }
}
