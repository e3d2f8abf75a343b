//! The SQL statements of the engine. Every write that moves a workflow goes through [`Guard`], which locks the workflow's row and
//! checks its fence, or checks it in the same statement: an engine that has lost the workflow can still read, but its writes are refused.

use std::time::Duration;

use drover_store::{Store, StoreError, StoreResult, Timestamp, Tx};
use serde_json::Value;
use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use sqlx::{FromRow, PgConnection, Postgres, Row as _};
use uuid::Uuid;

use crate::definition::StepKind;
use crate::runner::StepInfo;
use crate::{ChildOutcome, Failure, StepError, Workflow};

/// A claimed workflow as its row says.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct WorkflowRow {
    pub id: Uuid,
    pub kind: String,
    pub version: i32,
    pub subject: String,
    pub traceparent: Option<String>,
    pub input: Value,
    pub state: Value,
    pub status: String,
    pub step: String,
    pub seq: i32,
    pub round: i32,
    pub past_pivot: bool,
    pub cancel_requested: bool,
    pub message: Option<String>,
    #[sqlx(json(nullable))]
    pub failure: Option<Failure>,
    pub parent_id: Option<Uuid>,
    pub fence: i64,
    pub created_at: Timestamp,
}

/// A step that was started, as its journal row says.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct StepRow {
    pub seq: i32,
    pub name: String,
    pub round: i32,
    pub output: Option<Value>,
    pub started_at: Timestamp,
    /// Where the step is begun: a new fence, see [`crate::Ctx::drawn`].
    #[sqlx(default)]
    pub drawn: Option<i64>,
}

/// The columns of a [`Claimed`]: of the workflow `w` and its step `s`. `drawn` is to be selected beside them.
macro_rules! claimed_columns {
    () => {
        "s.seq as started_seq, s.name, s.round as started_round, s.output, s.started_at, w.id, w.kind, w.version, w.subject, w.traceparent,
         w.input, w.state, w.status, w.step, w.seq, w.round, w.past_pivot, w.cancel_requested, w.message, w.failure, w.parent_id, w.fence,
         w.created_at"
    };
}
pub(crate) use claimed_columns;

/// A claimed workflow, and its current step if that was started before.
pub(crate) struct Claimed {
    pub row: WorkflowRow,
    pub started: Option<StepRow>,
}

impl FromRow<'_, sqlx::postgres::PgRow> for Claimed {
    fn from_row(row: &sqlx::postgres::PgRow) -> sqlx::Result<Self> {
        let step = |seq| {
            let (name, round) = (row.try_get("name")?, row.try_get("started_round")?);
            let (output, started_at) = (row.try_get("output")?, row.try_get("started_at")?);
            Ok::<_, sqlx::Error>(StepRow { seq, name, round, output, started_at, drawn: row.try_get("drawn")? })
        };
        let started = row.try_get::<Option<i32>, _>("started_seq")?.map(step).transpose()?;
        Ok(Self { row: WorkflowRow::from_row(row)?, started })
    }
}

/// A workflow that is to be inserted.
#[derive(Clone, Debug)]
pub(crate) struct NewWorkflow {
    kind: &'static str,
    version: i32,
    subject: String,
    input: Value,
    first: &'static str,
    /// Whether the first step can be begun before its workflow runs: it is remote, so nothing else belongs to its start, and always due.
    begins: bool,
}

impl NewWorkflow {
    /// Its kind and version.
    pub fn kind(&self) -> (&'static str, i32) {
        (self.kind, self.version)
    }

    pub fn of<W: Workflow>(input: &W::Input) -> Result<Self, StepError> {
        let steps = W::steps().steps;
        let first = steps.first().map_or("", |step| step.name);
        let begins = steps.first().is_some_and(|step| step.kind == StepKind::Remote && step.due.is_none());
        Ok(Self { kind: W::KIND, version: W::VERSION, subject: W::subject(input), input: serde_json::to_value(input)?, first, begins })
    }

    /// False when there is a workflow of that id already.
    pub async fn insert(
        &self,
        tx: &mut PgConnection,
        id: Uuid,
        parent: Option<(Uuid, i32)>,
        traceparent: Option<&str>,
    ) -> StoreResult<bool> {
        let inserted: Option<(Uuid,)> = self
            .bound(
                sqlx::query_as(
                    "insert into workflow (id, kind, version, subject, traceparent, input, state, step, parent_id, parent_seq) \
                     values ($1, $2, $3, $4, $5, $6, 'null', $7, $8, $9) on conflict (id) do nothing returning id",
                ),
                id,
                traceparent,
            )
            .bind(parent.map(|(id, _)| id))
            .bind(parent.map(|(_, seq)| seq))
            .fetch_optional(tx)
            .await?;
        Ok(inserted.is_some())
    }

