//! Relocation: victims get new copies elsewhere, and only when all of these serve, the old ones go. Make before break.
//!
//! A plan holds no room. What it assumed is checked in one place, the ledger transaction of `claim`; whatever differs is said
//! and nothing is written. One wave: all victims are prepared together and cut over together (plans of several waves are
//! refused before they get here). For a newcomer this is the child of its `instantiate`, and ends when the newcomer's claims
//! are held; a drain has no newcomer.

mod cut;
mod prepare;
mod replace;
mod start;

use drover_api::scheduling::{AppRequest, DigRef, MemberKey, Move};
use drover_store::Timestamp;
use drover_workflow::{Step, Steps, Workflow};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::judge::Sent;
use super::remove::Removal;
use super::{MIGRATION, PLACEMENT, SYNCHRONIZER};
use crate::environment::Environment;
use crate::store::binding::Binding;

/// Who moves, and for whom.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The plan that says so.
    pub plan: Uuid,
    /// For people: the newcomer, or the cluster to be emptied.
    pub subject: String,
    /// The moves.
    pub moves: Vec<Move>,
    /// Whom room is made for; its group is held by the parent.
    #[serde(default)]
    pub newcomer: Option<Newcomer>,
}

/// Whom room is made for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Newcomer {
    /// Its group.
    pub dig: DigRef,
    /// Its apps.
    pub apps: Vec<AppRequest>,
    /// Where they go.
    pub places: Vec<(String, MemberKey)>,
}

/// The binding of an app at a member that an operation makes room for.
pub fn binding_id(operation: Uuid, app: &str, member: &MemberKey) -> Uuid {
    Uuid::new_v5(&operation, format!("{app}/{member}").as_bytes())
}

/// What its steps know together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// The moves, in the plan's order.
    #[serde(default)]
    pub moves: Vec<Moving>,
    /// How often the newcomer was asked to be admitted.
    #[serde(default)]
    admit_tries: u32,
    #[serde(default)]
    removal: Removal,
    /// Old or new copies that were left behind, for people.
    #[serde(default)]
    pub leftovers: Vec<String>,
}

/// One move.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Moving {
    /// The old copy.
    pub old: Binding,
    /// The new copy.
    pub new: Uuid,
    /// Where to.
    pub to: MemberKey,
    /// Where else, if that does not do.
    pub others: Vec<MemberKey>,
    /// How far it is.
    pub stage: Stage,
    /// Since when.
    pub since: Timestamp,
    /// When it ended.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// The destinations that were given up, each with the reason, in order.
    #[serde(default)]
    pub refusals: Vec<String>,
    /// The destination that replaces `to`, to be claimed by the next pass of `prepare`.
    #[serde(default)]
    next: Option<MemberKey>,
    /// What the synchronizer was told of the new copy.
    #[serde(default)]
    sent: Option<Sent>,
}

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Room at the destination is held.
    Claimed,
    /// The new copy is being applied.
    Starting,
    /// The new copy serves.
    Ready,
    /// The new copy is the one that counts.
    CutOver,
    /// The old copy is going.
    Removing,
    /// The old copy is gone.
    Done,
    /// Taken back: as before.
    Undone,
}

impl Stage {
    /// As operations show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::CutOver => "cut_over",
            Self::Removing => "removing",
            Self::Done => "done",
            Self::Undone => "undone",
        }
    }
}

impl Moving {
    /// For people.
    fn name(&self) -> String {
        format!("{}/{}", self.old.dig.composite_app, self.old.app)
    }

    fn reach(&mut self, stage: Stage) {
        self.stage = stage;
        if matches!(stage, Stage::Done | Stage::Undone) {
            self.ended.get_or_insert_with(super::now);
        }
    }
}

/// The workflow.
pub struct Relocate;

impl Workflow for Relocate {
    const KIND: &'static str = "relocate";
    const VERSION: i32 = 1;
    type World = Environment;
    type Input = Order;
    type State = State;

    fn subject(order: &Order) -> String {
        order.subject.clone()
    }

    fn steps() -> Steps<Self> {
        Steps::new()
            // One writer per group, before anything is looked at: what is read from here on does not change under us. All
            // victims' groups or none; a busy one fails the move and the parent plans anew without it.
            .step(Step::local("hold_victims", start::hold_victims))
            // proposed -> accepted, compare-and-swap: no plan is ever carried out twice, not even by two operations at once.
            .step(Step::remote("accept_plan", start::accept_plan).at(MIGRATION))
            // Are the victims as the plan saw them, do the destinations fit, will the newcomer fit when they have gone? In one
            // transaction with the claims themselves, so that nobody slips in between the answer and the deed.
            .step(Step::remote("claim", start::claim).at(PLACEMENT).undo(start::give_back))
            // A row for each new copy, before the first word to a member: whatever is there is explained by a row.
            .step(Step::local("bind", prepare::bind).undo(prepare::take_away).undo_at(SYNCHRONIZER))
            // All victims at once. Nothing of the old copies is touched before every new one serves. A destination that does
            // not do is replaced by the next one; when a victim has none left, the whole wave is undone.
            .step(Step::wait("prepare", prepare::prepare).at(SYNCHRONIZER))
            // Users' traffic moves here, between Ready and the pivot; so far members' Services do that by themselves.
            .step(Step::wait("shift_traffic", prepare::shift_traffic).at(SYNCHRONIZER))
            // The whole wave in one transaction: before it undo means removing new copies, after it there is no way back.
            .pivot(Step::local("cut_over", cut::cut_over))
            .step(Step::remote("remove_old", cut::remove_old).at(SYNCHRONIZER))
            // An old copy keeps its room until it is gone: the newcomer must not be admitted on room that is still used.
            .step(Step::wait("old_gone", cut::old_gone).at(SYNCHRONIZER))
            // promised -> held, as soon as it fits now. Somebody else in the member may have taken the room: then the newcomer
            // gives up its claims and the parent plans anew. The moves stand.
            .step(Step::wait("admit", cut::admit).at(PLACEMENT))
            .finally(Step::local("drop_holds", cut::drop_holds))
    }
}
