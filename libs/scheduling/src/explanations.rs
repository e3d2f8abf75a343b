//! The reasons of a decision: for each member, the best first, why it was chosen or not, as text for users.

use crate::call_placement::CallPlacement;
use crate::expand::Standing;
use crate::fit::Ask;
use crate::misfit::Misfit;
use crate::reachability::why_out_of_reach;
use crate::slot::{Slot, equals};
use crate::trial::{Tenant, Trial};
use crate::{Considered, MemberKey, MemberRoom, Packing, PodsOnNode, Verdict};

/// Limit on the members that a decision lists for each group.
pub(crate) const LISTED: usize = 16;
/// Limit on the members with room of which the orders of pods are compared.
const COMPARED: usize = 4;

/// The decision for one slot.
pub(crate) struct SlotDecision<'a> {
    pub chosen: Option<(&'a MemberRoom, Vec<PodsOnNode>)>,
    pub considered: Vec<Considered>,
    pub more: usize,
}

/// Chooses a member for `slot` and adds it to the trial as new app `i`. `imposed` is the member that a search has already chosen.
pub(crate) fn judge<'a>(slot: &Slot<'a>, i: usize, trial: &mut Trial<'a>, imposed: Option<Option<&'a MemberRoom>>) -> SlotDecision<'a> {
    let ask = Ask::held(&slot.request.demand);
    let known = slot.known();
    let mut chosen: Option<(&MemberRoom, f64)> = None;
    let mut considered: Vec<Considered> = Vec::new();
    // Members with room on which the pods may find no nodes if they come in the wrong order.
    let mut uncertain: Vec<(&MemberRoom, f64)> = Vec::new();
    // Reasons describe the members before this app is added.
    'all: for equals in equals(&known) {
        for (room, share) in slot.rank(equals, trial) {
            if chosen.is_some() && considered.len() >= LISTED {
                break 'all;
            }
            if uncertain.len() == COMPARED && considered.len() >= LISTED {
                break;
            }
            let fits = trial.fit(room, ask).is_some();
            let wanted = match imposed {
                None => chosen.is_none() && fits && uncertain.len() < COMPARED && trial.holds_in_any_order(room, ask),
                Some(imposed) => imposed.is_some_and(|want| want.key == room.key),
            };
            if imposed.is_none() && chosen.is_none() && fits && !wanted && uncertain.len() < COMPARED {
                uncertain.push((room, share));
            }
            if wanted {
                chosen = Some((room, share));
                considered.push(entry(room, Verdict::Chosen, String::new(), Some(share)));
            } else if considered.len() < LISTED {
                considered.push(match fits {
                    true => entry(room, Verdict::Fits, String::new(), Some(share)),
                    false => misfit(room, trial.why_not(room, ask)),
                });
            }
        }
        // Without a certain one, the best of the others: a less preferred provider is no substitute.
        if let (None, Some((room, share))) = (chosen, uncertain.first().copied()) {
            chosen = Some((room, share));
            considered.retain(|c| c.member != room.key);
            considered.insert(0, entry(room, Verdict::Chosen, String::new(), Some(share)));
            uncertain.clear();
        }
    }
    // The chosen member is always listed.
    if considered.len() > LISTED {
        considered.swap_remove(LISTED - 1);
    }
    if chosen.is_none() && imposed.is_none() {
        // Packing the other apps of the request again may make room.
        for (room, share) in equals(&known).flat_map(|equals| slot.rank(equals, &Trial::default())) {
            if trial.add(room, Tenant::New(i), ask) {
                considered.retain(|c| c.member != room.key);
                considered.insert(0, entry(room, Verdict::Chosen, String::new(), Some(share)));
                considered.truncate(LISTED);
                explain_choice(slot, room, share, &mut considered);
                return finish(slot, Some((room, Vec::new())), considered);
            }
        }
    }
    if let Some((room, share)) = chosen {
        explain_choice(slot, room, share, &mut considered);
        for entry in considered.iter_mut().filter(|_| !uncertain.is_empty()) {
            if entry.verdict == Verdict::Chosen {
                entry.reason = format!(
                    "provider priority {}, its pods find nodes in any order: {} free after placing",
                    room.priority(),
                    percent(free(share))
                );
            } else if uncertain.iter().any(|(room, _)| room.key == entry.member) {
                entry.reason = format!("fits, but whether its pods find nodes depends on their order; on {} it does not", room.key);
            }
        }
    }
    let chosen = chosen.filter(|(room, _)| trial.add(room, Tenant::New(i), ask)).map(|(room, _)| (room, Vec::new()));
    finish(slot, chosen, considered)
}

