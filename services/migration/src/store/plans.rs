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
    state: String,
    operation: Option<Uuid>,
    result: Json<PlanResult>,
    policy: String,
    made_on: String,
    created_at: Timestamp,
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
                _ => PlanState::Proposed,
            },
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
    /// Purpose.
    pub subject: PlanSubject,
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
            operation: None,
            result: Json(self.result),
            policy: self.policy,
            made_on: self.made_on,
            created_at: drover_store::now(),
        }
        .into()
    }
}

/// Stores a plan unless there is one with this id. Returns the stored plan.
///
/// # Errors
/// The database fails.
pub async fn keep(store: &Store, id: Uuid, plan: NewPlan) -> StoreResult<PlanDocument> {
    let state = plan.state();
    sqlx::query("insert into plan (id, subject, state, result, policy, made_on, input) values ($1, $2, $3, $4, $5, $6, $7) on conflict (id) do nothing")
        .bind(id).bind(Json(plan.subject)).bind(state).bind(Json(plan.result)).bind(plan.policy).bind(plan.made_on).bind(plan.input)
        .execute(store.pool()).await?;
    Ok(get(store, id).await?.ok_or(sqlx::Error::RowNotFound)?)
}

/// Returns a plan.
///
/// # Errors
/// The database fails.
pub async fn get(store: &Store, id: Uuid) -> StoreResult<Option<PlanDocument>> {
    let row: Option<Row> =
        sqlx::query_as("select id, subject, state, operation, result, policy, made_on, created_at from plan where id = $1")
            .bind(id)
            .fetch_optional(store.pool())
            .await?;
    Ok(row.map(PlanDocument::from))
}

/// Returns the compressed input of a plan.
///
/// # Errors
/// The database fails.
pub async fn input(store: &Store, id: Uuid) -> StoreResult<Option<Vec<u8>>> {
    Ok(sqlx::query_scalar("select input from plan where id = $1").bind(id).fetch_optional(store.pool()).await?)
}

/// Lists plans, the newest first.
///
/// # Errors
/// The database fails.
pub async fn list(store: &Store, limit: i64) -> StoreResult<Vec<PlanDocument>> {
    let rows: Vec<Row> = sqlx::query_as(
        "select id, subject, state, operation, result, policy, made_on, created_at from plan order by created_at desc, id desc limit $1",
    )
    .bind(limit)
    .fetch_all(store.pool())
    .await?;
    Ok(rows.into_iter().map(PlanDocument::from).collect())
}

/// Accepts a proposed plan. Returns false unless it was proposed, or accepted by the same operation.
///
/// # Errors
/// The database fails.
pub async fn accept(store: &Store, id: Uuid, operation: Uuid) -> StoreResult<bool> {
    let set = sqlx::query(
        "update plan set state = 'accepted', operation = $2 where id = $1 and (state = 'proposed' or (state = 'accepted' and operation = $2))",
    ).bind(id).bind(operation).execute(store.pool()).await?;
    Ok(set.rows_affected() == 1)
}

/// Discards a plan. Returns false if it was accepted or does not exist.
///
/// # Errors
/// The database fails.
pub async fn discard(store: &Store, id: Uuid) -> StoreResult<bool> {
    let set =
        sqlx::query("update plan set state = 'discarded' where id = $1 and state <> 'accepted'").bind(id).execute(store.pool()).await?;
    Ok(set.rows_affected() == 1)
}
