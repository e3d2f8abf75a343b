//! Users' traffic goes from the old copies to the new ones: the last thing before the pivot, and the first that an undo takes back.
//!
//! Only apps that have a route are concerned. The new copy must answer every process of the data path; then it gets its shares of new
//! requests, one after the other; when the old copy gets none any more, what is under way there may end. Weights are rows of
//! `traffic_weight`, the data path gets them by the feed `routes`, and what it has done is in its feed `traffic`. So each pass compares
//! what is reported with what is wanted, and a pass that is repeated has the same effects. Invariant: an old copy is given up only when
//! every process of the data path has said that it chooses the new one.

use std::time::Duration;

use drover_api::bindings::Phase;
use drover_api::scheduling::MemberKey;
use drover_api::traffic::TrafficTarget;
use drover_resources::TypedDocument;
use drover_store::Timestamp;
use drover_workflow::{Ctx, Outcome, StepError, StepResult};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::{now, readiness};
use super::{MoveProgress, Relocate};
use crate::environment::{Environment, binding_key, route_key};
use crate::resources::route::RouteSpec;
use crate::store::{route, traffic};
use crate::traffic::{CopyTraffic, Reported};

/// Time for the data path to follow a change of weights.
const FOLLOWS: Duration = Duration::from_secs(30);
/// Between a change of weights and the count of what is under way: a request that was being sent is counted by then.
const SETTLES: Duration = Duration::from_millis(500);
/// How often a new copy may stop being ready before the cut-over: one that crashes again and again does so in the old one's place, too.
const UNREADY_TIMES: u32 = 2;
/// Interval of checks when no report wakes the step.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// New copies that are not ready although they were.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Unready {
    since: Option<Timestamp>,
    /// How often that was so.
    times: u32,
}

/// How far the traffic of one move is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Shift {
    /// Number of shares that the new copy was given; 0: it is being asked whether it answers.
    step: usize,
    /// When this began.
    since: Timestamp,
    /// What the new copy had answered, and failed at, before its first share.
    #[serde(default)]
    before: (u64, u64),
    /// When traffic began to go back.
    #[serde(default)]
    back: Option<Timestamp>,
}

/// What a pass found of one move.
enum Pass {
    Done,
    /// Something was decided that must be journaled before it has an effect.
    Again,
    Waiting {
        until: Timestamp,
        note: String,
    },
}

/// The routes of an app, with what is reported of each.
struct Routed {
    routes: Vec<(TypedDocument<RouteSpec>, Reported)>,
}

/// Waits until every new copy is ready at the same time, because one that the journal has as ready may have failed while this service
/// was down, and only the old copy would be left. Then traffic is shifted.
pub(super) async fn shift_traffic(ctx: &mut Ctx<Relocate>) -> StepResult {
    let environment = ctx.environment.clone();
    let ready = |moving: &&MoveProgress| environment.statuses.get(moving.new).is_some_and(|status| status.phase == Phase::Ready);
    let waiting: Vec<String> = ctx.state.moves.iter().filter(|moving| !ready(moving)).map(|moving| binding_key(moving.new)).collect();
    if !waiting.is_empty() {
        let unready = &mut ctx.state.unready;
        if unready.since.is_none() {
            (unready.since, unready.times) = (Some(now()), unready.times + 1);
        }
        let too_long = unready.since.is_some_and(|since| now() >= readiness::after(since, environment.deadlines.ready));
        if too_long || unready.times > UNREADY_TIMES {
            return Err(StepError::fail("destination_not_ready", "a new copy stopped being ready before the cut-over"));
        }
        return Ok(Outcome::park(waiting).until(readiness::after(now(), CHECK_EVERY)));
    }
    ctx.state.unready.since = None;
    let (mut keys, mut notes, mut until) = (Vec::new(), Vec::new(), None::<Timestamp>);
    for index in 0..ctx.state.moves.len() {
        let routed = Routed::read(&environment, &ctx.state.moves[index]).await?;
        match pass(ctx, index, &routed).await? {
            Pass::Done => {}
            Pass::Again => until = Some(now()),
            Pass::Waiting { until: deadline, note } => {
                keys.extend(routed.routes.iter().map(|(route, _)| route_key(route.id)));
                keys.push(binding_key(ctx.state.moves[index].new));
                notes.push(note);
                until = Some(until.map_or(deadline, |until| Timestamp(until.0.min(deadline.0))));
            }
        }
    }
    match until {
        None => Ok(Outcome::next()),
        Some(until) => {
            if !notes.is_empty() {
                ctx.progress(notes.join("; "));
            }
            Ok(Outcome::park(keys).until(until))
        }
    }
}

