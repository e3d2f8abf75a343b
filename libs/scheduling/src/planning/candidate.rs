//! Who may move, and where to. Whoever may not is listed with the reason.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{World, parameters, rank};
use crate::considered::why_unknown;
use crate::expand::{Standing, groups};
use crate::fit::Ask;
use crate::place::rank_rooms;
use crate::trial::Trial;
use crate::{Candidate, Claim, ClaimState, Exclusion, MemberRoom, Packing, Score};

/// An app that may move.
pub(crate) struct Movable<'a> {
    pub claim: &'a Claim,
    pub room: &'a MemberRoom,
    pub priority: u8,
    /// Known members that it may move to, by key.
    pub destinations: Vec<&'a MemberRoom>,
    /// The one it would go to if it were alone.
    pub best: Option<&'a MemberRoom>,
    pub scores: Vec<Score>,
    pub total: Option<f64>,
}

impl<'a> Movable<'a> {
    pub fn ask(&self) -> Ask<'a> {
        Ask::held(&self.claim.request.demand)
    }

    /// Its destinations in order of preference, as things stand in `trial`.
    pub fn ranked(&self, trial: &Trial<'a>) -> Vec<&'a MemberRoom> {
        let rooms = self.destinations.iter().copied().filter(|room| trial.may_fit(room, self.ask()));
        let tight = self.claim.request.terms.packing == Packing::Tight;
        rank_rooms(rooms, &self.claim.request.demand, tight, trial).into_iter().map(|(room, _)| room).collect()
    }

    /// The first destination with room.
    pub fn best_in(&self, trial: &Trial<'a>) -> Option<&'a MemberRoom> {
        self.ranked(trial).into_iter().find(|room| trial.fit(room, self.ask()).is_some())
    }
}

/// Apps on some members.
pub(crate) struct Looked<'a> {
    /// In the order in which they are taken.
    pub movable: Vec<Movable<'a>>,
    /// By name.
    pub excluded: Vec<Candidate>,
}