    /// Binds the first seven parameters of a statement that inserts it.
    fn bound<'q, O>(
        &'q self,
        insert: QueryAs<'q, Postgres, O, PgArguments>,
        id: Uuid,
        traceparent: Option<&'q str>,
    ) -> QueryAs<'q, Postgres, O, PgArguments> {
        insert.bind(id).bind(self.kind).bind(self.version).bind(&self.subject).bind(traceparent).bind(&self.input).bind(self.first)
    }

    /// Inserts it as claimed by an engine, which then runs it from what is returned. None when the engine's lease has run out or there is a
    /// workflow of that id already: nothing is inserted then.
    pub async fn insert_claimed(
        &self,
        tx: &mut PgConnection,
        id: Uuid,
        traceparent: Option<&str>,
        (engine, incarnation): (&str, Uuid),
    ) -> StoreResult<Option<Claimed>> {
        let claimed = self
            .bound(sqlx::query_as(INSERT_CLAIMED), id, traceparent)
            .bind(engine)
            .bind(incarnation)
            .bind(self.begins)
            .fetch_optional(tx)
            .await?;
        Ok(claimed)
    }
}

/// As [`NewWorkflow::insert`] inserts it, but claimed by an engine whose lease has not run out. No row is inserted otherwise. `$10`: its first
/// step is begun with it, as [`BEGIN`] does. A cancel that comes before the step has taken effect then waits until it has, and undoes it. The
/// clock is read again, because the caller's transaction may have waited for a lock.
const INSERT_CLAIMED: &str = concat!(
    "with w as (
    insert into workflow (id, kind, version, subject, traceparent, input, state, step, worker, incarnation, fence, run_at)
    select $1, $2, $3, $4, $5, $6, 'null'::jsonb, $7, name, incarnation, nextval('workflow_fence'), clock_timestamp()
    from worker where name = $8 and incarnation = $9 and lease_until > clock_timestamp()
    on conflict (id) do nothing
    returning *
), s as (
    insert into workflow_step (workflow_id, seq, name, round, status, atomic)
    select id, seq + 1, step, round, 'started', false from w where $10
    returning seq, name, round, output, started_at
)
select case when $10 then nextval('workflow_fence') end as drawn, ",
    claimed_columns!(),
    " from w left join s on true"
);

/// Why a journal write was not made.
#[derive(Debug)]
pub(crate) enum JournalError {
    /// Another engine has taken the workflow over: the fence is no longer the row's. Or Postgres crashed and has lost the end of a step.
    Fenced,
    /// A failpoint stops this driver as a SIGKILL would.
    Halted,
    Store(StoreError),
}

impl<E: Into<StoreError>> From<E> for JournalError {
    fn from(error: E) -> Self {
        Self::Store(error.into())
    }
}

/// A transaction that has locked the workflow's row. It is acquired only if the fence matches.
pub(crate) struct Guard {
    pub tx: Tx,
    pub cancel_requested: bool,
    id: Uuid,
}

impl Guard {
    pub async fn lock(store: &Store, id: Uuid, fence: i64) -> Result<Self, JournalError> {
        let mut tx = store.begin().await?;
        let row: Option<(bool,)> =
            sqlx::query_as("select cancel_requested from workflow where id = $1 and fence = $2 and ended_at is null for update")
                .bind(id)
                .bind(fence)
                .fetch_optional(&mut *tx)
                .await?;
        let (cancel_requested,) = row.ok_or(JournalError::Fenced)?;
        Ok(Self { tx, cancel_requested, id })
    }

    /// Locks the workflow and inserts the journal row of a step. No step is returned when a cancel was requested: nothing is started
    /// then.
    pub async fn begin(store: &Store, row: &WorkflowRow, seq: i32, step: &StepInfo) -> Result<(Self, Option<StepRow>), JournalError> {
        let mut tx = store.begin().await?;
        let Begun { cancel_requested, step } = begin_step(&mut tx, row, seq, step).await?;
        Ok((Self { tx, cancel_requested, id: row.id }, step))
    }

