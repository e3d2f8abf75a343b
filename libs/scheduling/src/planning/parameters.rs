//! Values of parameters and algorithms for a candidate. An unknown value is missing, never 0.

use std::collections::{BTreeMap, BTreeSet};

use super::context::PlanningContext;
use super::movable::Movable;
use crate::calls::MICRO;
use crate::terms::calls_between;
use crate::{Amounts, Claim, Ledger, MemberRoom, Observed, Parameter, ParameterScope, ParameterSource, Score};

/// Assumed seconds to Ready if none were observed.
const READY_S: f64 = 10.0;
/// Seconds that each volume adds to a move.
const VOLUME_S: f64 = 60.0;
/// Assumed bytes per second at which images are pulled, unless the policy's parameter `bandwidth` says otherwise.
const BANDWIDTH: f64 = 50_000_000.0;

/// The values of the policy's algorithms, in the order of application.
pub(crate) fn scores(context: &PlanningContext<'_>, candidate: &Movable<'_>) -> Vec<Score> {
    let mut known: BTreeMap<&str, Option<f64>> = BTreeMap::new();
    let mut scores = Vec::with_capacity(context.algorithms.len());
    for (used, definition) in &context.algorithms {
        let value = definition.as_ref().and_then(|(_, expression)| {
            let mut values = BTreeMap::new();
            for name in expression.parameters() {
                let parameter = context.policy.parameters.get(name)?;
                let value = known.entry(name).or_insert_with(|| resolve(context, candidate, name, parameter));
                values.insert(name.as_str(), (*value)?);
            }
            expression.evaluate(&values)
        });
        scores.push(Score { algorithm: used.algorithm.clone(), value, normalised: None });
    }
    scores
}

fn resolve(context: &PlanningContext<'_>, candidate: &Movable<'_>, name: &str, parameter: &Parameter) -> Option<f64> {
    let claim = candidate.claim;
    let value = match parameter.source {
        ParameterSource::Constant => parameter.value,
        ParameterSource::Prometheus => context.external.get(&claim.id).and_then(|values| values.get(name)).copied(),
        ParameterSource::Topology => fact(context, claim, parameter.fact.as_deref()?, parameter.scope),
        ParameterSource::Metric => {
            let of = |c: &Claim| metric(context.ledger, c, || candidate.best(), parameter.metric.as_deref()?);
            match parameter.scope {
                ParameterScope::App => of(claim),
                // For a composite app: the sum, or for times and shares the maximum. Missing if the value of one app is unknown.
                ParameterScope::Service => {
                    let parts: Option<Vec<f64>> = context.siblings(claim).iter().map(|c| of(c)).collect();
                    let longest = matches!(parameter.metric.as_deref(), Some("age" | "ready_seconds" | "memory_pressure"));
                    parts.map(|p| if longest { p.into_iter().fold(0.0, f64::max) } else { p.into_iter().sum() })
                }
            }
        }
    };
    value.filter(|v| v.is_finite())
}

fn fact(context: &PlanningContext<'_>, claim: &Claim, fact: &str, scope: ParameterScope) -> Option<f64> {
    let siblings = context.siblings(claim);
    let of: &[&Claim] = match scope {
        ParameterScope::App => &[claim],
        ParameterScope::Service => &siblings,
    };
    Some(match fact {
        "clusters_of_application" => siblings.iter().map(|c| &c.member).collect::<BTreeSet<_>>().len() as f64,
        "apps_of_application" => siblings.iter().map(|c| &c.request.app).collect::<BTreeSet<_>>().len() as f64,
        "volumes" => of.iter().map(|c| f64::from(c.request.demand.volumes)).sum(),
        "pods" => of.iter().flat_map(|c| &c.pods).map(|p| f64::from(p.count)).sum(),
        "call_dependency" => of.iter().map(|c| call_dependency(c, &siblings)).sum::<Option<f64>>()?,
        "provider_priority" => f64::from(context.ledger.room(&claim.member)?.priority()),
        _ => return None,
    })
}

