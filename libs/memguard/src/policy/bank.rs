//! The bank: the banker's algorithm applied to the distance of each container from its limit.
//!
//! Each container may still take `limit - working set`, its need. The need of the container nearest to its limit is kept free, so that
//! this one can always reach its limit, finish, and free its memory: no container is killed, and there is no deadlock. Of the memory
//! beyond that, the others, in the order of their needs, may take as much as they can take until the guard has observed and acted again.
//! A container for which nothing is left is held. With plenty of memory all run; with nothing but the first need left only the nearest
//! one runs.

use std::cmp::Reverse;

use crate::policy::{Candidate, PolicyInput, Proposal};
use crate::settings::BankSettings;
use crate::{Activity, NodeMemory, Reason};

/// A container that grows by less than this share of its fastest growth counts as not growing.
const STILL: f64 = 0.1;

pub(crate) fn step(settings: &BankSettings, input: &PolicyInput<'_>) -> Proposal {
    let mut proposal = Proposal::default();
    let mut left = free(settings, input);
    for (nth, (candidate, need)) in by_need(settings, input).into_iter().enumerate() {
        let id = &candidate.container.id;
        let price = if nth == 0 { need } else { until_next_act(settings, candidate).min(need) };
        if price <= left {
            if candidate.container.activity != (Activity::Running { lease: None }) {
                proposal.free.push((id.clone(), Reason::Fits { need: price, left }));
            }
            left -= price;
        } else {
            proposal.hold.push((id.clone(), Reason::DoesNotFit { need: price, left }));
        }
    }
    // The safety rules keep the last runnable container running, so the one that is farthest from fitting must be held first.
    proposal.hold.reverse();
    proposal
}

/// What the container can take until the guard has observed and acted again, at its fastest observed growth.
fn until_next_act(settings: &BankSettings, candidate: &Candidate<'_>) -> u64 {
    let track = candidate.track;
    // A container under a `memory.high` lease stopped growing because of it, not by itself.
    let leased = matches!(candidate.container.activity, Activity::Running { lease: Some(_) });
    let share = if track.rate < STILL * track.burst && !leased { settings.still } else { 1.0 };
    (track.burst * settings.reaction.as_secs_f64() * share) as u64
}

/// Candidates with their needs. The smallest need of all comes first, because it must be met or every container waits for ever; then
/// higher priority, smaller need, older container.
pub(crate) fn by_need<'v, 'a>(settings: &BankSettings, input: &'v PolicyInput<'a>) -> Vec<(&'v Candidate<'a>, u64)> {
    let mut sorted: Vec<_> = input.candidates.iter().map(|candidate| (candidate, need(settings, candidate, input.node))).collect();
    sorted.sort_by(|(a, a_need), (b, b_need)| {
        let key = |candidate: &Candidate<'_>, need: u64| (Reverse(candidate.container.priority), need, candidate.container.started);
        key(a, *a_need).cmp(&key(b, *b_need)).then_with(|| a.container.id.cmp(&b.container.id))
    });
    if let Some(nearest) = (0..sorted.len()).min_by_key(|index| sorted[*index].1) {
        sorted[..=nearest].rotate_right(1);
    }
    sorted
}

/// The need of the container in bytes: up to its limit or, without one, what it takes within the horizon at its present rate.
pub(crate) fn need(settings: &BankSettings, candidate: &Candidate<'_>, node: NodeMemory) -> u64 {
    match candidate.container.limit {
        Some(limit) => limit.min(node.capacity).saturating_sub(candidate.memory),
        None => growth_within(settings, candidate.track.growth).min(node.capacity.saturating_sub(candidate.memory)),
    }
}

/// Free memory that may be lent, in bytes: without the margin, and without what the containers that may not be held are expected to take
/// within the horizon.
pub(crate) fn free(settings: &BankSettings, input: &PolicyInput<'_>) -> u64 {
    let node = input.node;
    let margin = (node.capacity as f64 * settings.margin) as u64;
    node.capacity.saturating_sub(node.used).saturating_sub(margin).saturating_sub(growth_within(settings, input.ineligible_growth))
}

fn growth_within(settings: &BankSettings, growth: f64) -> u64 {
    (growth * settings.horizon.as_secs_f64()) as u64
}