    /// Inserts the journal row of a step unless it exists, whether or not a cancel was requested.
    pub async fn start_step(&mut self, row: &WorkflowRow, seq: i32, step: &StepInfo) -> Result<(), JournalError> {
        insert_step(&mut self.tx, row, seq, step, true).await.map(drop)
    }

    /// Sets a started step to `done` or `failed`, with its output or error.
    pub async fn finish_step(&mut self, seq: i32, status: &str, output: Option<&Value>, error: Option<&Value>) -> Result<(), JournalError> {
        sqlx::query("update workflow_step set status = $3, output = $4, error = $5, finished_at = clock_timestamp() where workflow_id = $1 and seq = $2")
            .bind(self.id)
            .bind(seq)
            .bind(status)
            .bind(output)
            .bind(error)
            .execute(&mut *self.tx)
            .await?;
        Ok(())
    }

    /// Journals that the children of a step have been inserted.
    pub async fn spawned(&mut self, seq: i32, count: usize) -> Result<(), JournalError> {
        sqlx::query("update workflow_step set output = jsonb_build_object('children', $3::bigint) where workflow_id = $1 and seq = $2")
            .bind(self.id)
            .bind(seq)
            .bind(i64::try_from(count).unwrap_or(i64::MAX))
            .execute(&mut *self.tx)
            .await?;
        Ok(())
    }

    /// Counts a failed attempt and stores its error. Returns the number of attempts so far.
    pub async fn retry_step(&mut self, seq: i32, error: &str) -> Result<i32, JournalError> {
        let attempts: (i32,) =
            sqlx::query_as("update workflow_step set attempt = attempt + 1, error = jsonb_build_object('message', $3::text) where workflow_id = $1 and seq = $2 returning attempt - 1")
                .bind(self.id)
                .bind(seq)
                .bind(error)
                .fetch_one(&mut *self.tx)
                .await?;
        Ok(attempts.0)
    }

    /// Sets a step to `undoing` (its attempts are counted from 1 again) or `undone`.
    pub async fn undo_step(&mut self, seq: i32, status: &str) -> Result<(), JournalError> {
        let statement = match status {
            "undoing" => {
                "update workflow_step set status = 'undoing', attempt = 1, undo_started_at = clock_timestamp() where workflow_id = $1 and seq = $2 and status <> 'undoing'"
            }
            _ => {
                "update workflow_step set status = 'undone', undo_started_at = coalesce(undo_started_at, now()), undo_finished_at = clock_timestamp() \
                 where workflow_id = $1 and seq = $2"
            }
        };
        sqlx::query(statement).bind(self.id).bind(seq).execute(&mut *self.tx).await?;
        Ok(())
    }

    /// Writes the workflow's state, current step and status.
    pub async fn save(&mut self, row: &WorkflowRow) -> Result<(), JournalError> {
        let ended = ended(&row.status);
        sqlx::query(
            "update workflow set state = $2, status = $3, step = $4, seq = $5, round = $6, past_pivot = $7, message = $8, failure = $9, \
             revision = revision + 1, updated_at = clock_timestamp(), ended_at = case when $10 then clock_timestamp() end, \
             worker = case when $10 then null else worker end where id = $1",
        )
        .bind(row.id)
        .bind(&row.state)
        .bind(&row.status)
        .bind(&row.step)
        .bind(row.seq)
        .bind(row.round)
        .bind(row.past_pivot)
        .bind(&row.message)
        .bind(row.failure.as_ref().map(sqlx::types::Json))
        .bind(ended)
        .execute(&mut *self.tx)
        .await?;
        if ended && let Some(parent) = row.parent_id {
            // The parent may be running its step right now. `woken` makes it run the step again instead of parking.
            sqlx::query("update workflow set woken = true, run_at = least(run_at, now()) where id = $1 and ended_at is null")
                .bind(parent)
                .execute(&mut *self.tx)
                .await?;
        }
        Ok(())
    }

    /// Gives the workflow back until `delay` has passed or one of the keys is woken. Returns whether it is due at once, as it is if it was woken
    /// since it was claimed.
    pub async fn park(&mut self, delay: Duration, keys: &[String]) -> Result<bool, JournalError> {
        let due = sqlx::query_scalar(
            "update workflow set worker = null, wake_keys = $3, woken = false, \
             run_at = case when woken then now() else now() + $2 * interval '1 microsecond' end where id = $1 returning run_at <= now()",
        )
        .bind(self.id)
        .bind(microseconds(delay))
        .bind(keys)
        .fetch_one(&mut *self.tx)
        .await?;
        Ok(due)
    }

