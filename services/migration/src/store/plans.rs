//! Plans in the database.

use drover_api::plans::{PlanDocument, PlanState, PlanSubject};
use drover_scheduling::PlanResult;
use drover_store::{Store, StoreResult, Timestamp};
use sqlx::types::Json;
use uuid::Uuid;

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    subject: Json<PlanSubject>,
    reason: Option<String>,
    state: String,
    operation: Option<Uuid>,
    result: Json<PlanResult>,
    policy: String,
    made_on: String,
    why: Option<String>,
    created_at: Timestamp,
}

/// A query for [`Row`]s.
macro_rules! select {
    ($rest:literal) => {
        concat!("select id, subject, reason, state, operation, result, policy, made_on, why, created_at from plan ", $rest)
    };
}

impl From<Row> for PlanDocument {
    fn from(row: Row) -> Self {
        let (plan, infeasible) = match row.result.0 {
            PlanResult::Feasible(plan) => (Some(plan), None),
            PlanResult::Infeasible(reasons) => (None, Some(reasons)),
        };
        Self {
            id: row.id,
            kind: row.subject.0,
            // A check of the column allows no other value.
            state: match row.state.as_str() {
                "accepted" => PlanState::Accepted,
                "discarded" => PlanState::Discarded,
                "infeasible" => PlanState::Infeasible,
                "applied" => PlanState::Applied,
                "refused" => PlanState::Refused,
                "superseded" => PlanState::Superseded,
                _ => PlanState::Proposed,
            },
            reason: row.reason,
            why: row.why,
            operation: row.operation,
            plan,
            infeasible,
            policy: row.policy,
            made_on: row.made_on,
            created_at: row.created_at.to_string(),
        }
    }
}

/// A plan that is not stored yet.
pub struct NewPlan {
    pub subject: PlanSubject,
    /// Why an app is to move, for people, unless somebody needs the room.
    pub reason: Option<String>,
    /// The operation that the plan is made for.
    pub made_for: Option<Uuid>,
    /// The plan, or the reasons why there is none.
    pub result: PlanResult,
    /// Name of the policy.
    pub policy: String,
    /// Sequence number of the ledger.
    pub made_on: String,
    /// Compressed input.
    pub input: Vec<u8>,
}

impl NewPlan {
    fn state(&self) -> &'static str {
        match self.result {
            PlanResult::Feasible(_) => "proposed",
            PlanResult::Infeasible(_) => "infeasible",
        }
    }

    /// The plan as a document, as it would be stored.
    pub fn document(self, id: Uuid) -> PlanDocument {
        Row {
            id,
            state: self.state().to_owned(),
            subject: Json(self.subject),
            reason: self.reason,
            operation: None,
            result: Json(self.result),
            policy: self.policy,
            made_on: self.made_on,
            why: None,
            created_at: drover_store::now(),
        }
        .into()
    }
}

