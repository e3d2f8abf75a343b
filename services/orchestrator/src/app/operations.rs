//! Operations: the view of workflows for users. A pure mapping, with the reads and the cancel around it.
//!
//! Moves of a child (the `relocate` of an `instantiate`) are shown with its parent too, so that one request is enough.

use std::time::Duration;

use drover_api::operations::{ForceFence, MoveView, Operation, OperationList, OperationState, OperationStep};
use drover_api::scheduling::MemberKey;
use drover_service::{Problem, codes};
use drover_store::{Timestamp, now};
use drover_workflow::{CancelError, ListFilter, StepView, Workflow, WorkflowView};
use futures::stream::{self, Stream};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::broadcast::{self, error::RecvError};
use uuid::Uuid;

use super::{App, Error, group};
use crate::store::force_fence;
use crate::workflows::relocate::{MoveStage, RelocateState};
use crate::workflows::{Grow, Instantiate, Relocate, Update, grow, instantiate, relocate, update};

/// Default number of operations per page.
const DEFAULT_PAGE: i64 = 100;
/// How often a watched operation is read without a notification: another instance may be running it.
const POLL: Duration = Duration::from_secs(1);

/// Which operations to list.
#[derive(Clone, Debug, Default)]
pub struct OperationFilter {
    /// Maximum number of operations; default 100.
    pub limit: Option<i64>,
    /// Only operations older than this one.
    pub after: Option<Uuid>,
    pub state: Option<OperationState>,
    pub kind: Option<String>,
    /// Only those of this group: its uuid or `project/app/version/group`.
    pub dig: Option<String>,
}

impl From<CancelError> for Error {
    fn from(error: CancelError) -> Self {
        match error {
            CancelError::NotFound => Self::NotFound { what: "operation".into() },
            CancelError::Ended => Self::NotNow("the operation has ended; there is nothing to cancel".into()),
            CancelError::PastThePivot => Self::PastThePivot,
            CancelError::Store(error) => Self::Store(error),
        }
    }
}

impl App {
    /// A page of operations, newest first, without their steps.
    ///
    /// # Errors
    /// A query failed, or `after` or the group does not exist.
    pub async fn operations(&self, filter: &OperationFilter) -> Result<OperationList, Error> {
        let subject = match filter.dig.as_deref().map(|dig| (dig, dig.parse::<Uuid>())) {
            None => None,
            Some((_, Ok(id))) => Some(group::by_id(&mut *self.store.acquire().await?, id).await?.subject()),
            Some((subject, Err(_))) => Some(subject.to_owned()),
        };
        let after = match filter.after {
            None => None,
            Some(id) => {
                let last =
                    self.engine.get(id).await?.ok_or_else(|| Error::Inconsistent(vec![format!("after: there is no operation {id}")]))?;
                Some((last.created_at, id))
            }
        };
        let views = self
            .engine
            .list(&ListFilter {
                kind: filter.kind.clone(),
                status: filter.state.map(|state| status(state).to_owned()),
                subject,
                after,
                limit: filter.limit.unwrap_or(DEFAULT_PAGE),
                ..ListFilter::default()
            })
            .await?;
        let ids: Vec<Uuid> = views.iter().map(|view| view.id).collect();
        let children = self.engine.children(&ids).await?;
        Ok(OperationList { items: views.iter().map(|view| operation(view, &children, now())).collect() })
    }

    /// An operation: as it ended if that happens within `wait`, else as it is then.
    ///
    /// # Errors
    /// The operation does not exist, or a query failed.
    pub async fn operation(&self, id: Uuid, wait: Duration) -> Result<Operation, Error> {
        if !wait.is_zero() {
            self.engine.until_ended(id, wait).await?;
        }
        let (view, children) = self.engine.family(id).await?.ok_or_else(|| not_found(id))?;
        Ok(operation(&view, &children, now()))
    }

    /// Requests that an operation be undone.
    ///
    /// # Errors
    /// The operation does not exist, has ended or is past its pivot.
    pub async fn cancel(&self, id: Uuid) -> Result<(), Error> {
        self.engine.cancel(id).await.map_err(|error| match error {
            CancelError::NotFound => not_found(id),
            other => other.into(),
        })
    }

