//! Builds the [`Plan`] document: every move with its reason, and every other candidate with the reason why it stays.

use uuid::Uuid;

use super::candidates::{Candidates, network_of, no};
use super::context::PlanningContext;
use super::movable::Movable;
use super::outlook::Outlook;
use super::parameters::{move_cost, requested};
use super::problem::{Moves, RoomProblem};
use crate::explanations;
use crate::slot::Slot;
use crate::trial::{Tenant, Trial, total_on};
use crate::work::Effort;
use crate::{
    AppDecision, Candidate, Demand, Dependant, DigRef, Exclusion, GroupDecision, MemberKey, MemberRoom, Move, Placement, Plan, Verdict,
    WhyNot,
};

/// Limit on the alternative destinations of a move.
const ALTERNATIVES: usize = 8;

/// Said of a search that was cut.
pub(crate) const CUT: &str = "before the search reached its limit; a plan may exist (more time: --plan-seconds)";

/// The moves that were found, with the candidates.
pub(crate) struct Found<'w, 'a> {
    candidates: &'w Candidates<'a>,
    moves: Moves<'a>,
}

impl<'w, 'a> Found<'w, 'a> {
    pub fn new(candidates: &'w Candidates<'a>, moves: Moves<'a>) -> Self {
        Self { candidates, moves }
    }
}

/// The plan with these moves.
pub(crate) fn feasible<'a>(
    context: &PlanningContext<'a>,
    case: &RoomProblem<'_, 'a>,
    found: Found<'_, 'a>,
    tried: Vec<WhyNot>,
    effort: &Effort<'_>,
) -> Plan {
    // The moves were found by building the same trial, so it fits.
    let trial = case.build(&found.moves).unwrap_or_default();
    let mut plan = Plan { tried, examined: effort.examined, ..Plan::default() };
    let mut wave = Vec::new();
    for (j, to) in &found.moves {
        let m = &case.movable[*j];
        let frees = requested(m.claim);
        plan.freed.add(&frees, 1);
        plan.cost_s += move_cost(context, m, to);
        if !plan.targets.contains(&m.room.key) {
            plan.targets.push(m.room.key.clone());
        }
        let names_follow = network_of(m.room).is_some_and(|network| network_of(to) == Some(network));
        let services = m.claim.request.demand.services.iter().filter(|_| !names_follow).cloned();
        plan.dependants.extend(services.map(|service| Dependant { claim: m.claim.id, service }));
        wave.push(Move {
            claim: m.claim.id,
            dig: DigRef::clone(&m.claim.dig),
            app: m.claim.request.app.clone(),
            from: m.room.key.clone(),
            to: to.key.clone(),
            alternatives: alternatives(m, to, &trial),
            pods: case.pods(&trial, *j, to),
            frees,
            reason: reason(context, m, to, &trial),
        });
    }
    plan.targets.sort();
    if !wave.is_empty() {
        plan.waves.push(wave);
    }
    plan.newcomer = newcomer(case, &trial, &found.moves);
    plan.scheduling = Some(Outlook::new(case, &found.moves, &trial).describe());
    for slot_home in case.slots.iter().zip(case.homes) {
        if let (slot, Some(home)) = slot_home {
            plan.needed.add(&total_on(&slot.request.demand, home), 1);
        }
    }
    let taken = |j: usize| found.moves.iter().any(|(moved, _)| *moved == j);
    let movable = found.candidates.movable.iter().enumerate().map(|(j, m)| {
        let why_not = (!taken(j)).then(|| match m.has_room() {
            true => no("not_needed", "there is enough room without moving it"),
            false => no_destination(m),
        });
        candidate(m, taken(j), why_not)
    });
    plan.candidates = movable.chain(found.candidates.excluded.iter().cloned()).collect();
    plan
}

/// The candidates for the report that no plan was found.
pub(crate) fn refused(candidates: Candidates<'_>) -> Vec<Candidate> {
    let why_not = |m: &Movable<'_>| match m.best() {
        Some(to) => no("not_enough", format!("it could move to {}, but no plan was found", to.key)),
        None => no_destination(m),
    };
    let movable: Vec<Candidate> = candidates.movable.iter().map(|m| candidate(m, false, Some(why_not(m)))).collect();
    movable.into_iter().chain(candidates.excluded).collect()
}

fn no_destination(m: &Movable<'_>) -> Exclusion {
    let nothing = Trial::default();
    let reasons: Vec<String> =
        m.destinations.iter().take(3).map(|to| format!("{}: {}", to.key, nothing.why_not(to, m.ask()).reason())).collect();
    no("no_destination", format!("no other allowed cluster has room: {}", reasons.join("; ")))
}

