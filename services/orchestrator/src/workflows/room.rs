//! Room for apps that have none yet: a decision, else a plan and those who move for it. For a group that is instantiated, and
//! for the apps that are new in an update.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_api::plans::{PlanDocument, PlanOrder, PlanState, PlanSubject};
use drover_api::scheduling::{
    AppDecision, AppRequest, Decision, DecisionRequest, DigRef, MemberKey, Move, Outcome as Decided, PlanKind, WhenFull,
};
use drover_workflow::{Child, Ctx, Failure, Outcome, StepError, StepResult, Workflow};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use super::relocate::{self, Newcomer, Relocate};
use super::{Delivery, judge, now, release};
use crate::environment::Environment;
use crate::store::binding::{Binding, Role};
use crate::store::hold;

/// How often a plan is made anew because the world was faster.
pub const REPLANS: i32 = 3;
/// For placement to hear of all members anew after it was restarted: nobody overflows or makes others move because of that.
const HEARD: Duration = Duration::from_secs(5);
/// How often somebody who waits to hear of clusters looks again.
const LOOK: Duration = Duration::from_secs(1);

/// A workflow that looks for room.
pub trait Seeks: Workflow<World = Environment> {
    /// The step that a new round begins with.
    const DECIDE: &'static str;
    /// The group.
    fn dig(order: &Self::Input) -> &DigRef;
    /// Apps that have no room yet; none: every step here has nothing to do.
    fn apps(order: &Self::Input) -> &[Delivery];
    /// A plan that a user chose.
    fn chosen(order: &Self::Input) -> Option<Uuid>;
    /// How far the search is.
    fn search(state: &mut Self::State) -> &mut Search;
    /// The state that a round begins with.
    fn round(search: Search) -> Self::State;
}

/// How far a search for room is. Everything but `tries` is of the current round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Search {
    /// How often a decision was asked for in each round because nothing was known.
    #[serde(default)]
    tries: BTreeMap<i32, u32>,
    /// The same of less preferred members.
    #[serde(default)]
    overflows: u32,
    /// Where each app has its room.
    #[serde(default)]
    pub(super) placed: Vec<Placed>,
    /// Ledger sequence of the decision that found no room.
    #[serde(default)]
    seq: i64,
    /// Somebody it may run on stayed silent when it was asked.
    #[serde(default)]
    silent: bool,
    /// Why there was none, for people.
    #[serde(default)]
    reasons: Vec<String>,
    /// The plan that makes room.
    #[serde(default)]
    pub plan: Option<Chosen>,
    /// Others are moving away for it.
    #[serde(default)]
    pub waiting_for_room: bool,
    /// Others have moved away for it.
    #[serde(default)]
    pub(super) relocated: bool,
}

impl Search {
    /// Apps that the decision has found no room for.
    pub fn is_open(&self, apps: &[Delivery]) -> bool {
        !apps.is_empty() && self.placed.is_empty()
    }
}

/// Room of one app at one member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Placed {
    app: String,
    member: MemberKey,
    pub(super) binding: Uuid,
}

/// A plan, without what only people read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Chosen {
    /// Its id.
    pub id: Uuid,
    moves: Vec<Move>,
    newcomer: Vec<(String, MemberKey)>,
}

fn requests<W: Seeks>(ctx: &Ctx<W>) -> Vec<AppRequest> {
    W::apps(&ctx.input).iter().map(|app| app.request.clone()).collect()
}

/// A plan that a user chose is carried out as it is in the first round; there is nothing to decide.
fn by_user<W: Seeks>(ctx: &Ctx<W>) -> Option<Uuid> {
    W::chosen(&ctx.input).filter(|_| ctx.round == 1)
}

/// The bindings that have room in this round.
pub(super) fn targets<W: Seeks>(ctx: &mut Ctx<W>) -> Result<Vec<Binding>, StepError> {
    let target = |placed: &Placed| {
        let app = W::apps(&ctx.input)
            .iter()
            .find(|app| app.app() == placed.app)
            .ok_or_else(|| StepError::fail("internal", format!("the decision speaks of {}, which nobody asked for", placed.app)))?;
        Ok(Binding {
            id: placed.binding,
            dig: W::dig(&ctx.input).clone(),
            app: placed.app.clone(),
            member: placed.member.clone(),
            namespace: app.namespace.clone(),
            digest: app.digest.clone(),
            request: app.request.clone(),
            role: Role::Target,
            operation: ctx.id,
        })
    };
    W::search(&mut ctx.state).placed.iter().map(target).collect()
}

