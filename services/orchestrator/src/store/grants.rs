//! What the logical cloud of a group lets its apps write, and as whom.

use drover_api::grants::Grants;
use drover_store::StoreResult;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::agent;
use crate::resources::LOGICAL_CLOUD;
use crate::resources::logical_cloud::LogicalCloudSpec;

/// What the apps of a group may write, and as whom.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rights {
    /// `None`: everything.
    pub grants: Option<Grants>,
    /// The service account of the member, as `namespace/name`. `None`: the account that Drover has there.
    pub act_as: Option<String>,
}

/// The rights of a group as its logical cloud has them now. A group without a logical cloud (it was deleted meanwhile) has no grants, unless
/// it is one of Drover's agents.
///
/// # Errors
/// The query failed.
pub async fn of_group(tx: &mut PgConnection, dig: Uuid) -> StoreResult<Rights> {
    let sql = "select spec from resource join resource_reference on to_id = id where from_id = $1 and kind = $2";
    let spec: Option<Json<LogicalCloudSpec>> = sqlx::query_scalar(sql).bind(dig).bind(LOGICAL_CLOUD.name).fetch_optional(&mut *tx).await?;
    match spec {
        Some(Json(spec)) => Ok(Rights { grants: spec.grants(), act_as: spec.account() }),
        // Drover's own agents have cluster-wide objects and no logical cloud.
        None => Ok(Rights { grants: (!agent::is_agent(tx, dig).await?).then(Grants::default), act_as: None }),
    }
}