async fn pass(ctx: &mut Ctx<Relocate>, index: usize, routed: &Routed) -> Result<Pass, StepError> {
    let environment = ctx.environment.clone();
    if routed.routes.is_empty() {
        return Ok(Pass::Done);
    }
    let policy = routed.routes[0].0.spec.shift.clone();
    // Pods that moved one after the other took their share of the traffic along.
    let shares = if ctx.state.moves[index].is_stateful() { vec![100] } else { policy.shares() };
    let moving = &mut ctx.state.moves[index];
    let (old, new, to, name) = (moving.old.id, moving.new, moving.to.clone(), moving.name());
    let Some(shift) = &mut moving.shift else {
        moving.shift = Some(Shift { step: 0, since: now(), before: (0, 0), back: None });
        return Ok(Pass::Again);
    };
    if shift.step == 0 {
        let limit = readiness::after(shift.since, environment.deadlines.ready);
        let missing = routed.not_answering(new, &to);
        if missing.is_empty() {
            let before = routed.copy(new);
            *shift = Shift { step: 1, since: now(), before: (before.requests, before.failures), back: None };
            return Ok(Pass::Again);
        }
        if now() >= limit {
            let message = format!("the new copy of {name} does not answer the data path of its routes; traffic stays where it was");
            return Err(StepError::fail("traffic_not_answered", message).reasons(missing));
        }
        let note = format!("asking the new copy of {name} through the data path: {}", missing.join("; "));
        return Ok(Pass::Waiting { until: limit, note });
    }

    let share = shares.get(shift.step - 1).copied().unwrap_or(100);
    weigh(ctx, index, share).await?;
    let Some(shift) = &mut ctx.state.moves[index].shift else { return Ok(Pass::Again) };
    if !routed.weighs(old, 100 - share) || !routed.weighs(new, share) {
        if now() >= readiness::after(shift.since, FOLLOWS) {
            let message = format!("not every process of the data path followed when {share} % of {name} was to go to its new copy");
            return Err(StepError::fail("traffic_not_shifted", message).reasons(routed.silent()));
        }
        let note = format!("giving {share} % of the traffic of {name} to its new copy");
        return Ok(Pass::Waiting { until: readiness::after(now(), CHECK_EVERY), note });
    }
    let counted = routed.copy(new);
    if let Some(reason) = over_budget(shift.before, counted, routed.copy(old), policy.error_budget_percent) {
        let message = format!("requests to the new copy of {name} fail; traffic goes back to the old one");
        return Err(StepError::fail("traffic_error_budget", message).reasons([reason]));
    }
    let since = shift.since;
    let waited = |time: Duration| readiness::after(since, time);
    if share < 100 {
        let until = waited(Duration::from_secs(policy.pause_seconds.into()));
        if now() >= until {
            (shift.step, shift.since) = (shift.step + 1, now());
            return Ok(Pass::Again);
        }
        return Ok(Pass::Waiting { until, note: format!("{share} % of the traffic of {name} goes to its new copy") });
    }
    if now() < waited(SETTLES) {
        return Ok(Pass::Waiting { until: waited(SETTLES), note: format!("all traffic of {name} goes to its new copy") });
    }
    let (left, until) = (routed.copy(old).under_way, waited(Duration::from_secs(policy.drain_seconds.into())));
    if (left == 0 && !routed.is_uncounted()) || now() >= until {
        return Ok(Pass::Done);
    }
    let left = if routed.is_uncounted() { "what is under way".to_owned() } else { format!("{left} requests and connections") };
    let note = format!("all new traffic of {name} goes to its new copy; {left} at the old one may end until {until}");
    Ok(Pass::Waiting { until, note })
}

