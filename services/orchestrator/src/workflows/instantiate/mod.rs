//! Instantiating a deployment intent group: room, then objects, then the state. All apps or none.
//!
//! The handler took the group's hold and counted its revision in the transaction that started the workflow. A hold is valid only
//! while its workflow runs, so an early end needs no release.

mod objects;

use drover_api::scheduling::DigRef;
use drover_workflow::{Step, Steps, Workflow};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::apply::ApplyProgress;
use super::remove::{self, Removal, RemovesCopies};
use super::room::{self, Search, SearchState, SeeksRoom};
use super::{Delivery, MIGRATION, PLACEMENT, SYNCHRONIZER};
use crate::environment::Environment;

/// What to instantiate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub dig: DigRef,
    /// Revision that the group gets.
    pub revision: i64,
    pub apps: Vec<Delivery>,
    /// A plan that a user chose. Without one, a plan is made if it is needed.
    #[serde(default)]
    pub plan: Option<Uuid>,
    /// What has changed since the dry run whose basis was sent.
    #[serde(default)]
    pub changed: Vec<String>,
}

/// The state of an instantiation in its current round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct InstantiateState {
    #[serde(default)]
    pub search: SearchState,
    #[serde(default)]
    progress: ApplyProgress,
    /// Why the apps must be placed again.
    #[serde(default)]
    lost: Option<String>,
    /// Pods of the group found no nodes, and there is no other place: they wait as long as the app may take to become ready.
    #[serde(default)]
    stays: bool,
    #[serde(default)]
    removal: Removal,
}

impl SeeksRoom for Instantiate {
    const DECIDE: &'static str = "decide";
    fn search<'a>(order: &'a Order, state: &'a mut InstantiateState) -> Search<'a> {
        Search { dig: &order.dig, apps: &order.apps, chosen: order.plan, state: &mut state.search }
    }
    fn next_round(before: InstantiateState) -> InstantiateState {
        InstantiateState { removal: before.removal.for_next_round(), ..InstantiateState::default() }
    }
}

impl RemovesCopies for Instantiate {
    fn removal(state: &mut InstantiateState) -> &mut Removal {
        &mut state.removal
    }
}

/// The workflow that instantiates a group.
pub struct Instantiate;

impl Workflow for Instantiate {
    const KIND: &'static str = "instantiate";
    const VERSION: i32 = 2;
    type Environment = Environment;
    type Input = Order;
    type State = InstantiateState;

    fn subject(order: &Order) -> String {
        super::subject(&order.dig)
    }

    fn steps() -> Steps<Self> {
        Steps::new()
            // Room first: nothing is written anywhere for a group that does not fit. One decision for all apps claims their room in
            // the same transaction, so that two newcomers never get the same room.
            .step(Step::remote("decide", room::decide).at(PLACEMENT).undo(room::release_decision))
            // Without room: which apps would have to move? A plan claims nothing; `make_room` does.
            .step(
                Step::remote("plan", room::plan)
                    .at(MIGRATION)
                    .when(|order: &Order, state: &InstantiateState| state.search.is_open(&order.apps)),
            )
            // Apps with `whenFull: preferred` insist on the best provider until here, where there is no plan either.
            .step(
                Step::remote("overflow", room::overflow)
                    .at(PLACEMENT)
                    .when(|order: &Order, state: &InstantiateState| state.search.is_open(&order.apps))
                    .undo(room::release_overflow),
            )
            // The moves are a workflow with a pivot of its own: apps that were moved stay where they are even if this workflow is
            // undone. It ends when the claims of the new apps are held.
            .step(
                Step::children("make_room", room::make_room, room::room_made)
                    .when(|_, state: &InstantiateState| state.search.plan.is_some())
                    .undo(room::release_room)
                    .undo_at(PLACEMENT),
            )
            // From here on a row explains every claim. Undo of this step removes everything from the members.
            .step(Step::local("bind", objects::bind).undo(remove::take_away).undo_at(SYNCHRONIZER))
            .step(Step::wait("deliver", objects::deliver).at(SYNCHRONIZER))
            // Pods found no nodes, because others took the room or the scheduler spread the pods in another way: remove these copies
            // and look for room again.
            .step(Step::wait("replan", objects::replan).at(SYNCHRONIZER).when(|_, state: &InstantiateState| state.lost.is_some()))
            .pivot(Step::local("become_current", objects::become_current))
    }
}
