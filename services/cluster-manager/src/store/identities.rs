//! Which Kubernetes cluster each member is.

use drover_scheduling::MemberKey;
use drover_store::{StoreError, StoreResult};
use sqlx::PgConnection;
use uuid::Uuid;

/// Records the uid of a member, or replaces it: a cluster may be built anew behind the same address.
///
/// # Errors
/// A violation of `member_identity_uid_key` if another member has this uid, or of `member_identity_cluster_id_fkey` if the member has
/// just been deleted; or the store fails.
pub async fn put(db: &mut PgConnection, member: Uuid, uid: &str) -> Result<(), StoreError> {
    sqlx::query("insert into member_identity (cluster_id, uid) values ($1, $2) on conflict (cluster_id) do update set uid = excluded.uid")
        .bind(member)
        .bind(uid)
        .execute(db)
        .await?;
    Ok(())
}

/// The uid of a member, if it is known.
///
/// # Errors
/// The store fails.
pub async fn of(db: &mut PgConnection, member: Uuid) -> StoreResult<Option<String>> {
    Ok(sqlx::query_scalar("select uid from member_identity where cluster_id = $1").bind(member).fetch_optional(db).await?)
}

/// The member with this uid.
///
/// # Errors
/// The store fails.
pub async fn owner(db: &mut PgConnection, uid: &str) -> StoreResult<Option<MemberKey>> {
    let found: Option<(String, String)> = sqlx::query_as(
        "select provider.name, cluster.name from member_identity
            join resource cluster on cluster.id = member_identity.cluster_id join resource provider on provider.id = cluster.parent_id
        where uid = $1",
    )
    .bind(uid)
    .fetch_optional(db)
    .await?;
    Ok(found.map(|(provider, cluster)| MemberKey::new(&provider, &cluster)))
}
