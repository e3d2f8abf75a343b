//! The queue of operations that need a plan. One at a time plans and claims what its plan needs; without that, newcomers that arrive
//! together choose the same victims.
//!
//! A place is valid only while its workflow runs: a workflow that ended without leaving the queue delays nobody.

use drover_store::StoreResult;
use sqlx::PgConnection;
use uuid::Uuid;

/// Whether a workflow may plan now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It has the turn. A plan must know of the ledger up to this sequence.
    Granted { ledger_seq: i64 },
    /// So many others come first. `next` is the one whose turn it is if nobody has the turn.
    Behind { ahead: i64, next: Option<Uuid> },
}

/// Joins the queue with this priority (1 to 10, a higher one comes first), or keeps the place there, and takes the turn if no other
/// workflow has it or comes first.
///
/// # Errors
/// The query failed.
pub async fn take_turn(tx: &mut PgConnection, workflow: Uuid, priority: u8) -> StoreResult<Turn> {
    let ledger_seq = lock(tx).await?;
    sqlx::query("delete from planning_queue using workflow where workflow.id = workflow_id and ended_at is not null")
        .execute(&mut *tx)
        .await?;
    // A turn that takes too long passes on: whoever has it may be stopped. To plan at the same time costs replans, not correctness.
    sqlx::query("update planning_queue set state = 'blocked' where state = 'planning' and workflow_id <> $1 and since < now() - interval '3 seconds'")
        .bind(workflow)
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "insert into planning_queue (workflow_id, priority) values ($1, $2)
         on conflict (workflow_id) do update set state = 'waiting' where planning_queue.state = 'blocked'",
    )
    .bind(workflow)
    .bind(i16::from(priority))
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "update planning_queue set state = 'waiting' where state = 'awaiting'
         and exists (select from planning_queue own where own.workflow_id = $1 and own.state = 'awaiting')",
    )
    .bind(workflow)
    .execute(&mut *tx)
    .await?;
    let ahead: i64 = sqlx::query_scalar(
        "select count(*) from planning_queue other, planning_queue own where own.workflow_id = $1 and own.state <> 'planning'
         and (other.state = 'planning' or (other.state = 'waiting' and (-other.priority, other.place) < (-own.priority, own.place)))",
    )
    .bind(workflow)
    .fetch_one(&mut *tx)
    .await?;
    if ahead > 0 {
        return Ok(Turn::Behind { ahead, next: next(tx).await? });
    }
    sqlx::query("update planning_queue set state = 'planning', since = now() where workflow_id = $1").bind(workflow).execute(tx).await?;
    Ok(Turn::Granted { ledger_seq })
}

/// What an operation without a plan waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The end of any other operation.
    OperationEnds,
    /// A time of its own choice.
    Later,
}

/// Gives the turn back and keeps the place, for an operation that cannot be planned now. Returns the workflow that is next.
///
/// # Errors
/// The query failed.
pub async fn block(tx: &mut PgConnection, workflow: Uuid, until: Until) -> StoreResult<Option<Uuid>> {
    lock(tx).await?;
    let state = match until {
        Until::OperationEnds => "awaiting",
        Until::Later => "blocked",
    };
    sqlx::query("update planning_queue set state = $2 where workflow_id = $1").bind(workflow).bind(state).execute(&mut *tx).await?;
    next(tx).await
}

/// Leaves the queue. `ledger_seq` is the ledger sequence of the claims that the plan led to, if there are any. Returns the workflow
/// that is next.
///
/// # Errors
/// The query failed.
pub async fn leave(tx: &mut PgConnection, workflow: Uuid, ledger_seq: Option<i64>) -> StoreResult<Option<Uuid>> {
    let queued: Option<Uuid> =
        sqlx::query_scalar("select workflow_id from planning_queue where workflow_id = $1").bind(workflow).fetch_optional(&mut *tx).await?;
    if queued.is_none() {
        return Ok(None);
    }
    lock(tx).await?;
    sqlx::query("update planning_ledger set seq = greatest(seq, $1)").bind(ledger_seq.unwrap_or_default()).execute(&mut *tx).await?;
    sqlx::query("delete from planning_queue where workflow_id = $1").bind(workflow).execute(&mut *tx).await?;
    next(tx).await
}

/// Serialises the changes of the queue.
async fn lock(tx: &mut PgConnection) -> StoreResult<i64> {
    Ok(sqlx::query_scalar("select seq from planning_ledger for update").fetch_one(tx).await?)
}

async fn next(tx: &mut PgConnection) -> StoreResult<Option<Uuid>> {
    Ok(sqlx::query_scalar(
        "select workflow_id from planning_queue where state = 'waiting'
         and not exists (select from planning_queue where state = 'planning') order by priority desc, place limit 1",
    )
    .fetch_optional(tx)
    .await?)
}