/// Gives the new copy its share. The same rows are written in each pass; the data path hears of a change only.
async fn weigh(ctx: &Ctx<Relocate>, index: usize, share: u16) -> Result<(), StepError> {
    let moving = &ctx.state.moves[index];
    let mut tx = ctx.environment.transaction(ctx.id, ctx.fence).await?;
    traffic::set(&mut tx, ctx.id, moving.old.id, 100 - share).await?;
    traffic::set(&mut tx, ctx.id, moving.new, share).await?;
    tx.commit().await?;
    ctx.environment.traffic.nudge();
    Ok(())
}

/// Why the traffic is to go back: the new copy fails at more requests than the old one, by more than the budget. A few failures alone
/// say nothing.
fn over_budget(before: (u64, u64), new: CopyTraffic, old: CopyTraffic, budget: u16) -> Option<String> {
    const FEW: u64 = 3;
    // A process of the data path that was started anew counts from 0.
    let (requests, failures) = (new.requests.saturating_sub(before.0), new.failures.saturating_sub(before.1));
    let percent = |failures: u64, requests: u64| failures as f64 * 100.0 / requests.max(1) as f64;
    let (now, usual) = (percent(failures, requests), percent(old.failures, old.requests));
    (failures >= FEW && now > usual + f64::from(budget))
        .then(|| format!("{failures} of {requests} requests to the new copy failed ({now:.1} %); at the old copy {usual:.1} % did"))
}

/// Undo: the old copies get all new requests, and what is under way at the new ones may end. It does not wait for ever: the new copies
/// are removed because they do not serve.
pub(super) async fn give_back(ctx: &mut Ctx<Relocate>) -> StepResult {
    let environment = ctx.environment.clone();
    if ctx.state.moves.iter().all(|moving| moving.shift.is_none()) {
        return Ok(Outcome::next());
    }
    let mut tx = environment.transaction(ctx.id, ctx.fence).await?;
    traffic::clear(&mut tx, ctx.id).await?;
    // Nothing of these is left where they were: their traffic goes back with their pods.
    for moving in ctx.state.moves.iter().filter(|moving| moving.handover.is_some()) {
        traffic::set(&mut tx, ctx.id, moving.old.id, 0).await?;
        traffic::set(&mut tx, ctx.id, moving.new, 100).await?;
    }
    tx.commit().await?;
    environment.traffic.nudge();
    let (mut keys, mut until) = (Vec::new(), None::<Timestamp>);
    for moving in ctx.state.moves.iter_mut().filter(|moving| moving.handover.is_none()) {
        let routed = Routed::read(&environment, moving).await?;
        let (old, new) = (moving.old.id, moving.new);
        let Some(shift) = moving.shift.as_mut().filter(|_| !routed.routes.is_empty()) else { continue };
        let since = *shift.back.get_or_insert_with(now);
        let drain = Duration::from_secs(routed.routes[0].0.spec.shift.drain_seconds.into());
        let back = routed.weighs(new, 0) && routed.weighs(old, 100);
        let limit = if back { drain } else { FOLLOWS.max(drain) };
        let ended = back && now() >= readiness::after(since, SETTLES) && routed.copy(new).under_way == 0 && !routed.is_uncounted();
        if !ended && now() < readiness::after(since, limit) {
            keys.extend(routed.routes.iter().map(|(route, _)| route_key(route.id)));
            let next = readiness::after(now(), CHECK_EVERY);
            until = Some(until.map_or(next, |until| Timestamp(until.0.min(next.0))));
        }
    }
    match until {
        None => Ok(Outcome::next()),
        Some(until) => {
            ctx.progress("traffic goes back to the old copies");
            Ok(Outcome::park(keys).until(until))
        }
    }
}

