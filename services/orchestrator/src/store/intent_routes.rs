//! Routes that traffic intents of EMCO ask for: an inbound intent with `externalSupport` and an `externalName`. As for everything that
//! controllers do, an intent counts only if an intent of the group names it.

use std::collections::BTreeSet;

use drover_resources::{NoSpec, ResourceError, TypedDocument, children, of_kind};
use sqlx::PgConnection;
use uuid::Uuid;

use super::group_intent;
use crate::resources::controllers::traffic::{INBOUND_SERVER_INTENT, InboundServerIntentSpec, TRAFFIC_GROUP_INTENT};
use crate::resources::route::RouteSpec;

type Route = TypedDocument<RouteSpec>;

/// Those of all groups.
///
/// # Errors
/// A query failed.
pub async fn all(tx: &mut PgConnection) -> Result<Vec<Route>, ResourceError> {
    let intents: Vec<TypedDocument<NoSpec>> = of_kind(&mut *tx, &TRAFFIC_GROUP_INTENT).await?;
    let groups: BTreeSet<Uuid> = intents.iter().filter_map(|intent| intent.parent_id).collect();
    let mut routes = Vec::new();
    for group in groups {
        routes.extend(of_group(&mut *tx, group).await?);
    }
    Ok(routes)
}

/// Those of one group.
///
/// # Errors
/// A query failed.
pub async fn of_group(tx: &mut PgConnection, dig: Uuid) -> Result<Vec<Route>, ResourceError> {
    let intents: Vec<TypedDocument<NoSpec>> = children(&mut *tx, &TRAFFIC_GROUP_INTENT, dig).await?;
    if intents.is_empty() {
        return Ok(Vec::new());
    }
    let named = group_intent::named(&mut *tx, dig).await?;
    let mut routes = Vec::new();
    for intent in intents.into_iter().filter(|intent| named.contains(&intent.name)) {
        let servers = children(&mut *tx, &INBOUND_SERVER_INTENT, intent.id).await?;
        routes.extend(servers.into_iter().filter_map(|server| route(&intent, server)));
    }
    Ok(routes)
}

/// The route of an intent, as a document directly below its group.
fn route(intent: &TypedDocument<NoSpec>, server: TypedDocument<InboundServerIntentSpec>) -> Option<Route> {
    let spec = server.spec.route()?.ok()?;
    let group = intent.path.rsplitn(3, '/').nth(2)?;
    let name = format!("{}-{}", intent.name, server.name);
    Some(TypedDocument {
        id: server.id,
        path: format!("{group}/inbound-intents/{name}"),
        name,
        parent_id: intent.parent_id,
        foreign_parent: None,
        version: server.version,
        metadata: server.metadata,
        spec,
        file_digest: None,
    })
}
