//! Instantiating a deployment intent group: room, then objects, then the state. All apps or none.
//!
//! The handler has taken the group's hold and counted its revision in the transaction that started this; a hold counts only
//! as long as its workflow runs, so nothing has to be given back when it ends early.

mod objects;

use drover_api::scheduling::DigRef;
use drover_workflow::{Step, Steps, Workflow};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::bring::Progress;
use super::remove::Removal;
use super::room::{self, Search, Seeks};
use super::{Delivery, MIGRATION, PLACEMENT, SYNCHRONIZER};
use crate::environment::Environment;

/// What to instantiate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The group.
    pub dig: DigRef,
    /// Revision that this makes.
    pub revision: i64,
    /// Its apps.
    pub apps: Vec<Delivery>,
    /// A plan that a user chose; none: one is made if it is needed.
    #[serde(default)]
    pub plan: Option<Uuid>,
}

/// What its steps know together, of the current round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// How far the search for room is.
    #[serde(default)]
    pub search: Search,
    #[serde(default)]
    progress: Progress,
    /// Somebody took the room.
    #[serde(default)]
    lost: Option<String>,
    #[serde(default)]
    removal: Removal,
    /// Bindings that were left behind, for people.
    #[serde(default)]
    pub leftovers: Vec<String>,
}

impl Seeks for Instantiate {
    const DECIDE: &'static str = "decide";
    fn dig(order: &Order) -> &DigRef {
        &order.dig
    }
    fn apps(order: &Order) -> &[Delivery] {
        &order.apps
    }
    fn chosen(order: &Order) -> Option<Uuid> {
        order.plan
    }
    fn search(state: &mut State) -> &mut Search {
        &mut state.search
    }
    fn round(search: Search) -> State {
        State { search, ..State::default() }
    }
}

/// The workflow.
pub struct Instantiate;

impl Workflow for Instantiate {
    const KIND: &'static str = "instantiate";
    const VERSION: i32 = 2;
    type World = Environment;
    type Input = Order;
    type State = State;

    fn subject(order: &Order) -> String {
        super::subject(&order.dig)
    }

    fn steps() -> Steps<Self> {
        Steps::new()
            // Room first: nothing is written anywhere for a group that does not fit. All apps are decided in one decision,
            // which claims the room in the same transaction, so that two newcomers never get the same.
            .step(Step::remote("decide", room::decide).at(PLACEMENT).undo(room::give_back_decision))
            // It does not fit: who would have to move? A plan claims nothing; `make_room` does.
            .step(Step::remote("plan", room::plan).at(MIGRATION).when(|order: &Order, state: &State| state.search.is_open(&order.apps)))
            // `whenFull: preferred` has insisted on the best provider so far. Only now, without a feasible plan, others do.
            .step(Step::remote("overflow", room::overflow).at(PLACEMENT).undo(room::give_back_overflow))
            // The moves are a workflow of their own with its own pivot: once others have moved for us, they stay where they
            // are, whatever becomes of us. It ends when our apps' claims are held.
            .step(
                Step::children("make_room", room::start_moving, room::moved)
                    .when(|_, state: &State| state.search.plan.is_some())
                    .undo(room::give_back_room)
                    .undo_at(PLACEMENT),
            )
            // From here on a row explains every claim; the undo of this step is the undo of everything in the members.
            .step(Step::local("bind", objects::bind).undo(objects::take_away).undo_at(SYNCHRONIZER))
            .step(Step::wait("deliver", objects::deliver).at(SYNCHRONIZER))
            // Somebody else in the member has taken the room that was made: give up these copies and plan anew.
            .step(Step::wait("replan", objects::replan).at(SYNCHRONIZER).when(|_, state: &State| state.lost.is_some()))
            .pivot(Step::local("become_current", objects::become_current))
    }
}
