//! Room for apps that have none yet: a decision of placement, else a plan and the moves that it needs. For a group that is
//! instantiated, and for the apps that are new in an update.
//!
//! A search may take several rounds: when the moves of a plan fail because something changed meanwhile, the next round decides and
//! plans again.

mod ask_first;
mod decide;
mod make_room;
mod other_place;
mod overflow;
mod plan;
mod turn;

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::scheduling::{AppDecision, AppRequest, Decision, DecisionRequest, DigRef, MemberKey, Move, RefusedDestination, WhenFull};
use drover_store::Timestamp;
use drover_workflow::{Ctx, Failure, Outcome, StepError, Workflow};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{After, Delivery, now, readiness, release};
use crate::environment::{Environment, Lease};
use crate::store::binding::{Binding, Role};

pub(super) use decide::{decide, release_decision};
pub(super) use make_room::{make_room, release_made, release_room, room_made};
pub use other_place::stays_with;
pub(super) use other_place::{accepted_elsewhere, has_other_place, moves_make_room};
pub(super) use overflow::{overflow, release_overflow};
pub(super) use plan::{places, plan, plan_order, why_infeasible};
pub(super) use turn::leave as leave_queue;

/// Maximum replans after conflicts.
pub const REPLANS: i32 = 3;
/// Time in which placement hears of all members again after its restart. Until then no app overflows and none is moved.
const RESTART_GRACE: Duration = Duration::from_secs(5);
/// Interval of decisions while clusters are silent.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A workflow that searches for room.
pub trait SeeksRoom: Workflow<Environment = Environment> {
    /// The step that a new round begins with.
    const DECIDE: &'static str;
    /// Whether the objects of the apps are written when they have room. Not if they are there already.
    const WRITES: bool = true;
    /// Borrows what room is needed for and how far the search is.
    fn search<'a>(order: &'a Self::Input, state: &'a mut Self::State) -> Search<'a>;
    /// What a new round starts with, besides what its search keeps.
    fn next_round(_before: Self::State) -> Self::State {
        Self::State::default()
    }
}

/// A search for room, borrowed from the input and the state of its workflow.
pub struct Search<'a> {
    pub dig: &'a DigRef,
    /// Apps that have no room yet. If there are none, every step of the search has nothing to do.
    pub apps: &'a [Delivery],
    /// A plan that a user chose.
    pub chosen: Option<Uuid>,
    pub state: &'a mut SearchState,
}

/// How far a search for room is. The two maps, `refused`, `avoided`, `asked`, `hopes` and `priority` are of all rounds, the rest is of the
/// current one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SearchState {
    /// How many decisions each round repeated because clusters were silent. Undo finds the last decision by it.
    #[serde(default)]
    tries: BTreeMap<i32, u32>,
    /// The same of decisions that allow less preferred members. A round that has no entry has made none.
    #[serde(default)]
    overflow_tries: BTreeMap<i32, u32>,
    #[serde(default)]
    pub(super) placed: Vec<PlacedApp>,
    /// Ledger sequence of the decision that found no room.
    #[serde(default)]
    seq: i64,
    /// An allowed cluster was silent when a decision was asked for.
    #[serde(default)]
    silent: bool,
    /// Why there was no room, for people.
    #[serde(default)]
    reasons: Vec<String>,
    /// The priority with which it waits for its turn to plan, once that is known.
    #[serde(default)]
    priority: Option<u8>,
    /// How many plans each round repeated because an operation that is under way may make room.
    #[serde(default)]
    plan_tries: u32,
    /// When a plan first failed because pods of apps that have left still took room.
    #[serde(default)]
    leftovers_since: Option<Timestamp>,
    /// When a plan first depended on pods that had no nodes yet.
    #[serde(default)]
    starting_since: Option<Timestamp>,
    /// Members that refused an app of the group, or on which its pods found no nodes, of all rounds.
    #[serde(default)]
    pub(super) avoided: Vec<RefusedDestination>,
    /// Members that were asked whether they would accept an app before others were moved for it.
    #[serde(default)]
    asked: Vec<(String, MemberKey)>,
    /// Those of them that may accept it when others have left.
    #[serde(default)]
    hopes: Vec<(String, MemberKey)>,
    /// Apps that must be applied in this order, each when the one before is ready.
    #[serde(default)]
    order: Vec<String>,
    /// Why the last relocation failed, of all rounds: a search that finds no other plan fails with it.
    #[serde(default)]
    refused: Option<Failure>,
    /// The plan that makes room.
    #[serde(default)]
    pub plan: Option<ChosenPlan>,
    /// Other apps are being moved to make room.
    #[serde(default)]
    pub waiting_for_room: bool,
    /// Other apps were moved to make room.
    #[serde(default)]
    pub(super) relocated: bool,
}

impl SearchState {
    /// Adds to the dependencies of apps what the order of application requires. Dependencies that the group declares come first: between
    /// such apps nothing is added.
    pub(super) fn order_application(&self, after: &mut BTreeMap<String, Vec<After>>) {
        if self.order.iter().any(|app| after.get(app).is_some_and(|declared| !declared.is_empty())) {
            return;
        }
        for pair in self.order.windows(2) {
            after.entry(pair[1].clone()).or_default().push(After { app: pair[0].clone(), ready: true, wait_s: 0 });
        }
    }

