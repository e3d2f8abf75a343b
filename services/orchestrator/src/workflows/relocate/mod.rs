//! Relocation: victims get new copies on other members, and only when all of these are ready the old copies are removed (make
//! before break). Only apps that must not run twice break before they make ([`once`]), and
//! the pods of apps with volumes move one after the other ([`stateful`]).
//!
//! A plan claims no room. Its assumptions are checked in one place, the ledger transaction of `claim`; if one no longer holds, the
//! relocation fails with the differences and nothing is written. A relocation is one wave: all victims are prepared together and cut
//! over together ([`single_wave`]). For a newcomer the relocation is a child of `instantiate` or `update` and ends when the
//! newcomer's claims are held; a drain has no newcomer.

mod cut;
mod once;
mod prepare;
mod replace;
mod scaled;
mod shift;
mod start;
mod stateful;

use drover_api::scheduling::{AppRequest, DigRef, MemberKey, Move, Plan};
use drover_store::Timestamp;
use drover_workflow::{Step, Steps, Workflow};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::readiness::Sent;
use super::remove::{Removal, RemovesCopies};
use super::{MIGRATION, PLACEMENT, SYNCHRONIZER};
use crate::environment::Environment;
use crate::store::binding::{Binding, Role};

/// The input of a relocation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The plan that is carried out.
    pub plan: Uuid,
    /// The newcomer or the cluster to be drained, for people.
    pub subject: String,
    pub moves: Vec<Move>,
    /// Claims of victims whose new copies must be applied in this order, each when the one before is ready.
    #[serde(default)]
    pub order: Vec<Uuid>,
    /// The app for which room is made. The parent holds its group.
    #[serde(default)]
    pub newcomer: Option<Newcomer>,
}

/// The apps for which room is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Newcomer {
    pub dig: DigRef,
    pub apps: Vec<AppRequest>,
    /// The member of each app.
    pub places: Vec<(String, MemberKey)>,
    /// The operation that brings it; its turn to plan ends when the room is claimed.
    #[serde(default)]
    pub operation: Uuid,
}

/// Id of the binding, and of the claim, that an operation makes for an app at a member.
pub fn binding_id(operation: Uuid, app: &str, member: &MemberKey) -> Uuid {
    Uuid::new_v5(&operation, format!("{app}/{member}").as_bytes())
}

/// A plan that cannot be carried out yet.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this version carries out plans of one wave only")]
pub struct SeveralWaves;

/// The moves of a plan, which must be of one wave.
///
/// # Errors
///
/// If the plan has several waves.
pub fn single_wave(plan: &Plan) -> Result<Vec<Move>, SeveralWaves> {
    match plan.waves.as_slice() {
        [] => Ok(Vec::new()),
        [wave] => Ok(wave.clone()),
        _ => Err(SeveralWaves),
    }
}

/// The state of a relocation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RelocateState {
    /// In the plan's order.
    #[serde(default)]
    pub moves: Vec<MoveProgress>,
    /// How often admission of the newcomer was refused.
    #[serde(default)]
    admit_tries: u32,
    /// Since when the newcomer would not fit even if everything that leaves had left.
    #[serde(default)]
    taken_since: Option<Timestamp>,
    /// New copies that stopped being ready while the old ones still served.
    #[serde(default)]
    unready: shift::Unready,
    #[serde(default)]
    removal: Removal,
}

/// How far one victim's move is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MoveProgress {
    /// The old copy.
    pub old: Binding,
    /// What the new copy claims, if that is not what the old one has claimed: it starts with the number of pods that runs.
    #[serde(default)]
    request: Option<AppRequest>,
    /// Binding id of the new copy.
    pub new: Uuid,
    pub to: MemberKey,
    /// Further destinations, the best first.
    pub others: Vec<MemberKey>,
    pub stage: MoveStage,
    /// When the move began.
    pub since: Timestamp,
    /// When it was done or undone.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// The destinations that were given up, each with the reason, in order.
    #[serde(default)]
    pub refusals: Vec<String>,
    /// The destination that replaces `to`, to be claimed by the next pass of `prepare`.
    #[serde(default)]
    next: Option<MemberKey>,
    /// What was sent for the new copy.
    #[serde(default)]
    sent: Option<Sent>,
    /// The time without a copy, of an app that must not run twice.
    #[serde(default)]
    gap: Option<once::Gap>,
    /// How far its pods are, if they move one after the other with their volumes.
    #[serde(default)]
    handover: Option<stateful::Handover>,
    /// How far its traffic is, if it has a route.
    #[serde(default)]
    shift: Option<shift::Shift>,
}

