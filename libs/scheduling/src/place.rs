//! Placing: which member each app goes to, all apps of a request or none.
//!
//! Provider priority first; equal priority: most room left after placing (`spread`) or the fullest that fits (`tight`),
//! then name. A member of which nothing is known takes nothing. Why not elsewhere: `considered.rs`.

use std::sync::Arc;

use uuid::Uuid;

use crate::considered::{self, Judged};
use crate::fit::Ask;
use crate::slot::{Slot, equals};
use crate::together::Together;
use crate::trial::{Tenant, Trial};
use crate::{
    AppDecision, Claim, ClaimState, Decision, DecisionRequest, GroupDecision, Ledger, MemberKey, MemberRoom, Outcome, Placement, Undo,
};

/// Attempts to place an app, in all, where the greedy choice of several apps got stuck.
const ATTEMPTS: u32 = 512;

/// Binding id of an app at a member by a decision.
pub fn binding_id(decision: Uuid, app: &str, member: &MemberKey) -> Uuid {
    Uuid::new_v5(&decision, format!("{app}/{member}").as_bytes())
}

impl Ledger {
    /// Decides where the apps of `request` go. Changes nothing; [`Ledger::apply_decision`] claims it.
    pub fn decide(&self, id: Uuid, request: &DecisionRequest) -> Decision {
        let slots = Slot::of(self, &request.apps, request.overflow);
        let without: Vec<usize> = (0..request.apps.len()).filter(|app| slots.iter().all(|s| s.app != *app)).collect();
        let requested: Vec<&str> = request.apps.iter().map(|app| app.app.as_str()).collect();
        let together = Together::of(self, &request.dig, &requested, &slots);
        let chosen = together.as_ref().and_then(Together::choose);
        let by_calls = chosen.as_deref().map(|chosen| walk(&slots, Some(chosen))).filter(|walk| walk.outcome == Outcome::Placed);
        let mut judged = by_calls.unwrap_or_else(|| walk(&slots, None));
        if judged.outcome == Outcome::NoRoom
            && slots.len() > 1
            && let Some(chosen) = search(&slots)
        {
            judged = walk(&slots, Some(&chosen));
        }
        let outcome = if without.is_empty() { judged.outcome } else { Outcome::Impossible };
        let calls = together.as_ref().map(|together| {
            let chosen: Vec<Option<&MemberRoom>> =
                judged.slots.iter().map(|judged| judged.as_ref()?.chosen.as_ref().map(|(room, _)| *room)).collect();
            if outcome == Outcome::Placed {
                considered::explain_calls(together, &chosen, &mut judged.slots);
            }
            together.story((outcome == Outcome::Placed).then_some(&chosen[..]))
        });
        let mut apps: Vec<AppDecision> = request.apps.iter().map(|app| AppDecision { app: app.app.clone(), groups: Vec::new() }).collect();
        for (slot, judged) in slots.iter().zip(judged.slots) {
            let Some(Judged { chosen, mut considered, more }) = judged else { continue };
            let mut placement = None;
            if outcome == Outcome::Placed {
                placement = chosen.map(|(room, pods)| Placement {
                    binding: binding_id(id, &slot.request.app, &room.key),
                    member: room.key.clone(),
                    pods,
                });
            } else {
                considered::nothing_chosen(&mut considered);
            }
            apps[slot.app].groups.push(GroupDecision { placement, considered, more });
        }
        Decision { id, dig: request.dig.clone(), outcome, apps, calls, seq: self.seq }
    }

    /// Claims what `decision` chose, as held.
    pub fn apply_decision(&mut self, request: &DecisionRequest, decision: &Decision) -> Undo {
        let (mut undo, dig) = (Undo::default(), Arc::new(request.dig.clone()));
        for (app, decided) in request.apps.iter().zip(&decision.apps) {
            let mut shared = app.clone();
            shared.terms.logical_cloud = self.clouds.intern(shared.terms.logical_cloud);
            let shared = Arc::new(shared);
            for placement in decided.groups.iter().filter_map(|g| g.placement.as_ref()) {
                let claim = Claim {
                    id: placement.binding,
                    dig: Arc::clone(&dig),
                    request: Arc::clone(&shared),
                    member: placement.member.clone(),
                    state: ClaimState::Held,
                    pods: placement.pods.clone(),
                    surging: false,
                    fence: request.fence,
                    operation: request.operation,
                };
                self.put(&mut undo, claim.id, Some(Arc::new(claim)));
            }
        }
        undo
    }
}

