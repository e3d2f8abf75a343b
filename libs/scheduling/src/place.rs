//! Decisions: the member for each app, for all apps of a request or none.
//!
//! The order of members: provider priority; then those on which the pods find nodes in whatever order they come; then most room left
//! after placing (`packing: spread`) or the fullest member that fits (`tight`); then name. A member of unknown capacity gets no apps. The reasons for users are made in `explanations.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::call_placement::CallPlacement;
use crate::explanations::{self, SlotDecision};
use crate::fit::Ask;
use crate::scheduler::outlook;
use crate::slot::{Slot, equals};
use crate::trial::{Tenant, Trial};
use crate::{
    AppDecision, AppRequest, Claim, ClaimState, Decision, DecisionRequest, Demand, GroupDecision, Ledger, MemberKey, MemberRoom, Outcome,
    Placement, Undo,
};

/// Limit on attempts to place a slot, for the whole search that follows a failed greedy choice.
const ATTEMPTS: u32 = 512;

/// The id of the binding that a decision makes for an app on a member.
pub fn binding_id(decision: Uuid, app: &str, member: &MemberKey) -> Uuid {
    Uuid::new_v5(&decision, format!("{app}/{member}").as_bytes())
}

impl Ledger {
    /// Decides where the apps of `request` go, without a change. [`Ledger::apply_decision`] makes the claims.
    pub fn decide(&self, id: Uuid, request: &DecisionRequest) -> Decision {
        let grown = self.for_growth(request.apps.iter());
        let ledger = grown.as_ref().unwrap_or(self);
        let slots = Slot::of(ledger, request.dig.id, &request.apps, request.overflow, &request.refused);
        let without: Vec<usize> = (0..request.apps.len()).filter(|app| slots.iter().all(|s| s.app != *app)).collect();
        let requested: Vec<&str> = request.apps.iter().map(|app| app.app.as_str()).collect();
        let together = CallPlacement::of(ledger, &request.dig, &requested, &slots);
        let chosen = together.as_ref().and_then(CallPlacement::choose);
        let by_calls = chosen.map(|chosen| (walk(&slots, Some(&chosen.homes)), chosen.story));
        let by_calls = by_calls.filter(|(walk, _)| walk.outcome == Outcome::Placed);
        let (mut judged, chosen_by) = match by_calls {
            Some((judged, story)) => (judged, Some(story)),
            None => (walk(&slots, None), None),
        };
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
                explanations::explain_calls(together, &chosen, &mut judged.slots);
            }
            together.story((outcome == Outcome::Placed).then_some(&chosen[..]), chosen_by)
        });
        let order = if outcome == Outcome::Placed { order_of_application(&slots, &judged.slots) } else { Vec::new() };
        let mut apps: Vec<AppDecision> = request.apps.iter().map(|app| AppDecision { app: app.app.clone(), groups: Vec::new() }).collect();
        for (slot, judged) in slots.iter().zip(judged.slots) {
            let Some(SlotDecision { chosen, mut considered, more }) = judged else { continue };
            let mut placement = None;
            if outcome == Outcome::Placed {
                placement = chosen.map(|(room, pods)| Placement {
                    binding: binding_id(id, &slot.request.app, &room.key),
                    member: room.key.clone(),
                    pods,
                });
            } else {
                explanations::nothing_chosen(&mut considered);
            }
            apps[slot.app].groups.push(GroupDecision { placement, considered, more });
        }
        Decision { id, dig: request.dig.clone(), outcome, apps, calls, order, seq: self.seq }
    }

    /// Makes held claims for all placements of `decision`.
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
    /// By slot; `None`: satisfied by a member chosen for another slot of its app.
    slots: Vec<Option<SlotDecision<'a>>>,
}

/// Chooses for one slot after the other the best member with room (or the one in `imposed`), with the reasons.
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
        let choice = explanations::judge(slot, i, &mut trial, imposed.map(|rooms| rooms[i]));
        chosen.push(choice.chosen.as_ref().map(|(room, _)| *room));
        if choice.chosen.is_none() {
            let this = if slot.group.allowed().next().is_none() && !slot.group.has_refused() {
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
    // Later slots may have changed the packing of earlier ones on the same member.
    for (i, judged) in judged.iter_mut().enumerate() {
        if let Some(SlotDecision { chosen: Some((room, pods)), .. }) = judged {
            *pods = trial.pods(room, Tenant::New(i));
        }
    }
    Walk { outcome, slots: judged }
}

/// The apps that share a member on which their pods can only be expected to get nodes in a certain order, in that order.
fn order_of_application(slots: &[Slot<'_>], chosen: &[Option<SlotDecision<'_>>]) -> Vec<String> {
    let mut by_member: BTreeMap<&MemberKey, (&MemberRoom, Vec<&AppRequest>)> = BTreeMap::new();
    for (slot, decided) in slots.iter().zip(chosen) {
        if let Some((room, _)) = decided.as_ref().and_then(|decided| decided.chosen.as_ref()) {
            by_member.entry(&room.key).or_insert_with(|| (*room, Vec::new())).1.push(slot.request);
        }
    }
    let mut names: Vec<String> = Vec::new();
    for (room, apps) in by_member.into_values().filter(|(_, apps)| apps.len() > 1) {
        let demands: Vec<&Demand> = apps.iter().map(|app| &app.demand).collect();
        let (_, order) = outlook(room.nodes(), room.free().now.to_vec(), &demands);
        for app in order.into_iter().flatten().map(|at| &apps[at].app) {
            if !names.contains(app) {
                names.push(app.clone());
            }
        }
    }
    names
}

/// The worse of two outcomes: an outcome that waiting cannot change outweighs one that it can.
fn worse(a: Outcome, b: Outcome) -> Outcome {
    let rank = |o| match o {
        Outcome::Placed => 0,
        Outcome::Unknown => 1,
        Outcome::NoRoom => 2,
        Outcome::Impossible => 3,
    };
    if rank(b) > rank(a) { b } else { a }
}

/// Tries other combinations if the best member for each slot leaves no room for the others: depth first, best members first, with a
/// limited number of attempts.
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
