//! The routes of all groups: their own documents, and what traffic intents ask for.

use drover_resources::{ResourceError, TypedDocument, children, of_kind};
use drover_store::StoreResult;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::intent_routes;
use crate::resources::ROUTE;
use crate::resources::route::RouteSpec;

/// All routes, by path.
///
/// # Errors
/// A query failed.
pub async fn all(tx: &mut PgConnection) -> Result<Vec<TypedDocument<RouteSpec>>, ResourceError> {
    let mut routes: Vec<TypedDocument<RouteSpec>> = of_kind(&mut *tx, &ROUTE).await?;
    routes.extend(intent_routes::all(tx).await?);
    routes.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(routes)
}

/// The routes of a group.
///
/// # Errors
/// A query failed.
async fn of_group(tx: &mut PgConnection, dig: Uuid) -> Result<Vec<TypedDocument<RouteSpec>>, ResourceError> {
    let mut routes: Vec<TypedDocument<RouteSpec>> = children(&mut *tx, &ROUTE, dig).await?;
    routes.extend(intent_routes::of_group(tx, dig).await?);
    Ok(routes)
}

/// The routes of an app.
///
/// # Errors
/// A query failed.
pub async fn of_app(tx: &mut PgConnection, dig: Uuid, app: &str) -> Result<Vec<TypedDocument<RouteSpec>>, ResourceError> {
    let mut routes = of_group(tx, dig).await?;
    routes.retain(|route| route.spec.app == app);
    Ok(routes)
}

/// The paths and routes of all groups on a port, except the one at `path`. Until the transaction ends, others who ask for this port wait: of
/// two routes that are written at the same time the second finds the first.
///
/// # Errors
/// A query failed.
pub async fn on_port(tx: &mut PgConnection, port: u16, path: &str) -> StoreResult<Vec<(String, RouteSpec)>> {
    sqlx::query("select pg_advisory_xact_lock(hashtext('route'), $1)").bind(i32::from(port)).execute(&mut *tx).await?;
    let sql = "select path, spec from resource where kind = $1 and path <> $2 and (spec ->> 'port')::int = $3 order by path";
    let found: Vec<(String, Json<RouteSpec>)> = sqlx::query_as(sql).bind(ROUTE.name).bind(path).bind(i32::from(port)).fetch_all(tx).await?;
    Ok(found.into_iter().map(|(path, Json(route))| (path, route)).collect())
}