    pub async fn children(&mut self, seq: i32) -> Result<Vec<ChildRow>, JournalError> {
        children(&mut self.tx, self.id, seq).await
    }

    pub async fn commit(self) -> Result<(), JournalError> {
        self.tx.commit().await?;
        Ok(())
    }
}

/// Inserts the journal row of a step unless it exists or a cancel was requested. It is one statement, so that it needs no transaction
/// where nothing else is written. It returns one row, or none when another engine has the workflow, or when Postgres has lost the end of
/// the step before (see [`advance`]).
const BEGIN: &str = "with w as (
    select id, cancel_requested from workflow where id = $1 and fence = $2 and seq = $3 - 1 and ended_at is null for update
), s as (
    insert into workflow_step (workflow_id, seq, name, round, status, atomic)
    select id, $3, $4, $5, 'started', $6 from w where $7 or not cancel_requested
    on conflict (workflow_id, seq) do nothing
    returning seq, name, round, output, started_at
)
select w.cancel_requested, nextval('workflow_fence') as drawn, t.seq, t.name, t.round, t.output, t.started_at
from w left join (
    select * from s
    union all select seq, name, round, output, started_at from workflow_step where workflow_id = $1 and seq = $3
) t on $7 or not w.cancel_requested";

/// The result of [`BEGIN`].
pub(crate) struct Begun {
    pub cancel_requested: bool,
    /// None when the step was not started because a cancel was requested.
    pub step: Option<StepRow>,
}

impl FromRow<'_, sqlx::postgres::PgRow> for Begun {
    fn from_row(row: &sqlx::postgres::PgRow) -> sqlx::Result<Self> {
        let begun = row.try_get::<Option<i32>, _>("seq")?.is_some();
        let step = if begun { Some(StepRow::from_row(row)?) } else { None };
        Ok(Self { cancel_requested: row.try_get("cancel_requested")?, step })
    }
}

/// Journals the start of a step, unless a cancel was requested before the pivot.
pub(crate) async fn begin_step(connection: &mut PgConnection, row: &WorkflowRow, seq: i32, step: &StepInfo) -> Result<Begun, JournalError> {
    insert_step(connection, row, seq, step, row.past_pivot).await
}

async fn insert_step(
    connection: &mut PgConnection,
    row: &WorkflowRow,
    seq: i32,
    step: &StepInfo,
    anyway: bool,
) -> Result<Begun, JournalError> {
    let begun: Option<Begun> = sqlx::query_as(BEGIN)
        .bind(row.id)
        .bind(row.fence)
        .bind(seq)
        .bind(step.name)
        .bind(row.round)
        .bind(step.kind == StepKind::Local)
        .bind(anyway)
        .fetch_optional(connection)
        .await?;
    begun.ok_or(JournalError::Fenced)
}

/// Sets a step to `done` and the workflow to the next step. It is one statement, so that it needs no transaction where nothing else is
/// written. `$13`: its commit does not wait for the disk.
const ADVANCE: &str = "with w as (
    update workflow set state = $3, status = $4, step = $5, seq = $6, round = $7, past_pivot = $8, message = $9, failure = $10,
        revision = revision + 1, updated_at = clock_timestamp(), ended_at = case when $11 then clock_timestamp() end,
        worker = case when $11 then null else worker end
    where id = $1 and fence = $2 and ended_at is null
    returning id, parent_id, cancel_requested
), done as (
    update workflow_step s set status = 'done', output = $12, error = null, finished_at = clock_timestamp()
    from w where s.workflow_id = w.id and s.seq = $6
), parent as (
    update workflow p set woken = true, run_at = least(p.run_at, now()) from w where $11 and p.id = w.parent_id and p.ended_at is null
)
select cancel_requested, case when $13 then set_config('synchronous_commit', 'off', true) end from w";

/// Journals that step `row.seq` ended with `output` and that the workflow is now as `row` says. Returns whether a cancel was requested.
///
/// `may_be_lost`: the commit does not wait for the disk. A crash of Postgres at that moment loses the end of the step, and the step is done
/// again, as after a crash of its engine before the end was journaled. The next [`BEGIN`] waits for the disk, also for what was written
/// before it. An engine that survives such a crash learns of it there, because the row then has the number of an earlier step.
pub(crate) async fn advance(
    connection: &mut PgConnection,
    row: &WorkflowRow,
    output: &Value,
    may_be_lost: bool,
) -> Result<bool, JournalError> {
    let cancel_requested: Option<bool> = sqlx::query_scalar(ADVANCE)
        .bind(row.id)
        .bind(row.fence)
        .bind(&row.state)
        .bind(&row.status)
        .bind(&row.step)
        .bind(row.seq)
        .bind(row.round)
        .bind(row.past_pivot)
        .bind(&row.message)
        .bind(row.failure.as_ref().map(sqlx::types::Json))
        .bind(ended(&row.status))
        .bind(output)
        .bind(may_be_lost)
        .fetch_optional(connection)
        .await?;
    cancel_requested.ok_or(JournalError::Fenced)
}