fn finish<'a>(slot: &Slot<'a>, chosen: Option<(&'a MemberRoom, Vec<PodsOnNode>)>, mut considered: Vec<Considered>) -> SlotDecision<'a> {
    let best = slot.group.insists_on(&slot.request.terms, slot.overflow);
    for choice in &slot.group.options {
        if considered.len() >= LISTED {
            break;
        }
        let room = choice.room;
        match choice.standing {
            Standing::Allowed if best.is_some_and(|best| room.priority() > best) => {
                let reason = format!("whenFull preferred: insists on provider priority {}", best.unwrap_or_default());
                considered.push(entry(room, Verdict::LessPreferred, reason, None));
            }
            Standing::Allowed if !room.is_known() => considered.push(entry(room, Verdict::Unknown, why_unknown(room), None)),
            Standing::Allowed => {}
            Standing::OutsideLogicalCloud => {
                considered.push(entry(room, Verdict::NotAllowed, "not a member of the logical cloud".into(), None));
            }
            Standing::Deregistering => considered.push(entry(room, Verdict::NotAllowed, "is being removed".into(), None)),
            Standing::Refused(refused) => {
                let verdict = if refused.refuses { Verdict::NotAllowed } else { Verdict::NoRoom };
                considered.push(entry(room, verdict, refused.reason.clone(), None));
            }
            Standing::Cordoned => considered.push(entry(room, Verdict::NotAllowed, why_cordoned(room), None)),
            Standing::Excluded => {
                let (who, why) = slot.request.terms.excluded(&room.key).unwrap_or_default();
                considered.push(entry(room, Verdict::NotAllowed, format!("excluded by the controller {who}: {why}"), None));
            }
            Standing::OutOfReach => {
                considered.push(entry(room, Verdict::NotAllowed, why_out_of_reach(&slot.request.terms, room).to_owned(), None));
            }
        }
    }
    for key in &slot.group.missing {
        if considered.len() < LISTED {
            considered.push(not_registered(key.clone(), format!("there is no cluster {key}")));
        }
    }
    if considered.is_empty() && slot.group.options.is_empty() {
        considered.push(not_registered(MemberKey::default(), format!("no cluster matches {}", slot.group.label())));
    }
    let more = (slot.group.options.len() + slot.group.missing.len()).saturating_sub(considered.len());
    SlotDecision { chosen, considered, more }
}

/// Changes the verdicts of chosen members to "fits", because nothing is claimed: another app has no room.
pub(crate) fn nothing_chosen(considered: &mut [Considered]) {
    for entry in considered.iter_mut().filter(|c| c.verdict == Verdict::Chosen) {
        entry.verdict = Verdict::Fits;
        entry.reason = "fits, but another app of the request does not, so nothing is claimed".into();
    }
}

fn explain_choice(slot: &Slot<'_>, chosen: &MemberRoom, best: f64, considered: &mut [Considered]) {
    let terms = &slot.request.terms;
    let tight = terms.packing == Packing::Tight;
    for entry in considered.iter_mut() {
        match entry.verdict {
            Verdict::Chosen if terms.score(&chosen.key) != 0 => {
                let score = terms.score(&chosen.key);
                entry.reason = format!("provider priority {}, score {score} of the controllers", chosen.priority());
            }
            Verdict::Fits if entry.priority == chosen.priority() && terms.score(&entry.member) != terms.score(&chosen.key) => {
                let (here, there) = (terms.score(&entry.member), terms.score(&chosen.key));
                entry.reason = format!("fits, but controllers give {} the better score ({there} against {here})", chosen.key);
            }
            Verdict::Chosen => {
                let how = match tight {
                    true => format!("the fullest cluster with room: {} requested after placing", percent(best)),
                    false => format!("most room left: {} free after placing", percent(free(best))),
                };
                entry.reason = format!("provider priority {}, {how}", chosen.priority());
            }
            Verdict::Fits if entry.priority > chosen.priority() => {
                entry.reason = format!("fits, but {} has the better provider priority", chosen.key);
            }
            Verdict::Fits if entry.share != Some(best) => {
                let share = entry.share.unwrap_or_default();
                entry.reason = match tight {
                    true => format!("fits, but {} is fuller ({} requested)", chosen.key, against(best, share)),
                    false => format!("fits, but {} has more room left ({} free)", chosen.key, against(free(best), free(share))),
                };
            }
            Verdict::Fits => entry.reason = format!("fits as well as on {}, which comes first by name", chosen.key),
            _ => {}
        }
    }
}

/// Sets the reasons for apps that call each other: among members of equal priority, calls and room decide together.
pub(crate) fn explain_calls<'a>(
    together: &CallPlacement<'a, '_>,
    chosen: &[Option<&'a MemberRoom>],
    judged: &mut [Option<SlotDecision<'a>>],
) {
    for (slot, judged) in judged.iter_mut().enumerate() {
        let (Some(judged), Some(room)) = (judged, chosen[slot]) else { continue };
        for entry in judged.considered.iter_mut().filter(|entry| entry.priority == room.priority()) {
            let (kept, all) = together.kept(slot, &entry.member, chosen);
            let calls =
                if all > 0.0 { format!("{} of its calls stay in the cluster", percent(kept / all)) } else { "it has no calls".to_owned() };
            let share = percent(entry.share.unwrap_or_default());
            match entry.verdict {
                Verdict::Chosen => {
                    entry.reason = format!(
                        "provider priority {}, best combination of calls and room: {calls}, {share} requested after placing",
                        room.priority()
                    )
                }
                Verdict::Fits => {
                    entry.reason = format!("fits, but {} has the better combination of calls and room (here {calls}, {share})", room.key)
                }
                _ => {}
            }
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The share that is free where `used` is requested; nothing is where more is requested than there is.
fn free(used: f64) -> f64 {
    (1.0 - used).max(0.0)
}

/// Two different shares with as many decimals as show that they differ.
fn against(one: f64, other: f64) -> String {
    let with = |decimals: usize| [one, other].map(|share| format!("{:.decimals$} %", share * 100.0));
    let shown = (0..=4).map(with).find(|[one, other]| one != other);
    shown.map_or_else(|| "the difference is below 0.0001 %".to_owned(), |[one, other]| format!("{one} against {other}"))
}

fn misfit(room: &MemberRoom, misfit: Misfit) -> Considered {
    match misfit {
        Misfit::NoRoom(reason) => entry(room, Verdict::NoRoom, reason, None),
        Misfit::NoNodeMatches(reason) => entry(room, Verdict::NoNodeMatches, reason, None),
    }
}

fn entry(room: &MemberRoom, verdict: Verdict, reason: String, share: Option<f64>) -> Considered {
    Considered { member: room.key.clone(), priority: room.priority(), verdict, reason, share, age_ms: room.age_ms.unwrap_or_default() }
}

fn not_registered(member: MemberKey, reason: String) -> Considered {
    Considered { member, priority: 10, verdict: Verdict::NotAllowed, reason, share: None, age_ms: 0 }
}

/// Why a cordoned member gets nothing new.
pub(crate) fn why_cordoned(room: &MemberRoom) -> String {
    let cordon = room.member.as_ref().and_then(|member| member.cordoned.as_ref());
    let why = cordon.map(|cordon| format!(" since {}: {}", cordon.since, cordon.reason)).unwrap_or_default();
    format!("is cordoned{why}")
}

/// Why the capacity of a member is unknown.
pub(crate) fn why_unknown(room: &MemberRoom) -> String {
    let Some(member) = &room.member else { return "not registered".into() };
    if member.state != crate::MemberState::Ready {
        let state = format!("{:?}", member.state).to_lowercase();
        return member.reason.as_ref().map_or(state.clone(), |reason| format!("{state}: {reason}"));
    }
    match room.age_ms {
        Some(age) if room.capacity.is_some() => format!("last observed {} s ago", age / 1000),
        _ => "its nodes have not been observed yet".into(),
    }
}