/// The stages of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveStage {
    /// Room at the destination is held.
    Claimed,
    /// The new copy is being applied.
    Starting,
    /// The new copy is ready.
    Ready,
    /// The new copy is current.
    CutOver,
    /// The old copy is being removed.
    Removing,
    /// The old copy is gone.
    Done,
    /// The new copy was removed; the old one stays.
    Undone,
}

/// What one pass of `prepare` found of a move.
enum Preparation {
    Ready,
    Waiting {
        until: Timestamp,
        note: Option<String>,
    },
    /// Something was decided that must be journaled before it has an effect: another destination, or that the old copy stops.
    Again,
}

impl MoveStage {
    /// The name that operations show.
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

impl MoveProgress {
    /// Name of the app, for people.
    fn name(&self) -> String {
        format!("{}/{}", self.old.dig.composite_app, self.old.app)
    }

    fn is_ready(&self) -> bool {
        self.stage == MoveStage::Ready
    }

    /// Its place in this order of application, if it has one.
    fn rank(&self, order: &[Uuid]) -> Option<usize> {
        order.iter().position(|claim| *claim == self.old.id)
    }

    /// The binding of the new copy.
    fn new_copy(&self, operation: Uuid) -> Binding {
        let request = self.request.as_ref().unwrap_or(&self.old.request).clone();
        Binding { id: self.new, member: self.to.clone(), role: Role::Target, operation, request, ..self.old.clone() }
    }

    fn reach(&mut self, stage: MoveStage) {
        self.stage = stage;
        if matches!(stage, MoveStage::Done | MoveStage::Undone) {
            self.ended.get_or_insert_with(super::now);
        }
    }
}

/// The workflow that carries out a plan.
pub struct Relocate;

impl RemovesCopies for Relocate {
    fn removal(state: &mut RelocateState) -> &mut Removal {
        &mut state.removal
    }
}

impl Workflow for Relocate {
    const KIND: &'static str = "relocate";
    const VERSION: i32 = 1;
    type Environment = Environment;
    type Input = Order;
    type State = RelocateState;

    fn subject(order: &Order) -> String {
        order.subject.clone()
    }

    fn steps() -> Steps<Self> {
        Steps::new()
            // One workflow per group, before anything is read: what is read from here on does not change during the relocation.
            // Either the groups of all victims are held or none; a busy one fails the relocation, and the parent plans without it.
            .step(Step::local("hold_victims", start::hold_victims))
            // proposed -> accepted, by compare-and-swap: a plan is carried out once, even if two operations start it.
            .step(Step::remote("accept_plan", start::accept_plan).at(MIGRATION))
            // Are the victims as the plan saw them, do the copies fit at the destinations, will the newcomer fit when the victims
            // have left? Checked in one transaction with the claims, so that no other claim comes between.
            .step(Step::remote("claim", start::claim).at(PLACEMENT).undo(start::release_claims))
            // A row for each new copy, before anything is sent to a member: every copy in a member is explained by a row.
            .step(Step::local("bind", prepare::bind).undo(once::take_away).undo_at(SYNCHRONIZER))
            // All victims at once. The old copies stay untouched until every new copy is ready; only one that must not run twice is
            // stopped first, when all others are ready, and the undo of `bind` starts it again. A destination at which a copy does
            // not become ready is replaced by the next one; if a victim has none left, the whole wave is undone.
            .step(Step::wait("prepare", prepare::prepare).at(SYNCHRONIZER))
            // Users' traffic moves between ready and the pivot: from here on the old copies get no new requests, and what is under way
            // at them ends before they are removed. The undo gives the traffic back before the new copies are removed.
            .step(Step::wait("shift_traffic", shift::shift_traffic).undo(shift::give_back))
            // The whole wave in one transaction: until here undo removes the new copies, from here on the workflow only goes forward.
            .pivot(Step::local("cut_over", cut::cut_over))
            .step(Step::remote("remove_old", cut::remove_old).at(SYNCHRONIZER))
            // An old copy keeps its room until it is gone: the newcomer must not be admitted to room that is still used.
            .step(Step::wait("old_gone", cut::old_gone).at(SYNCHRONIZER))
            // promised -> held, as soon as it fits. If other pods in the member took the room, the newcomer's claims are released and
            // the parent plans again. The moves stand.
            .step(Step::wait("admit", cut::admit).at(PLACEMENT))
            .finally(Step::local("drop_holds", cut::drop_holds))
    }
}