    /// Records an operator's word that in a cluster nothing runs any more that this operation, or one that it started, moves. `dry`: only
    /// checks that it could.
    ///
    /// # Errors
    /// The operation does not exist, has ended, or moves nothing from or to this cluster; or no reason is given.
    pub async fn force_fence(&self, id: Uuid, word: &ForceFence, by: &str, dry: bool) -> Result<(), Problem> {
        if word.reason.trim().is_empty() {
            return Err(codes::INVALID.problem("reason: say how you know that nothing of the application runs there any more"));
        }
        let (view, children) = self.engine.family(id).await?.ok_or_else(|| not_found(id))?;
        if view.ended_at.is_some() {
            return Err(Error::from(CancelError::Ended).into());
        }
        let open = children.iter().filter(|child| child.ended_at.is_none()).map(|child| (child.id, &child.state));
        let member = MemberKey(word.cluster.clone());
        let moves = |state: &Value| {
            let moves = serde_json::from_value::<RelocateState>(state.clone()).unwrap_or_default().moves;
            moves.iter().any(|moving| moving.old.member == member || moving.to == member)
        };
        let concerned: Vec<Uuid> =
            [(id, &view.state)].into_iter().chain(open).filter(|(_, state)| moves(state)).map(|(id, _)| id).collect();
        if concerned.is_empty() {
            let detail = format!("operation {id} moves nothing from or to the cluster {}; give it as PROVIDER+CLUSTER", word.cluster);
            return Err(codes::WRONG_STATE.problem(detail));
        }
        if dry {
            return Ok(());
        }
        let mut tx = self.store.begin().await.map_err(Error::from)?;
        for operation in &concerned {
            force_fence::put(&mut tx, *operation, &member, &word.reason, by).await.map_err(Error::from)?;
        }
        tx.commit().await.map_err(Error::from)?;
        tracing::warn!(operation.ids = ?concerned, cluster.id = %member, by, reason = %word.reason, "an operator has vouched that nothing runs there");
        self.engine.nudge();
        Ok(())
    }

    /// The operation, if [`App::cancel`] would undo it now. Nothing is written.
    ///
    /// # Errors
    /// As [`App::cancel`].
    pub async fn preview_cancel(&self, id: Uuid) -> Result<Operation, Error> {
        let (view, children) = self.engine.family(id).await?.ok_or_else(|| not_found(id))?;
        if view.ended_at.is_some() {
            return Err(CancelError::Ended.into());
        }
        if view.past_pivot {
            return Err(CancelError::PastThePivot.into());
        }
        Ok(operation(&view, &children, now()))
    }

    /// Streams an operation: as it is now, after each change of it or of one that it started, and as it ended.
    ///
    /// # Errors
    /// The operation does not exist, or a query failed.
    pub async fn watch(&self, id: Uuid) -> Result<impl Stream<Item = Operation> + use<>, Error> {
        let watch = OperationWatch { events: self.engine.events(), app: self.clone(), id, seen: Vec::new(), ended: false };
        self.engine.family(id).await?.ok_or_else(|| not_found(id))?;
        Ok(stream::unfold(watch, |mut watch| async move { watch.next().await.map(|operation| (operation, watch)) }))
    }
}

fn not_found(id: Uuid) -> Error {
    Error::NotFound { what: format!("operation {id}") }
}

struct OperationWatch {
    app: App,
    events: broadcast::Receiver<Uuid>,
    id: Uuid,
    /// The operation and its children with their revisions, as last sent.
    seen: Vec<(Uuid, i64)>,
    ended: bool,
}