pub(super) async fn decide<W: Seeks>(ctx: &mut Ctx<W>) -> StepResult {
    let tries = std::mem::take(&mut W::search(&mut ctx.state).tries);
    let name = decision_name(tries.get(&ctx.round).copied().unwrap_or_default());
    ctx.state = W::round(Search { tries, ..Search::default() });
    if W::apps(&ctx.input).is_empty() || by_user(ctx).is_some() {
        return Ok(Outcome::next());
    }
    ctx.progress("looking for room");
    let decision = ask(ctx, &name, false).await?;
    match decision.outcome {
        Decided::Placed => {
            W::search(&mut ctx.state).placed = placed(&decision.apps);
            Outcome::output(decision.id)
        }
        // Unknown is not "no room": wait for the member rather than reject. Each look is a decision of its own. Nobody waits for
        // long for a cluster that stays silent while others have room or can be given some.
        Decided::Unknown if ctx.waited() < ctx.world.deadlines.room && (ctx.waited() < HEARD || !others_do(ctx, decision.seq).await?) => {
            *W::search(&mut ctx.state).tries.entry(ctx.round).or_default() += 1;
            let next = if ctx.waited() < HEARD { LOOK } else { HEARD };
            Ok(wait_to_hear(ctx, next))
        }
        // Whoever stays silent takes no part; there may be a plan for the others, or room at less preferred ones.
        Decided::NoRoom | Decided::Unknown => {
            let search = W::search(&mut ctx.state);
            search.seq = decision.seq;
            search.silent = decision.outcome == Decided::Unknown;
            search.reasons = reasons(&decision);
            Outcome::output(decision.id)
        }
        Decided::Impossible => Err(StepError::fail("unknown_cluster", "an app may run nowhere").reasons(reasons(&decision))),
    }
}

fn wait_to_hear<W: Seeks>(ctx: &mut Ctx<W>, next: Duration) -> Outcome {
    ctx.progress("waiting to hear from the clusters that it may run on");
    Outcome::park::<String>([]).until(judge::after(now(), next))
}

/// Whether the clusters that answer will do: an app that insists on its best provider would have room at less preferred members,
/// or others can make room.
async fn others_do<W: Seeks>(ctx: &Ctx<W>, seq: i64) -> Result<bool, StepError> {
    if insists(ctx) {
        let request =
            DecisionRequest { dig: W::dig(&ctx.input).clone(), apps: requests(ctx), overflow: true, operation: ctx.id, fence: ctx.fence };
        if ctx.world.services.placement.decide_dry(&request).await?.outcome == Decided::Placed {
            return Ok(true);
        }
    }
    let order = PlanOrder { dry_run: true, ..plan_order(ctx, seq).await? };
    // Without migration nobody moves.
    Ok(ctx.world.services.migration.plan(ctx.derived_id("plan/dry"), &order).await.is_ok_and(|document| document.plan.is_some()))
}

/// A plan for the group on a ledger that knows of decision `seq`.
async fn plan_order<W: Seeks>(ctx: &Ctx<W>, seq: i64) -> Result<PlanOrder, StepError> {
    let kind = PlanKind::Newcomer { dig: W::dig(&ctx.input).clone(), apps: requests(ctx) };
    let excluded = hold::busy(&mut *ctx.world.store.pool().acquire().await?).await?;
    Ok(PlanOrder { kind, excluded, dry_run: false, patient: false, after_seq: Some(seq) })
}

fn decision_name(tries: u32) -> String {
    format!("decision/{tries}")
}

fn overflow_name(tries: u32) -> String {
    format!("overflow/{tries}")
}

async fn ask<W: Seeks>(ctx: &Ctx<W>, name: &str, overflow: bool) -> Result<Decision, StepError> {
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let request = DecisionRequest { dig: W::dig(&ctx.input).clone(), apps: requests(ctx), overflow, operation: ctx.id, fence };
    Ok(ctx.world.services.placement.decide(ctx.derived_id(name), &request).await?)
}

fn placed(apps: &[AppDecision]) -> Vec<Placed> {
    let placement = |app: &AppDecision| {
        let name = app.app.clone();
        app.groups
            .iter()
            .filter_map(|group| group.placement.clone())
            .map(move |place| Placed { app: name.clone(), member: place.member, binding: place.binding })
            .collect::<Vec<_>>()
    };
    apps.iter().flat_map(placement).collect()
}

/// Why an app that was not placed fits nowhere.
pub fn reasons(decision: &Decision) -> Vec<String> {
    let of_app = |app: &AppDecision| {
        let name = app.app.clone();
        app.groups
            .iter()
            .filter(|group| group.placement.is_none())
            .flat_map(|group| group.considered.clone())
            .map(move |considered| format!("{name}: {}: {}", considered.member, considered.reason))
            .collect::<Vec<_>>()
    };
    decision.apps.iter().flat_map(of_app).collect()
}