    /// What was done, and where apps of the group could not run, and why, for people.
    pub(super) fn told(&self, done: &str) -> String {
        let not_there = |RefusedDestination { app, member, reason, .. }: &_| format!("; {app} not on {member}: {reason}");
        done.to_owned() + &self.avoided.iter().map(not_there).collect::<String>()
    }

    /// Whether the decision found no room for `apps`.
    pub fn is_open(&self, apps: &[Delivery]) -> bool {
        !apps.is_empty() && self.placed.is_empty()
    }
}

/// Room of one app at one member. The id of its claim is the id of its binding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PlacedApp {
    app: String,
    member: MemberKey,
    pub(super) binding: Uuid,
}

/// A plan, without what only people read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChosenPlan {
    pub id: Uuid,
    moves: Vec<Move>,
    newcomer: Vec<(String, MemberKey)>,
    /// Claims of victims whose copies must be applied in this order.
    #[serde(default)]
    order: Vec<Uuid>,
    /// The same for the newcomer's apps.
    #[serde(default)]
    newcomer_order: Vec<String>,
}

impl Search<'_> {
    fn requests(&self) -> Vec<AppRequest> {
        self.apps.iter().map(|app| app.request.clone()).collect()
    }

    /// A plan that a user chose is carried out as it is in the first round; there is nothing to decide.
    fn chosen_by_user(&self, round: i32) -> Option<Uuid> {
        self.chosen.filter(|_| round == 1)
    }

    /// Whether an app insists on its best provider.
    fn insists(&self) -> bool {
        self.apps.iter().any(|app| app.request.terms.when_full == WhenFull::Preferred)
    }

    /// The copy of an app that has, or would have, room at a member.
    fn copy(&self, app: &str, member: &MemberKey, id: Uuid, operation: Uuid) -> Result<Binding, StepError> {
        let delivery = self.apps.iter().find(|delivery| delivery.app() == app);
        let delivery =
            delivery.ok_or_else(|| StepError::fail("internal", format!("the decision names the app {app}, which was not asked for")))?;
        Ok(Binding {
            id,
            dig: self.dig.clone(),
            app: app.to_owned(),
            member: member.clone(),
            namespace: delivery.namespace.clone(),
            digest: delivery.digest.clone(),
            request: delivery.request.clone(),
            role: Role::Target,
            operation,
        })
    }

    fn decision_request(&self, operation: Uuid, fence: i64, overflow: bool) -> DecisionRequest {
        DecisionRequest { dig: self.dig.clone(), apps: self.requests(), overflow, refused: self.state.avoided.clone(), operation, fence }
    }
}

fn search<W: SeeksRoom>(ctx: &mut Ctx<W>) -> Search<'_> {
    W::search(&ctx.input, &mut ctx.state)
}

/// The bindings that have room in this round.
pub(super) fn targets<W: SeeksRoom>(ctx: &mut Ctx<W>) -> Result<Vec<Binding>, StepError> {
    let operation = ctx.id;
    let search = search(ctx);
    search.state.placed.iter().map(|placed| search.copy(&placed.app, &placed.member, placed.binding, operation)).collect()
}

/// Asks placement for a decision and its claims. The same name in the same round returns the decision that was made.
async fn ask<W: SeeksRoom>(ctx: &mut Ctx<W>, name: &str, overflow: bool) -> Result<Decision, StepError> {
    let lease = Lease::of(ctx);
    let fence = ctx.environment.first_fence(lease).await?;
    let (operation, id) = (ctx.id, ctx.derived_id(name));
    let request = search(ctx).decision_request(operation, fence, overflow);
    Ok(ctx.environment.services.placement.decide(id, &request).await?)
}

/// Releases what the decision of this name claimed. The request may still be in flight: asking again under the same id makes sure
/// that it is decided before its claims are released.
async fn release_decided<W: SeeksRoom>(ctx: &mut Ctx<W>, name: &str, overflow: bool) -> Result<(), StepError> {
    let decision = ask(ctx, name, overflow).await?;
    let claims: Vec<_> = placed(&decision.apps).into_iter().map(|placed| placed.binding).collect();
    let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
    release::release_unexplained(&ctx.environment, ctx.derived_id(&format!("{name}/release")), ctx.id, fence, &claims).await
}

fn wait_for_clusters<W: SeeksRoom>(ctx: &mut Ctx<W>, pause: Duration) -> Outcome {
    ctx.progress("waiting to hear from the clusters that it may run on");
    Outcome::park::<String>([]).until(readiness::after(now(), pause))
}

fn placed(apps: &[AppDecision]) -> Vec<PlacedApp> {
    let placement = |app: &AppDecision| {
        let name = app.app.clone();
        app.groups
            .iter()
            .filter_map(|group| group.placement.clone())
            .map(move |place| PlacedApp { app: name.clone(), member: place.member, binding: place.binding })
            .collect::<Vec<_>>()
    };
    apps.iter().flat_map(placement).collect()
}

/// Why the apps that were not placed fit nowhere.
fn reasons(decision: &Decision) -> Vec<String> {
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
