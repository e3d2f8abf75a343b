//! Tables of what Drover writes about deployment intent groups. Documents are stored by libs/resources, the journal of
//! workflows by libs/workflow.

pub mod agent;
pub mod binding;
pub mod bounds;
pub mod bundle;
pub mod call_edge;
pub mod cloud_action;
pub mod cloud_copy;
pub mod controller_answer;
pub mod deployment;
pub mod force_fence;
pub mod grants;
pub mod group_intent;
pub mod group_migration;
pub mod hold;
pub mod intent_routes;
pub mod overview;
pub mod planning_queue;
pub mod refusal;
pub mod refused_destination;
pub mod revision;
pub mod route;
pub mod traffic;

use drover_store::StoreResult;
use sqlx::PgConnection;

/// The next fence: higher than that of every write so far. Draw it in the transaction that checks that the caller may write.
///
/// # Errors
/// The query failed.
pub async fn next_fence(tx: &mut PgConnection) -> StoreResult<i64> {
    Ok(sqlx::query_scalar("select nextval('workflow_fence')").fetch_one(tx).await?)
}