/// Stores a plan unless there is one with this id, and supersedes the unused plan that was made for the same operation before. Returns
/// the stored plan.
///
/// # Errors
/// The database fails.
pub async fn keep(store: &Store, id: Uuid, plan: NewPlan) -> StoreResult<PlanDocument> {
    let state = plan.state();
    let mut tx = store.begin().await?;
    let stored = sqlx::query("insert into plan (id, subject, state, result, policy, made_on, input, made_for, reason) values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (id) do nothing")
        .bind(id).bind(Json(plan.subject)).bind(state).bind(Json(plan.result)).bind(plan.policy).bind(plan.made_on).bind(plan.input).bind(plan.made_for).bind(plan.reason)
        .execute(&mut *tx).await?;
    if let Some(operation) = plan.made_for.filter(|_| stored.rows_affected() == 1) {
        sqlx::query("update plan set state = 'superseded', why = $3 where made_for = $1 and id <> $2 and state = 'proposed'")
            .bind(operation)
            .bind(id)
            .bind(format!("operation {operation} planned again"))
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(get(store, id).await?.ok_or(sqlx::Error::RowNotFound)?)
}

/// Returns a plan.
///
/// # Errors
/// The database fails.
pub async fn get(store: &Store, id: Uuid) -> StoreResult<Option<PlanDocument>> {
    let row: Option<Row> = sqlx::query_as(select!("where id = $1")).bind(id).fetch_optional(&mut *store.acquire().await?).await?;
    Ok(row.map(PlanDocument::from))
}

/// Returns the compressed input of a plan.
///
/// # Errors
/// The database fails.
pub async fn input(store: &Store, id: Uuid) -> StoreResult<Option<Vec<u8>>> {
    Ok(sqlx::query_scalar("select input from plan where id = $1").bind(id).fetch_optional(&mut *store.acquire().await?).await?)
}

/// Lists plans, the newest first; of those that are older than `after` if it is given. Nothing is older than a plan that does not exist.
///
/// # Errors
/// The database fails.
pub async fn list(store: &Store, limit: i64, after: Option<Uuid>) -> StoreResult<Vec<PlanDocument>> {
    let query = sqlx::query_as(select!(
        "where $2::uuid is null or (created_at, id) < (select created_at, id from plan where id = $2)
         order by created_at desc, id desc limit $1"
    ));
    let rows: Vec<Row> = query.bind(limit).bind(after).fetch_all(&mut *store.acquire().await?).await?;
    Ok(rows.into_iter().map(PlanDocument::from).collect())
}

/// Accepts a proposed plan. Returns false unless it was proposed, or accepted by the same operation.
///
/// # Errors
/// The database fails.
pub async fn accept(store: &Store, id: Uuid, operation: Uuid) -> StoreResult<bool> {
    let set = sqlx::query(
        "update plan set state = 'accepted', operation = $2 where id = $1 and (state = 'proposed' or (state = 'accepted' and operation = $2))",
    ).bind(id).bind(operation).execute(&mut *store.acquire().await?).await?;
    Ok(set.rows_affected() == 1)
}

/// Discards a plan. Returns false if an operation has accepted it, or it does not exist.
///
/// # Errors
/// The database fails.
pub async fn discard(store: &Store, id: Uuid) -> StoreResult<bool> {
    let set = sqlx::query("update plan set state = 'discarded' where id = $1 and state in ('proposed', 'infeasible', 'discarded')")
        .bind(id)
        .execute(&mut *store.acquire().await?)
        .await?;
    Ok(set.rows_affected() == 1)
}

/// A plan whose end is not recorded yet.
#[derive(sqlx::FromRow)]
pub struct OpenPlan {
    pub id: Uuid,
    #[sqlx(json)]
    pub subject: PlanSubject,
    /// The operation that carries it out.
    pub operation: Option<Uuid>,
    /// The operation that it was made for; `None` for a user's plan.
    pub made_for: Option<Uuid>,
}

/// The plans that are accepted, or proposed and may be superseded, the oldest first, at most 500.
///
/// # Errors
/// The database fails.
pub async fn open(store: &Store) -> StoreResult<Vec<OpenPlan>> {
    Ok(sqlx::query_as(
        "select id, subject, operation, made_for from plan
         where state in ('proposed', 'accepted') and (made_for is not null or operation is not null or subject ? 'newcomer')
         order by created_at limit 500",
    )
    .fetch_all(&mut *store.acquire().await?)
    .await?)
}

/// The end of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOutcome {
    /// `Applied`, `Refused` or `Superseded`.
    pub state: PlanState,
    /// Why, for users.
    pub why: Option<String>,
}

/// Records the end of an open plan.
///
/// # Errors
/// The database fails.
pub async fn end(store: &Store, id: Uuid, outcome: &PlanOutcome) -> StoreResult<()> {
    let state = match outcome.state {
        PlanState::Applied => "applied",
        PlanState::Refused => "refused",
        _ => "superseded",
    };
    // Only from the state that the outcome belongs to: a plan may have been accepted meanwhile.
    let from = if state == "superseded" { "proposed" } else { "accepted" };
    sqlx::query("update plan set state = $2, why = $3 where id = $1 and state = $4")
        .bind(id)
        .bind(state)
        .bind(&outcome.why)
        .bind(from)
        .execute(&mut *store.acquire().await?)
        .await?;
    Ok(())
}

/// Deletes plans older than `days`, except accepted ones. Returns how many.
///
/// # Errors
/// The database fails.
pub async fn prune(store: &Store, days: u16) -> StoreResult<u64> {
    let deleted = sqlx::query("delete from plan where created_at < now() - make_interval(days => $1) and state <> 'accepted'")
        .bind(i32::from(days))
        .execute(&mut *store.acquire().await?)
        .await?;
    Ok(deleted.rows_affected())
}
