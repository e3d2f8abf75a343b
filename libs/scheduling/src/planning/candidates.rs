//! Candidates: apps that may move, with their destinations. Apps that may not move are listed with the reason.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::context::PlanningContext;
use super::destinations::{Expanded, destinations};
use super::movable::Movable;
use super::peers::CallPeers;
use super::{parameters, rank};
use crate::storage::{self, BoundVolume, Storage};
use crate::{Candidate, Claim, ClaimState, DigRef, Exclusion, MemberKey, MemberRoom, NodeRequirement, Operator, pod_network};

/// The apps on some members.
#[derive(Default)]
pub(crate) struct Candidates<'a> {
    /// Apps that may move, in the order in which they are taken.
    pub movable: Vec<Movable<'a>>,
    /// Apps that may not move, sorted by name.
    pub excluded: Vec<Candidate>,
    /// Possible destinations whose capacity is unknown but expected soon.
    pub awaited: BTreeSet<&'a MemberKey>,
}

/// Examines every app on `rooms`. Apps of `newcomer` are never candidates. `expanded` is shared by all calls for one plan.
pub(crate) fn find<'a>(
    context: &PlanningContext<'a>,
    rooms: &[&'a MemberRoom],
    newcomer: Option<Uuid>,
    expanded: &mut Expanded<'a>,
) -> Candidates<'a> {
    let mut movable = Vec::new();
    let mut excluded = Vec::new();
    let mut awaited = BTreeSet::new();
    for room in rooms {
        for claim in context.ledger.claims_of(&room.key) {
            let word = context.movability(claim);
            let priority = word.map_or(10, |w| w.priority);
            match exclusion(context, claim, newcomer).map_or_else(|| destinations(context, claim, room, expanded, &mut awaited), Err) {
                Ok(where_to) => {
                    let peers = CallPeers::of(claim, &context.siblings(claim));
                    let mut candidate = Movable::new(claim, room, priority, where_to, peers);
                    candidate.scores = parameters::scores(context, &candidate);
                    movable.push(candidate);
                }
                Err(why_not) => excluded.push(Candidate {
                    claim: claim.id,
                    dig: DigRef::clone(&claim.dig),
                    app: claim.request.app.clone(),
                    member: room.key.clone(),
                    priority,
                    scores: Vec::new(),
                    total: None,
                    taken: false,
                    why_not: Some(why_not),
                }),
            }
        }
    }
    rank::sort(context, &mut movable);
    excluded.sort_by(|a, b| candidate_name(a).cmp(&candidate_name(b)));
    Candidates { movable, excluded, awaited }
}

fn candidate_name(c: &Candidate) -> (&str, &str, &str, &str, &str, &Uuid) {
    (&c.dig.project, &c.dig.composite_app, &c.dig.version, &c.dig.name, &c.app, &c.claim)
}

pub(crate) fn no(code: &str, detail: impl Into<String>) -> Exclusion {
    Exclusion { code: code.into(), detail: detail.into() }
}

/// Whether an app may move if it has a destination.
pub(crate) fn may_move(context: &PlanningContext<'_>, claim: &Claim, newcomer: Uuid) -> bool {
    exclusion(context, claim, Some(newcomer)).is_none()
}

