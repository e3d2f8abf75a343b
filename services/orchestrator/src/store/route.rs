//! The routes of all groups: their own documents, and what traffic intents ask for.

use drover_resources::{ResourceError, TypedDocument, children, of_kind};
use sqlx::PgConnection;
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
pub async fn of_group(tx: &mut PgConnection, dig: Uuid) -> Result<Vec<TypedDocument<RouteSpec>>, ResourceError> {
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