impl Routed {
    async fn read(environment: &Environment, moving: &MoveProgress) -> Result<Self, StepError> {
        let mut connection = environment.store.acquire().await?;
        let routes = route::of_app(&mut connection, moving.old.dig.id, &moving.old.app).await;
        let routes = routes.map_err(|error| StepError::retry(format!("the routes of an app cannot be read: {error}")))?;
        // A route that is not published, because it leads nowhere, or that nobody carries, is not followed by anybody.
        let traffic = &environment.traffic;
        let carried = routes.into_iter().filter(|route| traffic.is_served(route.spec.target()) && traffic.broken(route.id).is_none());
        let reported = carried.map(|route| {
            let reported = traffic.reported(route.id, route.spec.target());
            (route, reported)
        });
        Ok(Self { routes: reported.collect() })
    }

    /// Of all routes together.
    fn copy(&self, binding: Uuid) -> CopyTraffic {
        let mut sum = CopyTraffic::default();
        for copy in self.routes.iter().map(|(_, reported)| reported.copy(binding)) {
            sum.under_way += copy.under_way;
            sum.requests += copy.requests;
            sum.failures += copy.failures;
        }
        sum
    }

    /// Whether a gateway carries one of them: it does not tell what is under way.
    fn is_uncounted(&self) -> bool {
        self.routes.iter().any(|(route, _)| route.spec.target() == TrafficTarget::Gateway)
    }

    fn weighs(&self, binding: Uuid, weight: u16) -> bool {
        self.routes.iter().all(|(_, reported)| reported.weighs(binding, weight))
    }

    fn silent(&self) -> Vec<String> {
        let mut silent: Vec<String> =
            self.routes.iter().flat_map(|(_, reported)| &reported.missing).map(|url| format!("{url} is silent")).collect();
        silent.dedup();
        silent
    }

    /// What is missing until the copy answers all processes on all routes. Routes that a process cannot serve at all do not count.
    fn not_answering(&self, binding: Uuid, member: &MemberKey) -> Vec<String> {
        let mut missing = self.silent();
        for (route, reported) in &self.routes {
            let served =
                Reported { reports: reported.reports.iter().filter(|report| report.problem.is_none()).cloned().collect(), missing: vec![] };
            let copy = served.copy(binding);
            if served.reports.is_empty() || (copy.answering > 0 && copy.answering == copy.endpoints) {
                continue;
            }
            missing.push(match (copy.endpoints, &route.spec.gateway) {
                (0, _) => format!("no endpoint of the Service {} is known for the route {}", route.spec.service, route.name),
                (_, Some(gateway)) => format!("{gateway} has no backend {}", gateway.backend(&route.spec.service, member)),
                (all, None) => format!("{} of {all} endpoints answer for the route {}", copy.answering, route.name),
            });
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_counts_what_fails_more_often_than_at_the_old_copy() {
        let copy = |requests, failures| CopyTraffic { requests, failures, ..CopyTraffic::default() };
        assert_eq!(over_budget((0, 0), copy(1000, 9), copy(5000, 0), 1), None);
        assert!(over_budget((0, 0), copy(1000, 11), copy(5000, 0), 1).is_some());
        assert_eq!(over_budget((0, 0), copy(1000, 50), copy(1000, 45), 1), None, "the old copy fails as often");
        assert_eq!(over_budget((0, 0), copy(2, 2), copy(0, 0), 1), None, "two requests say nothing");
        assert!(over_budget((900, 0), copy(1000, 3), copy(5000, 0), 1).is_some(), "what was before does not count");
        assert_eq!(over_budget((900, 5), copy(10, 3), copy(10, 0), 100), None, "a process that counts anew");
    }
}
