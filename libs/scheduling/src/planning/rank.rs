//! In which order candidates are taken: the owners' priorities, then the policy, then names. Never the order they came in.

use std::cmp::Ordering;

use super::context::World;
use super::movable::Movable;
use crate::{Algorithm, Missing, MissingPlace, PolicyMode, Prefer};

/// Puts candidates into the order in which they are taken, and fills in normalised scores and totals.
pub(crate) fn sort(world: &World<'_>, movable: &mut [Movable<'_>]) {
    if world.policy.mode == PolicyMode::Scoring && !world.algorithms.is_empty() {
        score(world, movable);
    }
    let mode = world.policy.mode;
    movable.sort_by(|a, b| {
        let policy = match mode {
            _ if world.algorithms.is_empty() => best_priority(a).cmp(&best_priority(b)),
            PolicyMode::Order => in_order(world, a, b),
            PolicyMode::Scoring => b.total.unwrap_or(0.0).total_cmp(&a.total.unwrap_or(0.0)),
        };
        a.priority.cmp(&b.priority).then(policy).then_with(|| name(a).cmp(&name(b)))
    });
}

/// Without a policy: who can go to the better provider goes first; who can go nowhere last.
fn best_priority(candidate: &Movable<'_>) -> u8 {
    candidate.best.map_or(u8::MAX, |room| room.priority())
}

fn name<'m>(m: &Movable<'m>) -> impl Ord + 'm {
    let dig = &m.claim.dig;
    (&dig.project, &dig.composite_app, &dig.version, &dig.name, &m.claim.request.app, m.claim.id)
}

/// First algorithm, equal values by the next.
fn in_order(world: &World<'_>, a: &Movable<'_>, b: &Movable<'_>) -> Ordering {
    for (i, (_, definition)) in world.algorithms.iter().enumerate() {
        let Some((algorithm, _)) = definition else { continue };
        let key = |m: &Movable<'_>| oriented(algorithm, m.scores[i].value);
        let order = key(a).total_cmp(&key(b));
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Lower moves first. What is missing goes to its end, or stands for a number.
fn oriented(algorithm: &Algorithm, value: Option<f64>) -> f64 {
    let oriented = |value: f64| match algorithm.prefer {
        Prefer::Low => value + 0.0,
        Prefer::High => 0.0 - value,
    };
    match (value, algorithm.missing) {
        (Some(value), _) | (None, Missing::Number(value)) => oriented(value),
        (None, Missing::Place(MissingPlace::First)) => f64::NEG_INFINITY,
        (None, Missing::Place(MissingPlace::Last)) => f64::INFINITY,
    }
}

/// Each algorithm over the candidates to 0..1, 1 moves first; then the weighted sum. Equal values say nothing: a half each.
fn score(world: &World<'_>, movable: &mut [Movable<'_>]) {
    for (i, (_, definition)) in world.algorithms.iter().enumerate() {
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
            world.algorithms.iter().zip(&m.scores).map(|((used, _), s)| used.weight.unwrap_or(1.0) * s.normalised.unwrap_or(0.0));
        m.total = Some(weighted.sum());
    }
}