impl OperationWatch {
    async fn next(&mut self) -> Option<Operation> {
        while !self.ended {
            let (view, children) = match self.app.engine.family(self.id).await {
                Ok(found) => found?,
                Err(error) => {
                    tracing::warn!(error = %drover_service::problem::chain(&error), operation.id = %self.id, "an operation can no longer be watched");
                    return None;
                }
            };
            let family: Vec<_> =
                std::iter::once((view.id, view.revision)).chain(children.iter().map(|child| (child.id, child.revision))).collect();
            if family != self.seen {
                self.seen = family;
                self.ended = view.ended();
                return Some(operation(&view, &children, now()));
            }
            let _ = tokio::time::timeout(POLL, self.until_changed()).await;
        }
        None
    }

    async fn until_changed(&mut self) {
        loop {
            match self.events.recv().await {
                Ok(changed) if self.seen.iter().any(|(id, _)| *id == changed) => return,
                Ok(_) => {}
                // Missed events may include one of this family.
                Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

/// Maps a workflow to an operation. `children` may include those of other workflows.
pub fn operation(view: &WorkflowView, children: &[WorkflowView], now: Timestamp) -> Operation {
    let mine: Vec<&WorkflowView> = children.iter().filter(|child| child.parent_id == Some(view.id)).collect();
    let plan = match view.kind.as_str() {
        Relocate::KIND => relocate::Order::deserialize(&view.input).ok().map(|order| order.plan),
        Instantiate::KIND => {
            let made = instantiate::InstantiateState::deserialize(&view.state).ok().and_then(|state| state.search.plan).map(|plan| plan.id);
            made.or_else(|| instantiate::Order::deserialize(&view.input).ok().and_then(|order| order.plan))
        }
        Update::KIND => update::UpdateState::deserialize(&view.state)
            .ok()
            .and_then(|state| state.search.plan.map(|plan| plan.id).or(state.surge.plan.map(|plan| plan.id))),
        Grow::KIND => grow::GrowState::deserialize(&view.state).ok().and_then(|state| state.search.plan).map(|plan| plan.id),
        _ => None,
    };
    let mut moves = moves(&view.kind, &view.state, view.ended_at, now);
    let mut leftovers = of_removal(&view.state, "leftovers");
    let mut kept = of_removal(&view.state, "kept");
    for child in &mine {
        moves.extend(self::moves(&child.kind, &child.state, child.ended_at, now));
        leftovers.extend(of_removal(&child.state, "leftovers"));
        kept.extend(of_removal(&child.state, "kept"));
    }
    Operation {
        id: view.id,
        kind: view.kind.clone(),
        subject: view.subject.clone(),
        state: state(&view.status),
        message: message(view, &mine),
        code: view.failure.as_ref().map(|failure| failure.code.clone()),
        reasons: view.failure.iter().flat_map(|failure| &failure.reasons).map(words).collect(),
        steps: steps(&view.steps),
        children: mine.iter().map(|child| child.id).collect(),
        parent: view.parent_id,
        plan,
        moves,
        changed_since_dry_run: view.input.get("changed").and_then(|changed| Vec::deserialize(changed).ok()).unwrap_or_default(),
        leftovers,
        kept,
        created_at: view.created_at.to_string(),
        finished_at: view.ended_at.map(|at| at.to_string()),
    }
}

/// What an operation of any kind has to say of the copies that it removed: the texts of a field of its `Removal`.
fn of_removal(state: &Value, field: &str) -> Vec<String> {
    state["removal"].get(field).and_then(|left| Vec::deserialize(left).ok()).unwrap_or_default()
}

fn state(status: &str) -> OperationState {
    match status {
        "undoing" => OperationState::Undoing,
        "done" => OperationState::Succeeded,
        "failed" => OperationState::Failed,
        "cancelled" => OperationState::Cancelled,
        "refused" => OperationState::Refused,
        _ => OperationState::Running,
    }
}

fn status(state: OperationState) -> &'static str {
    match state {
        OperationState::Running => "running",
        OperationState::Undoing => "undoing",
        OperationState::Succeeded => "done",
        OperationState::Failed => "failed",
        OperationState::Cancelled => "cancelled",
        OperationState::Refused => "refused",
    }
}

fn message(view: &WorkflowView, children: &[&WorkflowView]) -> String {
    let now = view.message.clone();
    let why = view.failure.as_ref().map(|failure| failure.message.clone());
    let what_is_left = if view.past_pivot {
        "what was done is kept"
    } else if children.iter().any(|child| child.past_pivot) {
        "undone; the moves made for it are kept"
    } else {
        "undone"
    };
    match state(&view.status) {
        OperationState::Running => {
            let words = now.unwrap_or_else(|| "started".to_owned());
            let trouble =
                view.steps.iter().rev().find(|step| step.status == "started" && step.attempt > 1).and_then(|step| step.error.as_ref());
            let words = trouble.map_or(words.clone(), |error| format!("{words}; trying again: {}", self::words(error)));
            if view.cancel_requested { format!("being cancelled; {words}") } else { words }
        }
        OperationState::Undoing => {
            let words = now.unwrap_or_else(|| "undoing".to_owned());
            why.map_or(words.clone(), |why| format!("{why}; now: {words}"))
        }
        OperationState::Succeeded => now.unwrap_or_else(|| "done".to_owned()),
        OperationState::Failed => format!("{} ({what_is_left})", why.unwrap_or_else(|| "failed".to_owned())),
        OperationState::Cancelled => format!("cancelled ({what_is_left})"),
        OperationState::Refused => {
            format!("written by another version of Drover (workflow version {}); no running engine can continue it", view.version)
        }
    }
}

/// A reason or an error of the journal as text.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => fields.get("message").and_then(Value::as_str).map_or_else(|| value.to_string(), str::to_owned),
        other => other.to_string(),
    }
}

/// Steps that were started, in both directions, ordered by time. Pending steps are left out.
fn steps(steps: &[StepView]) -> Vec<OperationStep> {
    let mut all = Vec::new();
    for step in steps {
        let Some(started) = step.started_at else { continue };
        // The journal has one count of attempts and one error per step: those of the undo once the undo has been retried.
        let back = step.undo_started_at.is_some();
        let repeated = back && step.attempt > 1;
        let error = |mine: bool| step.error.as_ref().filter(|_| mine).map(words);
        all.push((
            started,
            OperationStep {
                name: step.name.clone(),
                direction: "do".to_owned(),
                attempt: if back { 1 } else { step.attempt },
                started_at: started.to_string(),
                finished_at: step.finished_at.map(|at| at.to_string()),
                error: error(!repeated && step.status != "done"),
            },
        ));
        if let Some(began) = step.undo_started_at {
            all.push((
                began,
                OperationStep {
                    name: step.name.clone(),
                    direction: "undo".to_owned(),
                    attempt: step.attempt,
                    started_at: began.to_string(),
                    finished_at: step.undo_finished_at.map(|at| at.to_string()),
                    error: error(repeated && step.status != "undone"),
                },
            ));
        }
    }
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, step)| step).collect()
}

fn moves(kind: &str, state: &Value, ended: Option<Timestamp>, now: Timestamp) -> Vec<MoveView> {
    if kind != Relocate::KIND {
        return Vec::new();
    }
    let Ok(state) = relocate::RelocateState::deserialize(state) else { return Vec::new() };
    state
        .moves
        .into_iter()
        .map(|moving| {
            // A move without a claim to release has no undo step that would record this stage.
            let undone = ended.is_some() && matches!(moving.stage, MoveStage::Claimed | MoveStage::Starting | MoveStage::Ready);
            let stage = if undone { MoveStage::Undone } else { moving.stage };
            let end = moving.ended.or(ended).unwrap_or(now);
            MoveView {
                app: format!("{}/{}", moving.old.dig.composite_app, moving.old.app),
                project: moving.old.dig.project,
                from: moving.old.member.0,
                to: moving.to.0,
                stage: stage.as_str().to_owned(),
                seconds: (end.duration_since(moving.since.0).as_millis() as f64 / 1000.0).max(0.0),
                reason: (!moving.refusals.is_empty()).then(|| moving.refusals.join("; ")),
            }
        })
        .collect()
}

#[cfg(test)]
#[path = "operations_tests.rs"]
mod tests;
