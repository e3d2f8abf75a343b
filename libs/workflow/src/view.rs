//! Reads workflows for people and operations: what was asked, how far the workflow is, why it failed; and watches them.

use std::collections::HashSet;
use std::time::Duration;

use drover_store::{StoreError, StoreResult, Timestamp};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{FromRow, PgConnection};
use tokio::sync::broadcast;
use uuid::Uuid;

use crate::{Engine, Failure};

/// A workflow and its steps.
#[derive(Clone, Debug, Serialize, FromRow)]
pub struct WorkflowView {
    pub id: Uuid,
    pub kind: String,
    /// The version of the kind.
    pub version: i32,
    /// What it is about.
    pub subject: String,
    /// `running`, `undoing`, `done`, `failed` or `cancelled`; `refused` while no running engine knows its kind and version.
    pub status: String,
    /// Whether its pivot is committed: it can no longer be cancelled.
    pub past_pivot: bool,
    pub cancel_requested: bool,
    /// The last progress message of its steps.
    pub message: Option<String>,
    #[sqlx(json(nullable))]
    pub failure: Option<Failure>,
    pub input: Value,
    pub state: Value,
    /// The workflow that started it as a child.
    pub parent_id: Option<Uuid>,
    /// The fence of the engine that claimed it last.
    pub fence: i64,
    /// Grows with every visible change.
    pub revision: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// The started steps in the order of their start, then those still to come (status `pending`).
    #[sqlx(skip)]
    pub steps: Vec<StepView>,
}

/// A step of a workflow and how it went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepView {
    pub name: String,
    /// The round it belongs to, from 1.
    pub round: i32,
    /// `pending`, `started`, `done`, `failed`, `undoing` or `undone`.
    pub status: String,
    /// The number of the current attempt, from 1; 0 for a pending step.
    pub attempt: i32,
    pub output: Option<Value>,
    /// The error of the last attempt, or the failure.
    pub error: Option<Value>,
    /// When its first attempt began.
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub undo_started_at: Option<Timestamp>,
    pub undo_finished_at: Option<Timestamp>,
}

impl WorkflowView {
    /// Whether the workflow has ended: done, failed or cancelled.
    pub fn ended(&self) -> bool {
        self.ended_at.is_some()
    }
}

/// Which workflows to list, newest first. `None` means all.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    pub kind: Option<String>,
    pub status: Option<String>,
    pub subject: Option<String>,
    /// Only the children of this workflow.
    pub parent: Option<Uuid>,
    /// Only workflows that are no children.
    pub roots: bool,
    /// Where the page starts: `created_at` and `id` of the last workflow of the page before.
    pub after: Option<(Timestamp, Uuid)>,
    /// How many at most, from 1 to 500.
    pub limit: i64,
}

const COLUMNS: &str = "id, kind, version, subject, case when refused and ended_at is null then 'refused' else status end as status, past_pivot, cancel_requested, message, failure, \
    input, state, parent_id, fence, revision, created_at, updated_at, ended_at";

/// A workflow without its steps, its current step and round, and the steps that were started (of a child: none are read).
#[derive(FromRow)]
struct Found {
    #[sqlx(flatten)]
    view: WorkflowView,
    step: String,
    round: i32,
    #[sqlx(json(nullable))]
    begun: Option<Vec<StepView>>,
}