/// The decision may still be on its way: asking again under the same id settles that it is made, then its claims go.
pub(super) async fn give_back_decision<W: Seeks>(ctx: &mut Ctx<W>) -> StepResult {
    if W::apps(&ctx.input).is_empty() || by_user(ctx).is_some() {
        return Ok(Outcome::next());
    }
    let tries = W::search(&mut ctx.state).tries.get(&ctx.round).copied().unwrap_or_default();
    give_back(ctx, &decision_name(tries), false).await
}

async fn give_back<W: Seeks>(ctx: &mut Ctx<W>, name: &str, overflow: bool) -> StepResult {
    let decision = ask(ctx, name, overflow).await?;
    let claims: Vec<_> = placed(&decision.apps).into_iter().map(|placed| placed.binding).collect();
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    release::release_unexplained(&ctx.world, ctx.derived_id(&format!("{name}/release")), ctx.id, fence, &claims).await?;
    Ok(Outcome::next())
}

pub(super) async fn plan<W: Seeks>(ctx: &mut Ctx<W>) -> StepResult {
    ctx.progress("nothing has room; looking for others that may move");
    let document = match by_user(ctx) {
        Some(id) => chosen_by_user(ctx, id).await?,
        None => {
            let (seq, silent) = (W::search(&mut ctx.state).seq, W::search(&mut ctx.state).silent);
            // Who is heard of too late has been waited for already. That there is no plan is final, so it takes full knowledge.
            let patient = !silent && ctx.waited() < ctx.world.deadlines.room;
            let order = PlanOrder { patient, ..plan_order(ctx, seq).await? };
            match ctx.world.services.migration.plan(ctx.derived_id("plan"), &order).await {
                Err(error) if patient && error.code() == Some("capacity_unknown") => return Ok(wait_to_hear(ctx, LOOK)),
                planned => planned?,
            }
        }
    };
    if let Some(plan) = &document.plan {
        let planned: BTreeSet<&str> = plan.newcomer.iter().map(|app| app.app.as_str()).collect();
        if planned != W::apps(&ctx.input).iter().map(|delivery| delivery.app()).collect() {
            return Err(StepError::fail("world_changed", "the plan was made for other apps than are approved now"));
        }
        if plan.waves.len() > 1 {
            return Err(StepError::fail("not_yet", "plans of several waves are carried out by a later version"));
        }
        let newcomer = plan.newcomer.iter().flat_map(|app| app.groups.iter().map(|group| (app.app.clone(), group.placement.clone())));
        W::search(&mut ctx.state).plan = Some(Chosen {
            id: document.id,
            moves: plan.waves.iter().flatten().cloned().collect(),
            newcomer: newcomer.filter_map(|(app, place)| Some((app, place?.member))).collect(),
        });
    } else if let Some(infeasible) = &document.infeasible {
        let members = infeasible.members.iter().map(|why| format!("{}: {}", why.member, why.reason));
        let candidates = infeasible.candidates.iter().filter_map(|candidate| {
            candidate
                .why_not
                .as_ref()
                .map(|why| format!("{}/{} on {}: {}", candidate.dig.name, candidate.app, candidate.member, why.detail))
        });
        let search = W::search(&mut ctx.state);
        search.reasons.extend(members.chain(candidates));
        search.silent |= !infeasible.awaited.is_empty();
    }
    Outcome::output(document.id)
}

async fn chosen_by_user<W: Seeks>(ctx: &Ctx<W>, id: Uuid) -> Result<PlanDocument, StepError> {
    let document =
        ctx.world.services.migration.plan_read(id).await?.ok_or_else(|| StepError::fail("not_found", format!("there is no plan {id}")))?;
    match (&document.kind, document.state) {
        (PlanSubject::Newcomer(dig), PlanState::Proposed) if dig.id == W::dig(&ctx.input).id => Ok(document),
        (_, PlanState::Proposed) => {
            Err(StepError::fail("plan_not_proposed", format!("the plan {id} is not for this deployment intent group")))
        }
        (_, state) => Err(StepError::fail("plan_not_proposed", format!("the plan {id} is {state:?}").to_lowercase())),
    }
}

/// Whether an app insists on its best provider.
fn insists<W: Seeks>(ctx: &Ctx<W>) -> bool {
    W::apps(&ctx.input).iter().any(|app| app.request.terms.when_full == WhenFull::Preferred)
}

