//! The parts of instantiated logical clouds of level 1, one per cluster.

use drover_api::scheduling::MemberKey;
use drover_store::StoreResult;
use sqlx::{FromRow, PgConnection};
use uuid::Uuid;

/// The part of a logical cloud in one cluster.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct CloudCopy {
    /// Also the id of the binding and of the user.
    pub id: Uuid,
    pub cloud_id: Uuid,
    pub project: String,
    pub cloud: String,
    #[sqlx(try_from = "String")]
    pub member: Member,
    pub namespace: String,
    /// Whom the certificate is for; empty: nobody.
    pub user_name: String,
    pub digest: String,
    /// Whether it is to be there; otherwise it is being removed.
    pub present: bool,
    /// Of the last write; `None`: what is desired now has not been sent.
    pub fence: Option<i64>,
    /// Whether everything that is desired is there.
    pub settled: bool,
    /// Why it is not settled yet.
    pub trouble: Option<String>,
    /// Whether it stays so until somebody changes something.
    pub failed: bool,
}

/// A member, as a column has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member(pub MemberKey);

impl From<String> for Member {
    fn from(key: String) -> Self {
        Self(MemberKey(key))
    }
}

/// The parts of a logical cloud, also those that are being removed, ordered by cluster.
///
/// # Errors
/// The query failed.
pub async fn of_cloud(tx: &mut PgConnection, cloud: Uuid) -> StoreResult<Vec<CloudCopy>> {
    Ok(sqlx::query_as("select * from cloud_copy where cloud_id = $1 order by member, present desc").bind(cloud).fetch_all(tx).await?)
}

/// The parts about which something is to be done.
///
/// # Errors
/// The query failed.
pub async fn unsettled(tx: &mut PgConnection) -> StoreResult<Vec<CloudCopy>> {
    Ok(sqlx::query_as("select * from cloud_copy where not settled order by changed_at").fetch_all(tx).await?)
}

/// Stores a part, or replaces what is desired of the one of that id.
///
/// # Errors
/// The query failed.
pub async fn put(tx: &mut PgConnection, copy: &CloudCopy) -> StoreResult<()> {
    sqlx::query(
        "insert into cloud_copy (id, cloud_id, project, cloud, member, namespace, user_name, digest) values ($1, $2, $3, $4, $5, $6, $7, $8)
        on conflict (id) do update set namespace = excluded.namespace, user_name = excluded.user_name, digest = excluded.digest,
            fence = null, settled = false, trouble = null, failed = false, changed_at = now()",
    )
    .bind(copy.id)
    .bind(copy.cloud_id)
    .bind(&copy.project)
    .bind(&copy.cloud)
    .bind(&copy.member.0.0)
    .bind(&copy.namespace)
    .bind(&copy.user_name)
    .bind(&copy.digest)
    .execute(tx)
    .await?;
    Ok(())
}

/// Lets parts be removed.
///
/// # Errors
/// The query failed.
pub async fn remove(tx: &mut PgConnection, ids: &[Uuid]) -> StoreResult<()> {
    let sql = "update cloud_copy set present = false, fence = null, settled = false, trouble = null, failed = false, changed_at = now()
        where id = any($1) and present";
    sqlx::query(sql).bind(ids).execute(tx).await?;
    Ok(())
}

/// Records that what is desired was sent. Returns false if something else is desired meanwhile.
///
/// # Errors
/// The query failed.
pub async fn sent(tx: &mut PgConnection, copy: &CloudCopy, fence: i64) -> StoreResult<bool> {
    let sql = "update cloud_copy set fence = $4 where id = $1 and present = $2 and digest = $3";
    let done = sqlx::query(sql).bind(copy.id).bind(copy.present).bind(&copy.digest).bind(fence).execute(tx).await?;
    Ok(done.rows_affected() > 0)
}

/// Records how far a part is, if the same is still desired of it.
///
/// # Errors
/// The query failed.
pub async fn record(tx: &mut PgConnection, copy: &CloudCopy, settled: bool, trouble: Option<&str>, failed: bool) -> StoreResult<()> {
    let sql = "update cloud_copy set settled = $4, trouble = $5, failed = $6
        where id = $1 and present = $2 and digest = $3 and (settled, trouble, failed) is distinct from ($4, $5, $6)";
    sqlx::query(sql).bind(copy.id).bind(copy.present).bind(&copy.digest).bind(settled).bind(trouble).bind(failed).execute(tx).await?;
    Ok(())
}

/// Deletes a part that is gone.
///
/// # Errors
/// The query failed.
pub async fn delete(tx: &mut PgConnection, id: Uuid) -> StoreResult<()> {
    sqlx::query("delete from cloud_copy where id = $1 and not present").bind(id).execute(tx).await?;
    Ok(())
}
