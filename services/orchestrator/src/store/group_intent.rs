//! The intents of a group: what it uses of the documents below it.

use std::collections::BTreeSet;

use drover_resources::{ResourceError, TypedDocument, children};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::resources::GROUP_INTENT;
use crate::resources::group_intent::GroupIntentSpec;

/// The names of the intents that a group names. As in EMCO, an intent of a controller counts only if it is one of them.
///
/// # Errors
/// A query failed.
pub async fn named(tx: &mut PgConnection, dig: Uuid) -> Result<BTreeSet<String>, ResourceError> {
    let intents: Vec<TypedDocument<GroupIntentSpec>> = children(tx, &GROUP_INTENT, dig).await?;
    Ok(intents.into_iter().flat_map(|intent| intent.spec.intent.into_values()).collect())
}
