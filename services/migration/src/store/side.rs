//! Side tables of documents: the parts that planning reads.

use drover_scheduling::Movability;
use drover_store::{Store, StoreResult, Tx};
use sqlx::PgConnection;
use uuid::Uuid;

/// Stores the content of an app intent in the columns that planning reads.
///
/// # Errors
/// The database fails.
pub async fn set_movability(tx: &mut Tx, intent: Uuid, movability: &Movability) -> StoreResult<()> {
    sqlx::query(
        "insert into movability (intent, dig, app, migration, priority) values ($1, $2, $3, $4, $5)
         on conflict (intent) do update set app = excluded.app, migration = excluded.migration, priority = excluded.priority",
    )
    .bind(intent)
    .bind(movability.dig)
    .bind(&movability.app)
    .bind(movability.migration)
    .bind(i16::from(movability.priority))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The consent of all owners. If several intents name the same app, it may be moved only if all agree, and the lowest priority counts.
///
/// # Errors
/// The database fails.
pub async fn movability(db: &mut PgConnection) -> StoreResult<Vec<Movability>> {
    let rows: Vec<(Uuid, String, bool, i16)> =
        sqlx::query_as("select dig, app, bool_and(migration), min(priority) from movability group by dig, app order by dig, app")
            .fetch_all(db)
            .await?;
    // A check of the column keeps priorities within 1 to 10.
    Ok(rows
        .into_iter()
        .map(|(dig, app, migration, priority)| Movability { dig, app, migration, priority: priority.clamp(1, 10) as u8 })
        .collect())
}

/// Activates or deactivates a policy of a project. Returns false if another one is active.
///
/// # Errors
/// The database fails.
pub async fn set_active(tx: &mut Tx, project: Uuid, policy: Uuid, active: bool) -> StoreResult<bool> {
    if !active {
        sqlx::query("delete from active_policy where policy = $1").bind(policy).execute(&mut **tx).await?;
        return Ok(true);
    }
    let set = sqlx::query(
        "insert into active_policy (project, policy) values ($1, $2)
         on conflict (project) do update set policy = excluded.policy where active_policy.policy = excluded.policy",
    )
    .bind(project)
    .bind(policy)
    .execute(&mut **tx)
    .await?;
    Ok(set.rows_affected() == 1)
}

/// The active policy of a project.
///
/// # Errors
/// The database fails.
pub async fn active(db: &mut PgConnection, project: Uuid) -> StoreResult<Option<Uuid>> {
    Ok(sqlx::query_scalar("select policy from active_policy where project = $1").bind(project).fetch_optional(db).await?)
}

/// The active policies that move apps without a newcomer, of all projects: name of the project and id of the policy.
///
/// # Errors
/// The database fails.
pub async fn active_with_planned_moves(db: &mut PgConnection) -> StoreResult<Vec<(String, Uuid)>> {
    let sql = "select split_part(path, '/', 4), policy from active_policy join resource on resource.id = policy
        where jsonb_typeof(spec -> 'plannedMoves') = 'object' order by path";
    Ok(sqlx::query_as(sql).fetch_all(db).await?)
}

/// Whether a built-in document was made before.
///
/// # Errors
/// The database fails.
pub async fn is_made(store: &Store, path: &str) -> StoreResult<bool> {
    Ok(sqlx::query_scalar("select exists (select from builtin where path = $1)").bind(path).fetch_one(&mut *store.acquire().await?).await?)
}

/// Records that a built-in document was made.
///
/// # Errors
/// The database fails.
pub async fn note_made(store: &Store, path: &str) -> StoreResult<()> {
    sqlx::query("insert into builtin (path) values ($1) on conflict do nothing").bind(path).execute(&mut *store.acquire().await?).await?;
    Ok(())
}

/// The documents of other services that are parents of migration's documents, each with the path of one child.
///
/// # Errors
/// The database fails.
pub async fn foreign_parents(store: &Store) -> StoreResult<Vec<(Uuid, String)>> {
    Ok(sqlx::query_as(
        "select distinct on (foreign_parent) foreign_parent, path from resource where foreign_parent is not null and parent_id is null order by foreign_parent, path",
    ).fetch_all(&mut *store.acquire().await?).await?)
}