/// Gives a workflow back as [`Guard::park`] does, with its state, message and step (steps before it may have been skipped, which is not
/// journaled). It is one statement, so that a remote step that waits needs no transaction. `changed`: watchers are told of a new revision.
const PARK: &str = "update workflow set state = $3, message = $4, step = $8, revision = revision + $5::bool::int,
        updated_at = case when $5 then clock_timestamp() else updated_at end, worker = null, wake_keys = $7, woken = false,
        run_at = case when woken then now() else now() + $6 * interval '1 microsecond' end
    where id = $1 and fence = $2 and ended_at is null returning run_at <= now()";

/// Journals that a remote step waits: for `delay`, or until one of the keys is woken. Returns whether it is due at once.
pub(crate) async fn park(
    connection: &mut PgConnection,
    row: &WorkflowRow,
    changed: bool,
    delay: Duration,
    keys: &[String],
) -> Result<bool, JournalError> {
    let due: Option<bool> = sqlx::query_scalar(PARK)
        .bind(row.id)
        .bind(row.fence)
        .bind(&row.state)
        .bind(&row.message)
        .bind(changed)
        .bind(microseconds(delay))
        .bind(keys)
        .bind(&row.step)
        .fetch_optional(connection)
        .await?;
    due.ok_or(JournalError::Fenced)
}

fn microseconds(delay: Duration) -> i64 {
    i64::try_from(delay.as_micros()).unwrap_or(i64::MAX / 4)
}

fn ended(status: &str) -> bool {
    matches!(status, "done" | "failed" | "cancelled")
}

/// A child as its parent sees it.
#[derive(Clone, Debug, FromRow)]
pub(crate) struct ChildRow {
    pub id: Uuid,
    pub kind: String,
    pub status: String,
    pub past_pivot: bool,
    #[sqlx(json(nullable))]
    pub failure: Option<Failure>,
    pub state: Value,
}

impl ChildRow {
    pub fn ended(&self) -> bool {
        ended(&self.status)
    }

    pub fn outcome(self) -> ChildOutcome {
        ChildOutcome {
            done: self.status == "done",
            id: self.id,
            kind: self.kind,
            past_pivot: self.past_pivot,
            failure: self.failure,
            state: self.state,
        }
    }
}

async fn children(tx: &mut PgConnection, parent: Uuid, seq: i32) -> Result<Vec<ChildRow>, JournalError> {
    let rows = sqlx::query_as(
        "select id, kind, status, past_pivot, failure, state from workflow where parent_id = $1 and parent_seq = $2 order by id",
    )
    .bind(parent)
    .bind(seq)
    .fetch_all(tx)
    .await?;
    Ok(rows)
}

/// Requests the cancel of a step's children. This must not be part of a transaction that has locked the parent: a child that ends locks
/// its own row first and then its parent's, so the two could deadlock.
pub(crate) async fn cancel_children(connection: &mut PgConnection, parent: Uuid, seq: i32) -> Result<(), JournalError> {
    sqlx::query(
        "update workflow set cancel_requested = true, woken = true, run_at = least(run_at, now()), revision = revision + 1 \
         where parent_id = $1 and parent_seq = $2 and ended_at is null and not past_pivot and not cancel_requested",
    )
    .bind(parent)
    .bind(seq)
    .execute(connection)
    .await?;
    Ok(())
}

/// The last started step that is still to be undone. A local step that never finished left no effects and needs no undo.
pub(crate) async fn to_undo(connection: &mut PgConnection, id: Uuid) -> Result<Option<StepRow>, JournalError> {
    let statement = "select seq, name, round, output, started_at from workflow_step where workflow_id = $1 and status <> 'undone' and (not atomic or status in ('done', 'undoing')) order by seq desc limit 1";
    Ok(sqlx::query_as(statement).bind(id).fetch_optional(connection).await?)
}