/// Looks at every app on `rooms`; `newcomer` is never its own victim.
pub(crate) fn look<'a>(world: &World<'a>, rooms: &[&'a MemberRoom], newcomer: Option<Uuid>) -> Looked<'a> {
    let mut movable = Vec::new();
    let mut excluded = Vec::new();
    let nothing = Trial::default();
    for room in rooms {
        for claim in world.ledger.claims_of(&room.key) {
            let word = world.movability.get(&(claim.dig.id, claim.request.app.as_str()));
            let priority = word.map_or(10, |w| w.priority);
            match exclusion(world, claim, newcomer).map_or_else(|| destinations(world, claim), Err) {
                Ok(destinations) => {
                    let mut candidate =
                        Movable { claim, room, priority, destinations, best: None, scores: Vec::new(), total: None };
                    candidate.best = candidate.best_in(&nothing);
                    candidate.scores = parameters::scores(world, &candidate);
                    movable.push(candidate);
                }
                Err(why_not) => excluded.push(Candidate {
                    claim: claim.id,
                    dig: claim.dig.clone(),
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
    rank::sort(world, &mut movable);
    excluded.sort_by(|a, b| candidate_name(a).cmp(&candidate_name(b)));
    Looked { movable, excluded }
}

fn candidate_name(c: &Candidate) -> (&str, &str, &str, &str, &str, &Uuid) {
    (&c.dig.project, &c.dig.composite_app, &c.dig.version, &c.dig.name, &c.app, &c.claim)
}

pub(crate) fn no(code: &str, detail: impl Into<String>) -> Exclusion {
    Exclusion { code: code.into(), detail: detail.into() }
}

/// Why an app may not move, apart from having nowhere to go.
fn exclusion(world: &World<'_>, claim: &Claim, newcomer: Option<Uuid>) -> Option<Exclusion> {
    if newcomer == Some(claim.dig.id) {
        return Some(no("itself", "belongs to the newcomer"));
    }
    match world.movability.get(&(claim.dig.id, claim.request.app.as_str())) {
        None => return Some(no("no_intent", "its owner has not said that it may be moved (no migration intent)")),
        Some(word) if !word.migration => return Some(no("migration_false", "its owner says that it may not be moved (migration: false)")),
        Some(_) => {}
    }
    if let Some(reason) = immovable(claim) {
        return Some(reason);
    }
    match claim.state {
        ClaimState::Leaving => return Some(no("busy", "is leaving already")),
        ClaimState::Promised => return Some(no("busy", "waits for its own room")),
        ClaimState::Held if claim.surging => return Some(no("busy", "is being updated")),
        ClaimState::Held => {}
    }
    if let Some(reason) = world.excluded.get(&claim.dig.id) {
        return Some(no("busy", reason.clone()));
    }
    let services = &claim.request.demand.services;
    if !services.is_empty() && !claim.request.terms.allow_dependants {
        return Some(no("dependants", format!("others may call {} by name there (allowDependants is false)", services.join(", "))));
    }
    None
}

/// What ties an app to where it is.
fn immovable(claim: &Claim) -> Option<Exclusion> {
    let demand = &claim.request.demand;
    if let Some(reason) = demand.immovable.first() {
        let word = |needle: &str| reason.to_lowercase().contains(needle);
        let code = if word("hostpath") || word("host path") {
            "host_path"
        } else if word("daemonset") {
            "daemon_set"
        } else if word("volume") || demand.volumes > 0 {
            "volume"
        } else {
            "node_bound"
        };
        return Some(no(code, demand.immovable.join("; ")));
    }
    if demand.volumes > 0 {
        return Some(no("volume", format!("has {} volume(s); a move would start an empty twin", demand.volumes)));
    }
    demand.groups.iter().find_map(|group| {
        let bound = group.node_selector.contains_key("kubernetes.io/hostname")
            || group.node_affinity.iter().flatten().any(|r| r.key == "metadata.name" || r.key == "kubernetes.io/hostname");
        if group.per_node {
            Some(no("daemon_set", format!("{} runs one pod on each node", group.workload)))
        } else if bound {
            Some(no("node_bound", format!("{} is bound to nodes by name", group.workload)))
        } else {
            None
        }
    })
}

/// Known members that `claim` may move to, by key: every group of its intent stays satisfied.
fn destinations<'a>(world: &World<'a>, claim: &Claim) -> Result<Vec<&'a MemberRoom>, Exclusion> {
    let others: BTreeSet<_> = world
        .siblings(claim)
        .iter()
        .filter(|c| c.id != claim.id && c.request.app == claim.request.app)
        .map(|c| &c.member)
        .collect();
    let groups = groups(world.ledger, &claim.request.terms);
    let usable = |group: &crate::expand::Group<'a>| -> Vec<&'a MemberRoom> { group.allowed().collect() };
    let mut open = groups.iter().filter(|g| !g.options.iter().any(|c| others.contains(&c.room.key))).peekable();
    let mut allowed: Vec<&MemberRoom> = match open.next() {
        Some(first) => usable(first),
        None => groups.iter().flat_map(usable).collect(),
    };
    for group in open {
        allowed.retain(|room| group.options.iter().any(|c| c.room.key == room.key && c.standing == Standing::Allowed));
    }
    allowed.retain(|room| room.key != claim.member && !others.contains(&room.key));
    allowed.sort_by(|a, b| a.key.cmp(&b.key));
    allowed.dedup_by(|a, b| a.key == b.key);
    if allowed.is_empty() {
        return Err(no("no_other_member", "its placement intent and logical cloud allow no other cluster"));
    }
    let unknown: Vec<String> =
        allowed.iter().filter(|r| !r.is_known()).map(|r| format!("{}: {}", r.key, why_unknown(r))).collect();
    allowed.retain(|room| room.is_known());
    if allowed.is_empty() {
        return Err(no("no_destination", format!("nothing is known of where it could go: {}", unknown.join("; "))));
    }
    Ok(allowed)
}
