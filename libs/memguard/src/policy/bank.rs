//! Banker's rule on the distance to the limit.
//!
//! Each container may still take `limit - working set`. Sorted by that, the nearest to its limit first, they are let grow as long as
//! the sum fits into what is free: then all of them can reach their limits at the same time, and nobody is killed. The others wait,
//! exactly as many as needed. It cannot lock up: the nearest to its limit always runs, and gives back when it is done.

use std::cmp::Reverse;

use crate::policy::{Candidate, View, Wishes};
use crate::settings::BankSettings;
use crate::{NodeMemory, Reason};

pub(crate) fn step(settings: &BankSettings, view: &View<'_>) -> Wishes {
    let mut wishes = Wishes::default();
    let mut left = free(settings, view);
    for (candidate, need) in by_need(settings, view) {
        let id = candidate.container.id.clone();
        if need <= left {
            wishes.free.push((id, Reason::Fits { need, left }));
            left -= need;
        } else {
            wishes.hold.push((id, Reason::DoesNotFit { need, left }));
        }
    }
    // The guard keeps the last runnable running: the farthest from fitting must be asked for first.
    wishes.hold.reverse();
    wishes
}

/// Candidates with what each may still take: higher priority first, then the smaller need, then the older.
pub(crate) fn by_need<'v, 'a>(settings: &BankSettings, view: &'v View<'a>) -> Vec<(&'v Candidate<'a>, u64)> {
    let mut sorted: Vec<_> = view.candidates.iter().map(|candidate| (candidate, need(settings, candidate, view.node))).collect();
    sorted.sort_by(|(a, a_need), (b, b_need)| {
        let key = |candidate: &Candidate<'_>, need: u64| (Reverse(candidate.container.priority), need, candidate.container.started);
        key(a, *a_need).cmp(&key(b, *b_need)).then_with(|| a.container.id.cmp(&b.container.id))
    });
    sorted
}

/// What the container may still take: up to its limit, or, without one, what it takes within the horizon at its present rate.
pub(crate) fn need(settings: &BankSettings, candidate: &Candidate<'_>, node: NodeMemory) -> u64 {
    match candidate.container.limit {
        Some(limit) => limit.min(node.capacity).saturating_sub(candidate.memory),
        None => growth_within(settings, candidate.track.growth).min(node.capacity.saturating_sub(candidate.memory)),
    }
}

/// Free memory that may be lent: without the margin, what grows until the guard reacts, and what the untouchable are about to take.
pub(crate) fn free(settings: &BankSettings, view: &View<'_>) -> u64 {
    let node = view.node;
    let fastest: f64 = view.candidates.iter().filter(|candidate| !candidate.paused()).map(|candidate| candidate.track.burst).sum();
    let margin = (node.capacity as f64 * settings.margin + fastest * settings.reaction.as_secs_f64()) as u64;
    node.capacity.saturating_sub(node.used).saturating_sub(margin).saturating_sub(growth_within(settings, view.untouchable_growth))
}

fn growth_within(settings: &BankSettings, growth: f64) -> u64 {
    (growth * settings.horizon.as_secs_f64()) as u64
}