pub(super) async fn overflow<W: Seeks>(ctx: &mut Ctx<W>) -> StepResult {
    let search = W::search(&mut ctx.state);
    if !search.placed.is_empty() || search.plan.is_some() || W::apps(&ctx.input).is_empty() {
        return Ok(Outcome::next());
    }
    let (tries, silent) = (search.overflows, search.silent);
    if insists(ctx) {
        let decision = ask(ctx, &overflow_name(tries), true).await?;
        if decision.outcome == Decided::Unknown && !silent && ctx.waited() < ctx.world.deadlines.room {
            W::search(&mut ctx.state).overflows += 1;
            return Ok(wait_to_hear(ctx, LOOK));
        }
        if decision.outcome == Decided::Placed {
            W::search(&mut ctx.state).placed = placed(&decision.apps);
            return Outcome::output(decision.id);
        }
        W::search(&mut ctx.state).reasons.extend(reasons(&decision));
        W::search(&mut ctx.state).silent |= decision.outcome == Decided::Unknown;
    }
    let search = W::search(&mut ctx.state);
    let mut said = BTreeSet::new();
    let reasons = std::mem::take(&mut search.reasons).into_iter().filter(|reason| said.insert(reason.clone())).collect::<Vec<_>>();
    let (code, words) = match search.silent {
        true => ("capacity_unknown", "the clusters that answer have no room and no plan makes any; of others nothing is known"),
        false => ("plan_infeasible", "no allowed cluster has room, and no plan makes any"),
    };
    Err(StepError::fail(code, words).reasons(reasons))
}

pub(super) async fn give_back_overflow<W: Seeks>(ctx: &mut Ctx<W>) -> StepResult {
    if W::search(&mut ctx.state).plan.is_some() || !insists(ctx) {
        return Ok(Outcome::next());
    }
    let tries = W::search(&mut ctx.state).overflows;
    give_back(ctx, &overflow_name(tries), true).await
}

pub(super) async fn start_moving<W: Seeks>(ctx: &mut Ctx<W>, _: &mut PgConnection) -> Result<Vec<Child>, StepError> {
    let search = W::search(&mut ctx.state);
    let Some(plan) = search.plan.clone().filter(|_| search.placed.is_empty()) else { return Ok(Vec::new()) };
    search.waiting_for_room = true;
    ctx.progress(format!("waiting for room: {} to move", plan.moves.len()));
    let id = ctx.derived_id("relocate");
    let newcomer = Newcomer { dig: W::dig(&ctx.input).clone(), apps: requests(ctx), places: plan.newcomer.clone() };
    W::search(&mut ctx.state).placed = newcomer
        .places
        .iter()
        .map(|(app, member)| Placed { app: app.clone(), member: member.clone(), binding: relocate::binding_id(id, app, member) })
        .collect();
    let order = relocate::Order { plan: plan.id, subject: super::subject(W::dig(&ctx.input)), moves: plan.moves, newcomer: Some(newcomer) };
    Ok(vec![Child::new::<Relocate>(id, &order)?])
}

pub(super) async fn moved<W: Seeks>(ctx: &mut Ctx<W>, _: &mut PgConnection) -> StepResult {
    W::search(&mut ctx.state).waiting_for_room = false;
    let Some(child) = ctx.children.first() else { return Ok(Outcome::next()) };
    if child.done {
        W::search(&mut ctx.state).relocated = true;
        return Ok(Outcome::next());
    }
    let failure = child.failure.clone().unwrap_or_else(|| Failure {
        code: "internal".into(),
        message: "the move ended without a word".into(),
        reasons: vec![],
    });
    let by_user = by_user(ctx).is_some();
    let anew = match failure.code.as_str() {
        "room_lost" => true,
        // A plan that a user chose is carried out as it is or not at all.
        "victim_busy" | "world_changed" | "plan_not_proposed" => !by_user,
        _ => false,
    };
    if anew && ctx.round <= REPLANS {
        ctx.progress(format!("planning anew: {}", failure.message));
        return Ok(Outcome::Repeat(W::DECIDE));
    }
    Err(StepError::Fail(failure))
}

/// What the child claimed for us is ours to give back; if it failed it has done so itself.
pub(super) async fn give_back_room<W: Seeks>(ctx: &mut Ctx<W>) -> StepResult {
    let child = ctx.derived_id("relocate");
    let claims = ctx.world.services.placement.claims_of(child).await?;
    let ours: Vec<_> = claims.iter().filter(|claim| claim.dig.id == W::dig(&ctx.input).id).map(|claim| claim.id).collect();
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    release::release_unexplained(&ctx.world, ctx.derived_id("room/release"), ctx.id, fence, &ours).await?;
    Ok(Outcome::next())
}
