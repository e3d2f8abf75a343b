//! Workflows as operations show them: what was asked, how far it is, why it stopped. And how to watch one.

use std::collections::HashSet;
use std::time::Duration;

use drover_store::{StoreError, StoreResult, Timestamp};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::Serialize;
use serde_json::Value;
use sqlx::FromRow;
use tokio::sync::broadcast;
use uuid::Uuid;

use crate::{Engine, Failure};

/// A workflow and its steps.
#[derive(Clone, Debug, Serialize, FromRow)]
pub struct WorkflowView {
    /// Its id.
    pub id: Uuid,
    /// Its kind.
    pub kind: String,
    /// The version of its step list.
    pub version: i32,
    /// What it is about.
    pub subject: String,
    /// `running`, `undoing`, `done`, `failed`, `cancelled`; `refused` while no engine knows its version.
    pub status: String,
    /// Whether it has cut over: it can no longer be cancelled.
    pub past_pivot: bool,
    /// Whether somebody asked for its undoing.
    pub cancel_requested: bool,
    /// How far it is, in its own words.
    pub message: Option<String>,
    /// Why it did not do what it was started for.
    #[sqlx(json(nullable))]
    pub failure: Option<Failure>,
    /// What it was started with.
    pub input: Value,
    /// What its steps know.
    pub state: Value,
    /// The workflow that started it.
    pub parent_id: Option<Uuid>,
    /// The fence of whoever ran it last.
    pub fence: i64,
    /// Grows with every visible change.
    pub revision: i64,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// What was started, in that order, and what is still to come (status `pending`).
    #[sqlx(skip)]
    pub steps: Vec<StepView>,
}

/// One step.
#[derive(Clone, Debug, Serialize, FromRow)]
pub struct StepView {
    /// Its name.
    pub name: String,
    /// Which round it belongs to.
    pub round: i32,
    /// `pending`, `started`, `done`, `failed`, `undoing`, `undone`.
    pub status: String,
    /// How often it has been tried.
    pub attempt: i32,
    /// What it left in the journal.
    pub output: Option<Value>,
    /// The last error, or the failure.
    pub error: Option<Value>,
    /// When it was started first.
    pub started_at: Option<Timestamp>,
    /// When it was done or failed.
    pub finished_at: Option<Timestamp>,
    /// When its undo began.
    pub undo_started_at: Option<Timestamp>,
    /// When its undo was done.
    pub undo_finished_at: Option<Timestamp>,
}

impl WorkflowView {
    /// Whether nothing more will happen.
    pub fn ended(&self) -> bool {
        self.ended_at.is_some()
    }
}

/// What to list; newest first.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    /// Only this kind.
    pub kind: Option<String>,
    /// Only this status.
    pub status: Option<String>,
    /// Only about this.
    pub subject: Option<String>,
    /// Only children of this one.
    pub parent: Option<Uuid>,
    /// Only those that nobody started but a user.
    pub roots: bool,
    /// Those after the last one of the page before: its `created_at` and `id`.
    pub after: Option<(Timestamp, Uuid)>,
    /// At most so many (and never more than 500).
    pub limit: i64,
}

const COLUMNS: &str = "id, kind, version, subject, case when refused and ended_at is null then 'refused' else status end as status, past_pivot, cancel_requested, message, failure, \
    input, state, parent_id, fence, revision, created_at, updated_at, ended_at";

impl Engine {
    /// One workflow with its steps.
    pub async fn get(&self, id: Uuid) -> StoreResult<Option<WorkflowView>> {
        let statement = sqlx::AssertSqlSafe(format!("select {COLUMNS} from workflow where id = $1"));
        let found: Option<WorkflowView> = sqlx::query_as(statement).bind(id).fetch_optional(self.0.store.pool()).await?;
        let Some(mut view) = found else { return Ok(None) };
        view.steps = sqlx::query_as(
            "select name, round, status, attempt, output, error, started_at, finished_at, undo_started_at, undo_finished_at from workflow_step where workflow_id = $1 order by seq",
        )
        .bind(id)
        .fetch_all(self.0.store.pool())
        .await?;
        if view.status == "running" {
            self.add_pending(&mut view).await?;
        }
        Ok(Some(view))
    }

