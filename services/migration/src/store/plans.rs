//! Plans as rows.

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
            // The column has a check: there is no fifth word.
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

/// A plan that was just made.
pub struct NewPlan {
    /// What for.
    pub subject: PlanSubject,
    /// Plan or reasons.
    pub result: PlanResult,
    /// Name of the policy.
    pub policy: String,
    /// Ledger sequence.
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

    /// As it would be kept.
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

/// Keeps a plan; one of that id stays as it is. Returns what is kept.
pub async fn keep(store: &Store, id: Uuid, plan: NewPlan) -> StoreResult<PlanDocument> {
    let state = plan.state();
    sqlx::query("insert into plan (id, subject, state, result, policy, made_on, input) values ($1, $2, $3, $4, $5, $6, $7) on conflict (id) do nothing")
        .bind(id).bind(Json(plan.subject)).bind(state).bind(Json(plan.result)).bind(plan.policy).bind(plan.made_on).bind(plan.input)
        .execute(store.pool()).await?;
    Ok(get(store, id).await?.ok_or(sqlx::Error::RowNotFound)?)
}

/// A plan.
pub async fn get(store: &Store, id: Uuid) -> StoreResult<Option<PlanDocument>> {
    let row: Option<Row> =
        sqlx::query_as("select id, subject, state, operation, result, policy, made_on, created_at from plan where id = $1")
            .bind(id)
            .fetch_optional(store.pool())
            .await?;
    Ok(row.map(PlanDocument::from))
}

/// What a plan was made of, compressed.
pub async fn input(store: &Store, id: Uuid) -> StoreResult<Option<Vec<u8>>> {
    Ok(sqlx::query_scalar("select input from plan where id = $1").bind(id).fetch_optional(store.pool()).await?)
}

/// Plans, newest first.
pub async fn list(store: &Store, limit: i64) -> StoreResult<Vec<PlanDocument>> {
    let rows: Vec<Row> = sqlx::query_as(
        "select id, subject, state, operation, result, policy, made_on, created_at from plan order by created_at desc, id desc limit $1",
    )
    .bind(limit)
    .fetch_all(store.pool())
    .await?;
    Ok(rows.into_iter().map(PlanDocument::from).collect())
}

/// proposed -> accepted, or accepted by the same operation already. False: neither.
pub async fn accept(store: &Store, id: Uuid, operation: Uuid) -> StoreResult<bool> {
    let set = sqlx::query(
        "update plan set state = 'accepted', operation = $2 where id = $1 and (state = 'proposed' or (state = 'accepted' and operation = $2))",
    ).bind(id).bind(operation).execute(store.pool()).await?;
    Ok(set.rows_affected() == 1)
}

/// Anything but accepted -> discarded. False: it was accepted, or never was.
pub async fn discard(store: &Store, id: Uuid) -> StoreResult<bool> {
    let set =
        sqlx::query("update plan set state = 'discarded' where id = $1 and state <> 'accepted'").bind(id).execute(store.pool()).await?;
    Ok(set.rows_affected() == 1)
}
