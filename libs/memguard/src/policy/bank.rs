//! Banker's rule on the distance to the limit.
//!
//! Each container may still take `limit - working set`. The way of the nearest to its limit is kept free, so it can always arrive, and gives
//! back when it is done: nobody is killed and nothing locks up. Of what is left beyond that the others, in that order, may take what they
//! can take until the guard has looked and acted again; who finds nothing left waits. When there is plenty, all run; when there is
//! nothing but the way of the nearest, it alone runs; nobody waits who need not.

use std::cmp::Reverse;

use crate::policy::{Candidate, View, Wishes};
use crate::settings::BankSettings;
use crate::{Activity, NodeMemory, Reason};

/// Growing less than this share of its fastest, a container stands still.
const STILL: f64 = 0.1;

pub(crate) fn step(settings: &BankSettings, view: &View<'_>) -> Wishes {
    let mut wishes = Wishes::default();
    let mut left = free(settings, view);
    for (nth, (candidate, need)) in by_need(settings, view).into_iter().enumerate() {
        let id = &candidate.container.id;
        let price = if nth == 0 { need } else { until_next_act(settings, candidate).min(need) };
        if price <= left {
            if candidate.container.activity != (Activity::Running { lease: None }) {
                wishes.free.push((id.clone(), Reason::Fits { need: price, left }));
            }
            left -= price;
        } else {
            wishes.hold.push((id.clone(), Reason::DoesNotFit { need: price, left }));
        }
    }
    // The guard keeps the last runnable running: the farthest from fitting must be asked for first.
    wishes.hold.reverse();
    wishes
}

/// What the container can take until the guard has looked and acted again, at the fastest it was seen to grow.
fn until_next_act(settings: &BankSettings, candidate: &Candidate<'_>) -> u64 {
    let track = candidate.track;
    // Under a `memory.high` it went on to where it wants to grow.
    let leased = matches!(candidate.container.activity, Activity::Running { lease: Some(_) });
    let share = if track.rate < STILL * track.burst && !leased { settings.still } else { 1.0 };
    (track.burst * settings.reaction.as_secs_f64() * share) as u64
}

/// Candidates with what each may still take: the smallest need of all first, because its way must be free or everybody waits for ever;
/// then higher priority, the smaller need, the older.
pub(crate) fn by_need<'v, 'a>(settings: &BankSettings, view: &'v View<'a>) -> Vec<(&'v Candidate<'a>, u64)> {
    let mut sorted: Vec<_> = view.candidates.iter().map(|candidate| (candidate, need(settings, candidate, view.node))).collect();
    sorted.sort_by(|(a, a_need), (b, b_need)| {
        let key = |candidate: &Candidate<'_>, need: u64| (Reverse(candidate.container.priority), need, candidate.container.started);
        key(a, *a_need).cmp(&key(b, *b_need)).then_with(|| a.container.id.cmp(&b.container.id))
    });
    if let Some(nearest) = (0..sorted.len()).min_by_key(|index| sorted[*index].1) {
        sorted[..=nearest].rotate_right(1);
    }
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
    let margin = (node.capacity as f64 * settings.margin) as u64;
    node.capacity.saturating_sub(node.used).saturating_sub(margin).saturating_sub(growth_within(settings, view.untouchable_growth))
}

fn growth_within(settings: &BankSettings, growth: f64) -> u64 {
    (growth * settings.horizon.as_secs_f64()) as u64
}