    /// A page of workflows, without their steps.
    pub async fn list(&self, filter: &ListFilter) -> StoreResult<Vec<WorkflowView>> {
        let statement = format!(
            "select {COLUMNS} from workflow where ($1::text is null or kind = $1) and ($2::text is null or subject = $2) and ($3::uuid is null or parent_id = $3) \
             and (not $4 or parent_id is null) and ($5::timestamptz is null or (created_at, id) < ($5, $6)) \
             and ($7::text is null or case when refused and ended_at is null then 'refused' else status end = $7) order by created_at desc, id desc limit $8"
        );
        let views = sqlx::query_as(sqlx::AssertSqlSafe(statement))
            .bind(&filter.kind)
            .bind(&filter.subject)
            .bind(filter.parent)
            .bind(filter.roots)
            .bind(filter.after.map(|(created, _)| created))
            .bind(filter.after.map(|(_, id)| id))
            .bind(&filter.status)
            .bind(filter.limit.clamp(1, 500))
            .fetch_all(self.0.store.pool())
            .await?;
        Ok(views)
    }

    /// Ids of workflows as this process changes them. Hints only: what another engine does comes by [`Engine::watch`]'s poll.
    pub fn events(&self) -> broadcast::Receiver<Uuid> {
        self.0.changed.subscribe()
    }

    /// The workflow now, again after each change, and finally as it ended. Ends at once when there is none of that id.
    pub fn watch(&self, id: Uuid) -> BoxStream<'static, StoreResult<WorkflowView>> {
        let seen = Watch { events: self.events(), engine: self.clone(), id, revision: None, ended: false };
        futures::stream::unfold(seen, |mut watch| async move { watch.next().await.map(|view| (view, watch)) }).boxed()
    }

    /// The workflow when it has ended, or as it is when the patience ends.
    pub async fn wait(&self, id: Uuid, patience: Duration) -> StoreResult<Option<WorkflowView>> {
        self.until_ended(id, patience).await?;
        self.get(id).await
    }

    /// Until the workflow has ended, or the patience.
    pub async fn until_ended(&self, id: Uuid, patience: Duration) -> StoreResult<()> {
        let mut ends = self.0.ended.subscribe();
        // What comes before the end is not looked at: under load that would be most of what is read.
        let look = "select ended_at is not null from workflow where id = $1";
        let ended = tokio::time::timeout(patience, async {
            while sqlx::query_scalar(look).bind(id).fetch_optional(self.0.store.pool()).await? == Some(false) {
                let _ = tokio::time::timeout(self.0.settings.poll, heard_of(&mut ends, id)).await;
            }
            Ok::<_, StoreError>(())
        });
        ended.await.unwrap_or(Ok(()))
    }

    /// What is still to come, from the table of steps, if this engine knows it.
    async fn add_pending(&self, view: &mut WorkflowView) -> StoreResult<()> {
        let Some(runner) = self.0.registry.runner(&view.kind, view.version) else { return Ok(()) };
        let steps = runner.steps();
        let (step, round): (String, i32) =
            sqlx::query_as("select step, round from workflow where id = $1").bind(view.id).fetch_one(self.0.store.pool()).await?;
        let begun: HashSet<&str> = view.steps.iter().filter(|step| step.round == round).map(|step| step.name.as_str()).collect();
        // What was passed over before the last one that has begun is not to come any more.
        let last = steps.iter().rposition(|info| begun.contains(info.name)).map(|last| last + 1);
        let from = steps.iter().position(|info| info.name == step).unwrap_or(steps.len()).max(last.unwrap_or_default());
        let pending = steps[from..].iter().map(|info| StepView {
            name: info.name.to_owned(),
            round,
            status: "pending".to_owned(),
            attempt: 0,
            output: None,
            error: None,
            started_at: None,
            finished_at: None,
            undo_started_at: None,
            undo_finished_at: None,
        });
        view.steps.extend(pending);
        Ok(())
    }
}

struct Watch {
    engine: Engine,
    events: broadcast::Receiver<Uuid>,
    id: Uuid,
    revision: Option<i64>,
    ended: bool,
}

impl Watch {
    async fn next(&mut self) -> Option<StoreResult<WorkflowView>> {
        while !self.ended {
            match self.engine.get(self.id).await {
                Ok(Some(view)) if self.revision != Some(view.revision) => {
                    self.revision = Some(view.revision);
                    self.ended = view.ended();
                    return Some(Ok(view));
                }
                Ok(Some(_)) => {}
                Ok(None) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
            if !self.ended {
                let _ = tokio::time::timeout(self.engine.0.settings.poll, heard_of(&mut self.events, self.id)).await;
            }
        }
        None
    }
}

/// A hint about this workflow; so is having missed some, or that none will come.
async fn heard_of(events: &mut broadcast::Receiver<Uuid>, id: Uuid) {
    while let Ok(heard) = events.recv().await {
        if heard == id {
            return;
        }
    }
}
