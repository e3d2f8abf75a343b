//! The order of candidates: by the owners' priorities, then by the policy, then by name. The order of the input has no influence.

use std::cmp::Ordering;

use super::context::PlanningContext;
use super::movable::Movable;
use crate::{Algorithm, Missing, MissingPlace, PolicyMode, Prefer};

/// Sorts candidates into the order in which they are taken, and sets normalised scores and totals.
pub(crate) fn sort(context: &PlanningContext<'_>, movable: &mut [Movable<'_>]) {
    if context.policy.mode == PolicyMode::Scoring && !context.algorithms.is_empty() {
        score(context, movable);
    }
    let mode = context.policy.mode;
    movable.sort_by(|a, b| {
        let policy = match mode {
            _ if context.algorithms.is_empty() => best_priority(a).cmp(&best_priority(b)),
            PolicyMode::Order => in_order(context, a, b),
            PolicyMode::Scoring => b.total.unwrap_or(0.0).total_cmp(&a.total.unwrap_or(0.0)),
        };
        a.priority.cmp(&b.priority).then(policy).then_with(|| name(a).cmp(&name(b)))
    });
}

/// The order without a policy: candidates whose destination has the better provider first, those without destination last.
fn best_priority(candidate: &Movable<'_>) -> u8 {
    candidate.best_priority().unwrap_or(u8::MAX)
}

fn name<'m>(m: &Movable<'m>) -> impl Ord + 'm {
    let dig = &m.claim.dig;
    (&dig.project, &dig.composite_app, &dig.version, &dig.name, &m.claim.request.app, m.claim.id)
}

/// Compares by the first algorithm, and equal values by the next one.
fn in_order(context: &PlanningContext<'_>, a: &Movable<'_>, b: &Movable<'_>) -> Ordering {
    for (i, (_, definition)) in context.algorithms.iter().enumerate() {
        let Some((algorithm, _)) = definition else { continue };
        let key = |m: &Movable<'_>| oriented(algorithm, m.scores[i].value);
        let order = key(a).total_cmp(&key(b));
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// The value as a sort key: a lower key moves first. A missing value becomes the first or last key, or its replacement.
fn oriented(algorithm: &Algorithm, value: Option<f64>) -> f64 {
    // The sums turn -0 into 0, which `total_cmp` would tell apart.
    let key = |value: f64| match algorithm.prefer {
        Prefer::Low => value + 0.0,
        Prefer::High => 0.0 - value,
    };
    match (value, algorithm.missing) {
        (Some(value), _) | (None, Missing::Number(value)) => key(value),
        (None, Missing::Place(MissingPlace::First)) => f64::NEG_INFINITY,
        (None, Missing::Place(MissingPlace::Last)) => f64::INFINITY,
    }
}

/// Normalises the values of each algorithm to 0..1 over the candidates (1 moves first) and computes the weighted sums. If all values are
/// equal, each is normalised to 0.5.
fn score(context: &PlanningContext<'_>, movable: &mut [Movable<'_>]) {
    for (i, (_, definition)) in context.algorithms.iter().enumerate() {
        let Some((algorithm, _)) = definition else { continue };
        let keys: Vec<f64> = movable.iter().map(|m| oriented(algorithm, m.scores[i].value)).collect();
        let finite = || keys.iter().copied().filter(|k| k.is_finite());
        let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        for (m, key) in movable.iter_mut().zip(keys) {
            m.scores[i].normalised = Some(if key == f64::INFINITY {
                0.0
            } else if key == f64::NEG_INFINITY {
                1.0
            } else if high > low {
                (high - key) / (high - low)
            } else {
                0.5
            });
        }
    }
    for m in movable.iter_mut() {
        let weighted =
            context.algorithms.iter().zip(&m.scores).map(|((used, _), s)| used.weight.unwrap_or(1.0) * s.normalised.unwrap_or(0.0));
        m.total = Some(weighted.sum());
    }
}
