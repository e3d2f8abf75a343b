//! Who may move, and where to. Whoever may not is listed with the reason.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::context::World;
use super::movable::Movable;
use super::peers::Peers;
use super::{parameters, rank};
use crate::considered::why_unknown;
use crate::expand::{Group, Standing, groups};
use crate::trial::Trial;
use crate::{Candidate, Claim, ClaimState, DigRef, Exclusion, MemberKey, MemberRoom, NodeRequirement, Operator, PlacementTerms};

/// Apps on some members.
#[derive(Default)]
pub(crate) struct Looked<'a> {
    /// In the order in which they are taken.
    pub movable: Vec<Movable<'a>>,
    /// By name.
    pub excluded: Vec<Candidate>,
    /// Where somebody might go, were it heard of.
    pub awaited: BTreeSet<&'a MemberKey>,
}

/// Looks at every app on `rooms`; `newcomer` is never its own victim.
pub(crate) fn look<'a>(world: &World<'a>, rooms: &[&'a MemberRoom], newcomer: Option<Uuid>) -> Looked<'a> {
    let mut movable = Vec::new();
    let mut excluded = Vec::new();
    let nothing = Trial::default();
    let mut expanded = Expanded::default();
    for room in rooms {
        for claim in world.ledger.claims_of(&room.key) {
            let word = world.movability.get(&(claim.dig.id, claim.request.app.as_str()));
            let priority = word.map_or(10, |w| w.priority);
            match exclusion(world, claim, newcomer).map_or_else(|| destinations(world, claim, &mut expanded), Err) {
                Ok(destinations) => {
                    let mut candidate = Movable {
                        claim,
                        room,
                        priority,
                        destinations,
                        best: None,
                        scores: Vec::new(),
                        total: None,
                        peers: Peers::of(claim, world.siblings(claim)),
                    };
                    candidate.best = candidate.best_in(&nothing);
                    candidate.scores = parameters::scores(world, &candidate);
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
    rank::sort(world, &mut movable);
    excluded.sort_by(|a, b| candidate_name(a).cmp(&candidate_name(b)));
    Looked { movable, excluded, awaited: expanded.awaited }
}

fn candidate_name(c: &Candidate) -> (&str, &str, &str, &str, &str, &Uuid) {
    (&c.dig.project, &c.dig.composite_app, &c.dig.version, &c.dig.name, &c.app, &c.claim)
}

pub(crate) fn no(code: &str, detail: impl Into<String>) -> Exclusion {
    Exclusion { code: code.into(), detail: detail.into() }
}

/// Whether an app may move, if it has somewhere to go.
pub(crate) fn may_move(world: &World<'_>, claim: &Claim, newcomer: Uuid) -> bool {
    exclusion(world, claim, Some(newcomer)).is_none()
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

const HOSTNAME: &str = "kubernetes.io/hostname";
/// Codes that [`crate::Demand::immovable`] begins with.
const TIES: [&str; 4] = ["volume", "host_path", "daemon_set", "node_bound"];

/// What ties an app to where it is.
fn immovable(claim: &Claim) -> Option<Exclusion> {
    let demand = &claim.request.demand;
    if let Some(reason) = demand.immovable.first() {
        let said = reason.split_once(':').map_or("", |(code, _)| code);
        let code = TIES.into_iter().find(|known| *known == said).unwrap_or(if demand.volumes > 0 { "volume" } else { "node_bound" });
        return Some(no(code, demand.immovable.join("; ")));
    }
    if demand.volumes > 0 {
        return Some(no("volume", format!("has {} volume(s); a move would start an empty twin", demand.volumes)));
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

/// Intents expanded lately (many apps have the same), and the members on the way that are not heard of yet.
#[derive(Default)]
struct Expanded<'a> {
    lately: Vec<(&'a PlacementTerms, Vec<Group<'a>>)>,
    awaited: BTreeSet<&'a MemberKey>,
}

impl<'a> Expanded<'a> {
    const KEPT: usize = 8;

    fn groups(&mut self, world: &World<'a>, terms: &'a PlacementTerms) -> &[Group<'a>] {
        let same = |(kept, _): &(&PlacementTerms, _)| kept.intent == terms.intent && kept.logical_cloud == terms.logical_cloud;
        let at = self.lately.iter().position(same).unwrap_or_else(|| {
            self.lately.truncate(Self::KEPT - 1);
            self.lately.insert(0, (terms, groups(world.ledger, terms)));
            0
        });
        &self.lately[at].1
    }
}

/// Known members that `claim` may move to, by provider priority: every group of its intent stays satisfied.
fn destinations<'a>(world: &World<'a>, claim: &'a Claim, expanded: &mut Expanded<'a>) -> Result<Vec<&'a MemberRoom>, Exclusion> {
    let others: BTreeSet<_> =
        world.siblings(claim).iter().filter(|c| c.id != claim.id && c.request.app == claim.request.app).map(|c| &c.member).collect();
    let groups = expanded.groups(world, &claim.request.terms);
    let mut open = groups.iter().filter(|g| others.is_empty() || !g.options.iter().any(|c| others.contains(&c.room.key)));
    let mut allowed: Vec<&MemberRoom> = match open.next() {
        Some(first) => first.allowed().collect(),
        None => groups.iter().flat_map(Group::allowed).collect(),
    };
    for group in open {
        allowed.retain(|room| group.options.iter().any(|c| c.room.key == room.key && c.standing == Standing::Allowed));
    }
    allowed.retain(|room| room.key != claim.member && !others.contains(&room.key));
    if groups.len() > 1 {
        allowed.sort_by(|a, b| a.priority().cmp(&b.priority()).then_with(|| a.key.cmp(&b.key)));
        allowed.dedup_by(|a, b| a.key == b.key);
    }
    if allowed.is_empty() {
        return Err(no("no_other_member", "its placement intent and logical cloud allow no other cluster"));
    }
    let refused: Vec<_> = world.refused(claim).filter(|refused| allowed.iter().any(|room| room.key == refused.member)).collect();
    allowed.retain(|room| refused.iter().all(|refused| refused.member != room.key));
    if allowed.is_empty() {
        let refused: Vec<String> = refused.iter().map(|refused| format!("{}: {}", refused.member, refused.reason)).collect();
        return Err(no("refused", format!("did not become ready lately where it could go: {}", refused.join("; "))));
    }
    expanded.awaited.extend(allowed.iter().filter(|room| room.is_awaited()).map(|room| &room.key));
    if allowed.iter().any(|room| room.is_known()) {
        allowed.retain(|room| room.is_known());
        return Ok(allowed);
    }
    let unknown: Vec<String> = allowed.iter().take(3).map(|r| format!("{}: {}", r.key, why_unknown(r))).collect();
    Err(no("no_destination", format!("nothing is known of where it could go: {}", unknown.join("; "))))
}
