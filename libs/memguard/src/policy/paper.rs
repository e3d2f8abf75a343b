//! The paper's rule (its algorithms 1 and 2), reconstructed from its prose, with the recursion written as a timer. M is the memory in
//! use, U and L are the upper and the lower bound, R is the number of containers per round, T is the time between rounds.
//!
//! ```text
//! M > U                      pause the R that use least, add them to C_list           (algorithm 1, lines 9-12; 2, lines 10-13)
//! M >= L, T after that       the next R; if none is left: kill the last R of C_list   (algorithm 2, lines 18-25 and 4-9)
//! M < L                      resume all                                               (algorithm 1, lines 13-17)
//! ```

use crate::policy::{PolicyInput, Proposal};
use crate::settings::PaperSettings;
use crate::state::GuardState;
use crate::{ContainerId, Reason};

pub(crate) fn step(settings: &PaperSettings, state: &mut GuardState, input: &PolicyInput<'_>) -> Proposal {
    let here = |id: &ContainerId| input.candidates.iter().any(|candidate| candidate.container.id == *id);
    state.restricted.retain(here);
    let used = input.node.used;
    let bound = |share: f64| (input.node.capacity as f64 * share) as u64;
    let (upper, lower) = (bound(settings.upper), bound(settings.lower));
    let mut proposal = Proposal::default();
    match state.last_round {
        None if used > upper => round(settings, state, input, Reason::AboveUpper { used, bound: upper }, &mut proposal),
        Some(_) if used < lower => {
            state.last_round = None;
            proposal.free = state.restricted.drain(..).map(|id| (id, Reason::BelowLower { used, bound: lower })).collect();
        }
        Some(last) if input.now.since(last) >= settings.round => {
            round(settings, state, input, Reason::AboveLower { used, bound: lower }, &mut proposal);
        }
        _ => {}
    }
    // A restricted container stays restricted: the pause is proposed again until the container is observed as paused.
    let reason = Reason::AboveLower { used, bound: lower };
    for candidate in &input.candidates {
        let id = &candidate.container.id;
        if state.restricted.contains(id) && !candidate.paused() && proposal.hold.iter().all(|(held, _)| held != id) {
            proposal.hold.push((id.clone(), reason.clone()));
        }
        if !state.restricted.contains(id) && candidate.paused() && proposal.free.iter().all(|(freed, _)| freed != id) {
            proposal.free.push((id.clone(), Reason::Unasked));
        }
    }
    proposal
}

fn round(settings: &PaperSettings, state: &mut GuardState, input: &PolicyInput<'_>, reason: Reason, proposal: &mut Proposal) {
    state.last_round = Some(input.now);
    let mut open: Vec<_> = input.candidates.iter().filter(|candidate| !state.restricted.contains(&candidate.container.id)).collect();
    open.sort_by(|a, b| (a.memory, &a.container.id).cmp(&(b.memory, &b.container.id)));
    if open.is_empty() {
        let from = state.restricted.len().saturating_sub(settings.per_round);
        proposal.sacrifice = state.restricted.split_off(from).into_iter().map(|id| (id, Reason::AllPaused)).collect();
        return;
    }
    for candidate in open.into_iter().take(settings.per_round) {
        state.restricted.push(candidate.container.id.clone());
        proposal.hold.push((candidate.container.id.clone(), reason.clone()));
    }
}
