//! Weights of copies while an app is being moved, and the copies of routes.

use drover_store::StoreResult;
use sqlx::{FromRow, PgConnection};
use uuid::Uuid;

use super::binding::Role;

/// A copy of an app that has a route.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct RoutedCopy {
    pub binding: Uuid,
    pub dig_id: Uuid,
    pub app: String,
    pub member: String,
    pub digest: String,
    pub role: Role,
    /// Set while its app is being moved.
    pub weight: Option<i16>,
}

impl RoutedCopy {
    /// Its share of new requests.
    pub fn weight(&self) -> u16 {
        self.weight.and_then(|weight| u16::try_from(weight).ok()).unwrap_or(if self.role == Role::Current { 100 } else { 0 })
    }
}

/// The copies of these groups that serve or are to serve, the oldest first.
///
/// # Errors
/// The query failed.
pub async fn copies(db: &mut PgConnection, digs: &[Uuid]) -> StoreResult<Vec<RoutedCopy>> {
    let sql = "select id as binding, dig_id, app, member, digest, role, weight from binding left join traffic_weight on binding = id
        where dig_id = any($1) and role in ('current', 'target') order by created_at, id";
    Ok(sqlx::query_as(sql).bind(digs).fetch_all(db).await?)
}

/// Sets the weight of a copy that an operation moves.
///
/// # Errors
/// The query failed.
pub async fn set(tx: &mut PgConnection, operation: Uuid, binding: Uuid, weight: u16) -> StoreResult<()> {
    let sql = "insert into traffic_weight (binding, operation, weight) values ($1, $2, $3)
        on conflict (binding) do update set operation = excluded.operation, weight = excluded.weight";
    sqlx::query(sql).bind(binding).bind(operation).bind(i16::try_from(weight).unwrap_or(100)).execute(tx).await?;
    Ok(())
}

/// Ends the weights of an operation: from now on the roles of the copies count.
///
/// # Errors
/// The query failed.
pub async fn clear(tx: &mut PgConnection, operation: Uuid) -> StoreResult<()> {
    sqlx::query("delete from traffic_weight where operation = $1").bind(operation).execute(tx).await?;
    Ok(())
}