struct Walk<'a> {
    outcome: Outcome,
    /// None: satisfied by a cluster chosen before.
    slots: Vec<Option<Judged<'a>>>,
}

/// Slot by slot, each taking the best member with room (or the one `imposed`), with the reasons.
fn walk<'a>(slots: &[Slot<'a>], imposed: Option<&[Option<&'a MemberRoom>]>) -> Walk<'a> {
    let mut trial = Trial::default();
    let mut chosen: Vec<Option<&MemberRoom>> = Vec::new();
    let mut judged = Vec::new();
    let mut outcome = Outcome::Placed;
    for (i, slot) in slots.iter().enumerate() {
        if slot.satisfied(&slots[..i], &chosen) {
            chosen.push(None);
            judged.push(None);
            continue;
        }
        let choice = considered::judge(slot, i, &mut trial, imposed.map(|rooms| rooms[i]));
        chosen.push(choice.chosen.as_ref().map(|(room, _)| *room));
        if choice.chosen.is_none() {
            let this = if slot.group.allowed().next().is_none() {
                Outcome::Impossible
            } else if slot.counted().any(|room| !room.is_known()) {
                Outcome::Unknown
            } else {
                Outcome::NoRoom
            };
            outcome = worse(outcome, this);
        }
        judged.push(Some(choice));
    }
    // Later slots may have made those before them move over on their member.
    for (i, judged) in judged.iter_mut().enumerate() {
        if let Some(Judged { chosen: Some((room, pods)), .. }) = judged {
            *pods = trial.pods(room, Tenant::New(i));
        }
    }
    Walk { outcome, slots: judged }
}

/// What waiting cannot heal outweighs what it can.
fn worse(a: Outcome, b: Outcome) -> Outcome {
    let rank = |o| match o {
        Outcome::Placed => 0,
        Outcome::Unknown => 1,
        Outcome::NoRoom => 2,
        Outcome::Impossible => 3,
    };
    if rank(b) > rank(a) { b } else { a }
}

/// Where the best for each does not do for all: other combinations, depth first, best first, within a bound.
fn search<'a>(slots: &[Slot<'a>]) -> Option<Vec<Option<&'a MemberRoom>>> {
    let alone = Trial::default();
    let possible = |slot: &Slot<'a>| slot.known().into_iter().any(|room| alone.fit(room, Ask::held(&slot.request.demand)).is_some());
    if !slots.iter().all(possible) {
        return None;
    }
    let mut chosen = Vec::new();
    let mut attempts = ATTEMPTS;
    descend(slots, &mut Trial::default(), &mut chosen, &mut attempts).then_some(chosen)
}

fn descend<'a>(slots: &[Slot<'a>], trial: &mut Trial<'a>, chosen: &mut Vec<Option<&'a MemberRoom>>, attempts: &mut u32) -> bool {
    let i = chosen.len();
    let Some(slot) = slots.get(i) else { return true };
    if slot.satisfied(&slots[..i], chosen) {
        chosen.push(None);
        if descend(slots, trial, chosen, attempts) {
            return true;
        }
        chosen.pop();
        return false;
    }
    for equals in equals(&slot.known()) {
        for (room, _) in slot.rank(equals, trial) {
            if *attempts == 0 {
                return false;
            }
            *attempts -= 1;
            if !trial.add(room, Tenant::New(i), Ask::held(&slot.request.demand)) {
                continue;
            }
            chosen.push(Some(room));
            if descend(slots, trial, chosen, attempts) {
                return true;
            }
            chosen.pop();
            trial.remove(room, Tenant::New(i));
        }
    }
    false
}
