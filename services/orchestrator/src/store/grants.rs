//! What the logical cloud of a group lets its apps write.

use drover_api::grants::Grants;
use drover_store::StoreResult;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::agent;
use crate::resources::LOGICAL_CLOUD;
use crate::resources::logical_cloud::LogicalCloudSpec;

/// The grants of a group as its logical cloud has them now. `None`: its apps may write everything. A group without a logical cloud (it
/// was deleted meanwhile) has no grants, unless it is one of Drover's agents.
///
/// # Errors
/// The query failed.
pub async fn of_group(tx: &mut PgConnection, dig: Uuid) -> StoreResult<Option<Grants>> {
    let sql = "select spec from resource join resource_reference on to_id = id where from_id = $1 and kind = $2";
    let spec: Option<Json<LogicalCloudSpec>> = sqlx::query_scalar(sql).bind(dig).bind(LOGICAL_CLOUD.name).fetch_optional(&mut *tx).await?;
    match spec {
        Some(Json(spec)) => Ok(spec.grants()),
        // Drover's own agents have cluster-wide objects and no logical cloud.
        None => Ok((!agent::is_agent(tx, dig).await?).then(Grants::default)),
    }
}