/// The candidate in the plan document.
pub(crate) fn candidate(m: &Movable<'_>, taken: bool, why_not: Option<Exclusion>) -> Candidate {
    Candidate {
        claim: m.claim.id,
        dig: DigRef::clone(&m.claim.dig),
        app: m.claim.request.app.clone(),
        member: m.room.key.clone(),
        priority: m.priority,
        scores: m.scores.clone(),
        total: m.total,
        taken,
        why_not,
    }
}

/// Other destinations with room if everything else goes as planned.
fn alternatives<'a>(m: &Movable<'a>, to: &MemberRoom, trial: &Trial<'a>) -> Vec<MemberKey> {
    let others = m.ranked(trial).into_iter().filter(|room| room.key != to.key && room.key != m.room.key);
    others.filter(|room| trial.fit(room, m.ask()).is_some()).take(ALTERNATIVES).map(|room| room.key.clone()).collect()
}

fn reason<'a>(context: &PlanningContext<'a>, m: &Movable<'a>, to: &MemberRoom, trial: &Trial<'a>) -> String {
    let by = match (m.total, m.scores.first()) {
        (Some(total), _) => format!("score {total:.2} by policy {}", context.policy.name),
        (None, Some(score)) => match score.value {
            Some(value) => format!("{} {value:.1} by policy {}", score.algorithm, context.policy.name),
            None => format!("{} unknown, policy {}", score.algorithm, context.policy.name),
        },
        (None, None) => "no policy".into(),
    };
    let best = match m.best() {
        Some(best) if best.key != to.key => format!(" ({} is needed for other apps)", best.key),
        _ => String::new(),
    };
    let calls = m.peers.kept(&to.key, trial).map(|kept| format!(", where {:.0} % of its calls stay", 100.0 * kept)).unwrap_or_default();
    let gap = gap(&m.claim.request.demand, &m.room.key);
    format!("intent priority {}, {by}; to provider priority {}{best}{calls}{gap}", m.priority, to.priority())
}

/// Which of its pods do not serve while they move away from a member.
fn gap(demand: &Demand, from: &MemberKey) -> String {
    if demand.at_most_once {
        return format!("; it must not run twice, so it is stopped on {from} before it starts there and does not serve in between");
    }
    let pods: u32 = demand.stateful.iter().map(|pods| pods.replicas).sum();
    match (pods, demand.stateful.iter().all(|pods| pods.overlaps)) {
        (0, _) => String::new(),
        (1, true) => format!("; its pod starts there before it stops on {from}, because several pods may write its volumes"),
        (pods, true) => format!(
            "; its {pods} pods move one after the other, and each starts there before it stops on {from}, because several may write their volumes"
        ),
        (1, false) => "; its pod stops before it starts there with its volumes, and does not serve in between".to_owned(),
        (pods, false) => format!("; its {pods} pods move one after the other with their volumes, and each does not serve in between"),
    }
}

/// The places of the newcomer's apps. Ids of bindings are assigned when the plan is applied, so they are nil here.
fn newcomer<'a>(case: &RoomProblem<'_, 'a>, trial: &Trial<'a>, moves: &[(usize, &'a MemberRoom)]) -> Vec<AppDecision> {
    let mut apps: Vec<AppDecision> = Vec::new();
    for (i, (slot, home)) in case.slots.iter().zip(case.homes).enumerate() {
        let Some(home) = home else { continue };
        let group = group(
            case,
            slot,
            home,
            Placement { binding: Uuid::nil(), member: home.key.clone(), pods: trial.pods(home, Tenant::New(i)) },
            moves,
        );
        match apps.iter_mut().find(|a| a.app == slot.request.app) {
            Some(app) => app.groups.push(group),
            None => apps.push(AppDecision { app: slot.request.app.clone(), groups: vec![group] }),
        }
    }
    apps
}

fn group<'a>(
    case: &RoomProblem<'_, 'a>,
    slot: &Slot<'a>,
    home: &'a MemberRoom,
    placement: Placement,
    moves: &[(usize, &'a MemberRoom)],
) -> GroupDecision {
    let judged = explanations::judge(slot, 0, &mut Trial::default(), Some(Some(home)));
    let leaving = moves.iter().filter(|(j, _)| case.movable[*j].room.key == home.key).count();
    let mut considered = judged.considered;
    for entry in considered.iter_mut().filter(|c| c.member == home.key && (leaving > 0 || c.verdict != Verdict::Chosen)) {
        entry.verdict = Verdict::Chosen;
        entry.reason = match leaving {
            0 => format!("provider priority {}; there is room", home.priority()),
            1 => format!("provider priority {}; room is made: 1 app moves away", home.priority()),
            n => format!("provider priority {}; room is made: {n} apps move away", home.priority()),
        };
        entry.share = None;
    }
    GroupDecision { placement: Some(placement), considered, more: judged.more }
}