/// Why an app may not move, whatever its destinations.
fn exclusion(context: &PlanningContext<'_>, claim: &Claim, newcomer: Option<Uuid>) -> Option<Exclusion> {
    if newcomer == Some(claim.dig.id) {
        return Some(no("itself", "it belongs to the newcomer itself"));
    }
    match context.movability(claim) {
        None => return Some(no("no_intent", "its owner has not agreed to moves (no migration intent)")),
        Some(word) if !word.migration => return Some(no("migration_false", "its owner does not agree to moves (migration: false)")),
        Some(_) => {}
    }
    if let Some(reason) = immovable(claim) {
        return Some(reason);
    }
    if let Err(reason) = volumes(context, claim) {
        return Some(no("volume", reason));
    }
    match claim.state {
        ClaimState::Leaving => return Some(no("busy", "it is already being moved or removed")),
        ClaimState::Promised => return Some(no("busy", "it waits for promised room itself")),
        ClaimState::Held if claim.surging => return Some(no("busy", "it is being updated")),
        ClaimState::Held => {}
    }
    if let Some(reason) = context.excluded.get(&claim.dig.id) {
        return Some(no("busy", reason.clone()));
    }
    let services = claim.request.demand.services.join(", ");
    match claim.request.terms.allow_dependants {
        _ if services.is_empty() => None,
        Some(true) => None,
        Some(false) => Some(no("dependants", format!("other pods may call its Service {services} (allowDependants is false)"))),
        None if context.ledger.room(&claim.member).and_then(network_of).is_none() => Some(no("dependants", nameless(claim))),
        None => None,
    }
}

/// Whether the names of an app's Services must follow it, because its owner has not said that others may lose them.
pub(super) fn must_keep_names(claim: &Claim) -> bool {
    !claim.request.demand.services.is_empty() && claim.request.terms.allow_dependants.is_none()
}

/// Why an app with Services stays, if nobody has said anything about those who call it.
pub(super) fn nameless(claim: &Claim) -> String {
    let services = claim.request.demand.services.join(", ");
    format!(
        "other pods may call its Service {services}, whose name follows it only within a pod network (a label of clusters); \
         allowDependants: true lets it go without"
    )
}

/// The pod network of a member.
pub(super) fn network_of(room: &MemberRoom) -> Option<&str> {
    pod_network(&room.member.as_ref()?.labels)
}

/// The volumes that would move with the app, or why they cannot.
pub(super) fn volumes<'a>(context: &PlanningContext<'a>, claim: &Claim) -> Result<Vec<&'a BoundVolume>, String> {
    match claim.request.demand.stateful.as_slice() {
        // Most apps: their member's room need not be looked up.
        [] => Ok(Vec::new()),
        stateful => storage::movable(stateful, context.ledger.room(&claim.member).and_then(storage_of)),
    }
}

pub(super) fn storage_of(room: &MemberRoom) -> Option<&Storage> {
    room.capacity.as_ref()?.storage.as_deref()
}

const HOSTNAME: &str = "kubernetes.io/hostname";
/// The codes that entries of [`crate::Demand::immovable`] begin with.
const TIES: [&str; 4] = ["volume", "host_path", "daemon_set", "node_bound"];

/// Why an app cannot run on another member.
fn immovable(claim: &Claim) -> Option<Exclusion> {
    let demand = &claim.request.demand;
    if let Some(reason) = demand.immovable.first() {
        let said = reason.split_once(':').map_or("", |(code, _)| code);
        let code = TIES.into_iter().find(|known| *known == said).unwrap_or(if demand.volumes > 0 { "volume" } else { "node_bound" });
        return Some(no(code, demand.immovable.join("; ")));
    }
    let taken_along: usize = demand.stateful.iter().map(|pods| pods.claims().count()).sum();
    if demand.volumes as usize > taken_along {
        return Some(no("volume", format!("it has {} volume(s), whose data a move would not copy", demand.volumes)));
    }
    demand.groups.iter().find_map(|group| {
        let names_nodes = |r: &NodeRequirement| r.operator == Operator::In && (r.key == "metadata.name" || r.key == HOSTNAME);
        let bound = group.node_selector.contains_key(HOSTNAME)
            || (!group.node_affinity.is_empty() && group.node_affinity.iter().all(|term| term.iter().any(names_nodes)));
        if group.per_node {
            Some(no("daemon_set", format!("{} runs one pod on each node", group.workload)))
        } else if bound {
            Some(no("node_bound", format!("{} is bound to nodes by name", group.workload)))
        } else {
            None
        }
    })
}
