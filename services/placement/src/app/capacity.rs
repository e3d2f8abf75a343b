//! The room of all members as `GET /v2/clusters` shows it.

use drover_api::ledger::{AppRoom, ClusterCapacity, NodeRoom, Room};
use drover_scheduling::{Amounts, Capacity, Claim, ClaimState, DigRef, MemberRoom, MemberState};

use super::{App, Book};

impl App {
    /// All members, sorted by priority and name.
    pub fn capacity(&self) -> Vec<ClusterCapacity> {
        let mut all: Vec<ClusterCapacity> =
            self.read(|book| book.ledger.rooms().filter(|room| room.member.is_some()).map(|room| cluster(book, room)).collect());
        all.sort_by(|a, b| (a.priority, &a.member).cmp(&(b.priority, &b.member)));
        all
    }
}

fn cluster(book: &Book, room: &MemberRoom) -> ClusterCapacity {
    let free = room.free();
    let mut nodes: Vec<NodeRoom> = free
        .nodes
        .iter()
        .zip(free.now)
        .map(|(node, now)| NodeRoom {
            name: node.name.clone(),
            unschedulable: node.unschedulable,
            room: Room {
                allocatable: node.allocatable.clone(),
                requested: node.allocatable.minus(now),
                reserved: Amounts::default(),
                used: node.used.clone(),
                free: now.clone(),
            },
        })
        .collect();
    for claim in book.ledger.claims_of(&room.key).filter(|claim| claim.state == ClaimState::Promised) {
        for (pods, requests) in requests_by_node(claim) {
            if let Some(node) = nodes.iter_mut().find(|node| node.name == pods) {
                node.room.reserved.add(&requests, 1);
            }
        }
    }
    let mut total = Room::default();
    for Room { allocatable, requested, reserved, used, free } in nodes.iter().map(|node| &node.room) {
        total.allocatable.add(allocatable, 1);
        total.requested.add(requested, 1);
        total.reserved.add(reserved, 1);
        total.free.add(free, 1);
        if let Some(used) = used {
            total.used.get_or_insert_default().add(used, 1);
        }
    }
    let mut apps: Vec<AppRoom> = book.ledger.claims_of(&room.key).map(|claim| app(claim, room.capacity.as_deref())).collect();
    apps.sort_by(|a, b| (&a.dig.project, &a.dig.name, &a.app, a.claim).cmp(&(&b.dig.project, &b.dig.name, &b.app, b.claim)));
    ClusterCapacity {
        member: room.key.clone(),
        provider: room.key.provider().to_owned(),
        cluster: room.key.cluster().to_owned(),
        priority: room.priority(),
        state: room.member.as_ref().map_or(MemberState::Unknown, |member| member.state),
        reason: room.member.as_ref().and_then(|member| member.reason.clone()),
        cordoned: room.member.as_ref().and_then(|member| member.cordoned.clone()),
        link: room.member.as_ref().and_then(|member| member.link.clone()),
        total,
        nodes,
        apps,
        age_ms: room.capacity.as_ref().and(book.age_ms(&room.key)),
    }
}

fn app(claim: &Claim, capacity: Option<&Capacity>) -> AppRoom {
    let mut claimed = Amounts::default();
    for (_, requests) in requests_by_node(claim) {
        claimed.add(&requests, 1);
    }
    let observed = capacity.and_then(|capacity| capacity.observed.get(&claim.id));
    let observed_requests = observed.map(|observed| observed.requests.sum()).unwrap_or_default();
    AppRoom {
        claim: claim.id,
        dig: DigRef::clone(&claim.dig),
        app: claim.request.app.clone(),
        state: claim.state,
        requested: claimed.max(&observed_requests),
        used: observed.and_then(|observed| observed.used.clone()),
    }
}

/// The requests of a claim on each node of its assumed assignment.
fn requests_by_node(claim: &Claim) -> impl Iterator<Item = (&str, Amounts)> {
    claim.pods.iter().filter_map(|pods| {
        let group = claim.request.demand.groups.get(pods.group)?;
        let mut requests = Amounts::default();
        requests.add(&group.requests, i64::from(pods.count));
        Some((pods.node.as_str(), requests))
    })
}
