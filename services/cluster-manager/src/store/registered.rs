//! All registered members in one query; the supervisor compares its workers with them.

use drover_scheduling::{Cordon, MemberKey};
use drover_store::{StoreResult, Timestamp};
use sqlx::PgConnection;
use uuid::Uuid;

/// A member as it is registered.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Registered {
    /// Id of the cluster's document.
    pub id: Uuid,
    provider: String,
    cluster: String,
    /// Priority of its provider, 1 (preferred) to 10.
    pub priority: i32,
    pub labels: Vec<String>,
    /// Version of its kubeconfig, if it has one.
    pub credential: Option<i64>,
    /// It is reached through its link.
    pub linked: bool,
    cordoned_since: Option<Timestamp>,
    cordon_reason: Option<String>,
}

impl Registered {
    /// `<provider>+<cluster>`
    pub fn key(&self) -> MemberKey {
        MemberKey::new(&self.provider, &self.cluster)
    }

    /// Whether it is closed to new copies of apps.
    pub fn cordon(&self) -> Option<Cordon> {
        Some(Cordon { since: self.cordoned_since?.to_string(), reason: self.cordon_reason.clone().unwrap_or_default() })
    }
}

/// All members, sorted by path.
///
/// # Errors
/// The store fails.
pub async fn all(db: &mut PgConnection) -> StoreResult<Vec<Registered>> {
    Ok(sqlx::query_as(
        "select cluster.id, provider.name as provider, cluster.name as cluster, credential.version as credential,
            cordon.since as cordoned_since, cordon.reason as cordon_reason,
            coalesce((provider.spec ->> 'priority')::int, 10) as priority, coalesce((cluster.spec ->> 'link')::bool, false) as linked,
            array(select label from cluster_label where cluster_id = cluster.id order by label) as labels
        from resource cluster join resource provider on provider.id = cluster.parent_id
            left join credential on credential.cluster_id = cluster.id
            left join cordon on cordon.cluster_id = cluster.id
        where cluster.kind = 'cluster' order by cluster.path",
    )
    .fetch_all(db)
    .await?)
}