/// Calls that would become calls between clusters if only this app moved. `None` if its calls are not known.
fn call_dependency(claim: &Claim, siblings: &[&Claim]) -> Option<f64> {
    claim.request.terms.calls.as_ref()?;
    // During a move an app may have two claims.
    let here: BTreeMap<&str, &Claim> = siblings.iter().filter(|c| c.member == claim.member).map(|c| (c.request.app.as_str(), *c)).collect();
    let others = here.values().filter(|other| other.request.app != claim.request.app);
    Some(others.map(|other| calls_between(&claim.request, &other.request)).sum::<u64>() as f64 * MICRO)
}

fn metric<'a>(ledger: &Ledger, claim: &Claim, destination: impl FnOnce() -> Option<&'a MemberRoom>, metric: &str) -> Option<f64> {
    let observed = observed(ledger, claim);
    let used = || observed.and_then(|o| o.used.as_ref());
    match metric {
        "cpu_used" => used().map(|u| u.cpu as f64),
        "memory_used" => used().map(|u| u.memory as f64),
        "cpu_requested" => Some(of_its_pods(claim, observed).cpu as f64),
        "memory_requested" => Some(of_its_pods(claim, observed).memory as f64),
        "age" => observed?.age_s.map(|s| s as f64),
        "image_bytes_missing" => image_bytes_missing(ledger, claim, destination()?),
        "ready_seconds" => Some(observed.and_then(|o| o.ready_s).unwrap_or(READY_S)),
        "memory_pressure" => observed?.memory_pressure.map(|percent| percent as f64),
        "unmet_pods" => observed?.unmet_pods.map(|pods| pods as f64),
        _ => None,
    }
}

fn observed<'a>(ledger: &'a Ledger, claim: &Claim) -> Option<&'a Observed> {
    observed_on(ledger.room(&claim.member)?, claim)
}

fn observed_on<'a>(room: &'a MemberRoom, claim: &Claim) -> Option<&'a Observed> {
    room.capacity.as_ref()?.observed.get(&claim.id)
}

/// The total request of a claim.
pub(crate) fn requested(claim: &Claim) -> Amounts {
    let mut sum = Amounts::default();
    for pods in &claim.pods {
        if let Some(group) = claim.request.demand.groups.get(pods.group) {
            sum.add(&group.requests, i64::from(pods.count));
        }
    }
    sum
}

/// The total request of its observed pods, to which the observed usage belongs (they may have been scaled by others). If none are
/// observed, the claimed request.
fn of_its_pods(claim: &Claim, observed: Option<&Observed>) -> Amounts {
    observed.filter(|o| !o.requests.is_empty()).map_or_else(|| requested(claim), |o| o.requests.sum())
}

/// Bytes of its images that no node of the destination has; sizes as reported by its current member. Images without a reported size
/// count 0, since nodes omit small ones. `None` if none of the missing images has a reported size.
fn image_bytes_missing(ledger: &Ledger, claim: &Claim, destination: &MemberRoom) -> Option<f64> {
    let (here, there) = (&ledger.room(&claim.member)?.capacity.as_ref()?.images, &destination.capacity.as_ref()?.images);
    let names = &claim.request.demand.images;
    let missing: Vec<&String> = names.iter().filter(|name| !there.contains_key(name.as_str())).collect();
    let sizes: Vec<u64> = missing.iter().filter_map(|name| here.get(name.as_str()).copied().filter(|bytes| *bytes > 0)).collect();
    let known = !names.is_empty() && (missing.is_empty() || !sizes.is_empty());
    known.then(|| sizes.into_iter().fold(0, u64::saturating_add) as f64)
}

/// The least that [`move_cost`] can be for an app on `room`, whatever its destination.
pub(crate) fn least_move_cost(room: &MemberRoom, claim: &Claim) -> f64 {
    let ready = observed_on(room, claim).and_then(|o| o.ready_s).unwrap_or(READY_S);
    ready + VOLUME_S * f64::from(claim.request.demand.volumes)
}

/// Estimated seconds for moving a candidate to `destination`. Images without a reported size count 0.
pub(crate) fn move_cost(context: &PlanningContext<'_>, candidate: &Movable<'_>, destination: &MemberRoom) -> f64 {
    let bytes = image_bytes_missing(context.ledger, candidate.claim, destination).unwrap_or(0.0);
    let bandwidth = context.policy.parameters.get("bandwidth").and_then(|p| p.value).filter(|b| *b > 0.0).unwrap_or(BANDWIDTH);
    bytes / bandwidth + least_move_cost(candidate.room, candidate.claim)
}