impl Engine {
    /// A workflow with its steps; `None` when there is none of this id.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn get(&self, id: Uuid) -> StoreResult<Option<WorkflowView>> {
        Ok(self.family(id).await?.map(|(view, _)| view))
    }

    /// As [`Engine::get`], for callers that have a connection: one that takes a second one can wait for others that do the same.
    ///
    /// # Errors
    /// See [`Engine::get`].
    pub async fn get_in(&self, db: &mut PgConnection, id: Uuid) -> StoreResult<Option<WorkflowView>> {
        Ok(self.family_in(db, id).await?.map(|(view, _)| view))
    }

    /// A workflow with its steps, and its children, oldest first and without theirs; `None` when there is none of this id.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn family(&self, id: Uuid) -> StoreResult<Option<(WorkflowView, Vec<WorkflowView>)>> {
        self.family_in(&mut *self.0.store.acquire().await?, id).await
    }

    async fn family_in(&self, db: &mut PgConnection, id: Uuid) -> StoreResult<Option<(WorkflowView, Vec<WorkflowView>)>> {
        let statement = format!(
            "select {COLUMNS}, step, round, \
                 case when id = $1 then (select json_agg(s order by seq) from workflow_step s where workflow_id = $1) end as begun \
             from workflow where id = $1 or parent_id = $1 order by created_at, id"
        );
        let query = sqlx::query_as(sqlx::AssertSqlSafe(statement)).bind(id);
        let rows: Vec<Found> = query.fetch_all(db).await?;
        let (found, children): (Vec<_>, Vec<_>) = rows.into_iter().partition(|found| found.view.id == id);
        let Some(Found { mut view, step, round, begun }) = found.into_iter().next() else { return Ok(None) };
        view.steps = begun.unwrap_or_default();
        if view.status == "running" {
            self.add_pending(&mut view, &step, round);
        }
        Ok(Some((view, children.into_iter().map(|child| child.view).collect())))
    }

    /// The children of workflows, oldest first and without their steps.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn children(&self, parents: &[Uuid]) -> StoreResult<Vec<WorkflowView>> {
        let statement = format!("select {COLUMNS} from workflow where parent_id = any($1) order by created_at, id");
        let query = sqlx::query_as(sqlx::AssertSqlSafe(statement)).bind(parents);
        Ok(query.fetch_all(&mut *self.0.store.acquire().await?).await?)
    }

    /// A page of workflows, without their steps.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn list(&self, filter: &ListFilter) -> StoreResult<Vec<WorkflowView>> {
        self.list_in(&mut *self.0.store.acquire().await?, filter).await
    }

    /// As [`Engine::list`], for callers that have a connection, see [`Engine::get_in`].
    ///
    /// # Errors
    /// See [`Engine::list`].
    pub async fn list_in(&self, db: &mut PgConnection, filter: &ListFilter) -> StoreResult<Vec<WorkflowView>> {
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
            .fetch_all(db)
            .await?;
        Ok(views)
    }

    /// Ids of workflows as this process changes them. Changes by other processes are not among them; [`Engine::watch`] polls for those.
    pub fn events(&self) -> broadcast::Receiver<Uuid> {
        self.0.changed.subscribe()
    }

    /// The workflow as it is now, again after each change, and at last as it ended. The stream ends at once when there is no workflow of
    /// this id, and after the first error.
    pub fn watch(&self, id: Uuid) -> BoxStream<'static, StoreResult<WorkflowView>> {
        let seen = Watch { events: self.events(), engine: self.clone(), id, revision: None, ended: false };
        futures::stream::unfold(seen, |mut watch| async move { watch.next().await.map(|view| (view, watch)) }).boxed()
    }

    /// The workflow when it has ended, or as it is after `timeout`.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn wait(&self, id: Uuid, timeout: Duration) -> StoreResult<Option<WorkflowView>> {
        self.until_ended(id, timeout).await?;
        self.get(id).await
    }

    /// Waits until the workflow has ended, for `timeout` at most.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn until_ended(&self, id: Uuid, timeout: Duration) -> StoreResult<()> {
        let mut ends = self.0.ended.subscribe();
        // Only the end is queried, not each change before it: under load those would be most of the queries.
        let look = "select ended_at is not null from workflow where id = $1";
        let ended = tokio::time::timeout(timeout, async {
            while sqlx::query_scalar(look).bind(id).fetch_optional(&mut *self.0.store.acquire().await?).await? == Some(false) {
                let _ = tokio::time::timeout(self.0.settings.poll, heard_of(&mut ends, id)).await;
            }
            Ok::<_, StoreError>(())
        });
        ended.await.unwrap_or(Ok(()))
    }

    /// Adds the steps that are still to come, if this engine knows the kind and version.
    fn add_pending(&self, view: &mut WorkflowView, step: &str, round: i32) {
        let Some(runner) = self.0.registry.runner(&view.kind, view.version) else { return };
        let steps = runner.steps();
        let begun: HashSet<&str> = view.steps.iter().filter(|step| step.round == round).map(|step| step.name.as_str()).collect();
        // Steps before the last started one were skipped and do not come any more.
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

/// Waits for an event of this workflow. It also returns when events were missed or no more can come, so the caller must check.
async fn heard_of(events: &mut broadcast::Receiver<Uuid>, id: Uuid) {
    while let Ok(heard) = events.recv().await {
        if heard == id {
            return;
        }
    }
}
