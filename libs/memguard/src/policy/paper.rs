//! The paper's rule (its algorithms 1 and 2), rebuilt from the prose, with the recursion written as a timer.
//!
//! ```text
//! M > U                      pause the R that use least, note them in C_list          (algorithm 1, lines 9-12; 2, lines 10-13)
//! M >= L, T after that       the next R; if none is left: kill the last R of C_list   (algorithm 2, lines 18-25 and 4-9)
//! M < L                      resume all                                               (algorithm 1, lines 13-17)
//! ```

use crate::policy::{View, Wishes};
use crate::settings::PaperSettings;
use crate::state::State;
use crate::{ContainerId, Reason};

pub(crate) fn step(settings: &PaperSettings, state: &mut State, view: &View<'_>) -> Wishes {
    let here = |id: &ContainerId| view.candidates.iter().any(|candidate| candidate.container.id == *id);
    state.restricted.retain(here);
    let used = view.node.used;
    let bound = |share: f64| (view.node.capacity as f64 * share) as u64;
    let (upper, lower) = (bound(settings.upper), bound(settings.lower));
    let mut wishes = Wishes::default();
    match state.last_round {
        None if used > upper => round(settings, state, view, Reason::AboveUpper { used, bound: upper }, &mut wishes),
        Some(_) if used < lower => {
            state.last_round = None;
            wishes.free = state.restricted.drain(..).map(|id| (id, Reason::BelowLower { used, bound: lower })).collect();
        }
        Some(last) if view.now.since(last) >= settings.round => {
            round(settings, state, view, Reason::AboveLower { used, bound: lower }, &mut wishes);
        }
        _ => {}
    }
    // Whom the rule restricts stays restricted: asked for again until it is seen paused.
    let reason = Reason::AboveLower { used, bound: lower };
    for candidate in &view.candidates {
        let id = &candidate.container.id;
        if state.restricted.contains(id) && !candidate.paused() && wishes.hold.iter().all(|(held, _)| held != id) {
            wishes.hold.push((id.clone(), reason.clone()));
        }
        if !state.restricted.contains(id) && candidate.paused() && wishes.free.iter().all(|(freed, _)| freed != id) {
            wishes.free.push((id.clone(), Reason::Unasked));
        }
    }
    wishes
}

fn round(settings: &PaperSettings, state: &mut State, view: &View<'_>, reason: Reason, wishes: &mut Wishes) {
    state.last_round = Some(view.now);
    let mut open: Vec<_> = view.candidates.iter().filter(|candidate| !state.restricted.contains(&candidate.container.id)).collect();
    open.sort_by(|a, b| (a.memory, &a.container.id).cmp(&(b.memory, &b.container.id)));
    if open.is_empty() {
        let from = state.restricted.len().saturating_sub(settings.per_round);
        wishes.sacrifice = state.restricted.split_off(from).into_iter().map(|id| (id, Reason::AllPaused)).collect();
        return;
    }
    for candidate in open.into_iter().take(settings.per_round) {
        state.restricted.push(candidate.container.id.clone());
        wishes.hold.push((candidate.container.id.clone(), reason.clone()));
    }
}
