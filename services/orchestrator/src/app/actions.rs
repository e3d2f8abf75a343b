//! What the documents of EMCO's action controllers do to the objects of apps: generic Kubernetes intents (`gac`) add and change objects, and
//! traffic intents (`dtc`) become NetworkPolicies. As in EMCO, an intent counts only if an intent of the group names it.

mod change;
mod generic;
mod traffic;

use std::collections::BTreeSet;

use drover_resources::{NoSpec, TypedDocument};
use serde_json::Value;
use sqlx::PgConnection;

use super::{Error, Group};
use crate::render::Rendered;
use crate::resources::GROUP_INTENT;
use crate::resources::controllers::generic::GENERIC_INTENT;
use crate::resources::controllers::traffic::TRAFFIC_GROUP_INTENT;
use crate::resources::group_intent::GroupIntentSpec;

/// What is to be done to the objects of the apps of a group.
#[derive(Clone, Debug, Default)]
pub struct Actions {
    objects: Vec<generic::ObjectAction>,
    policies: Vec<traffic::Policy>,
}

/// Reads the actions of a group with these apps.
///
/// # Errors
/// An intent names an app that does not exist or asks for something that Drover does not do, or a query failed.
pub async fn of(tx: &mut PgConnection, group: &Group, apps: &[String]) -> Result<Actions, Error> {
    let named = drover_resources::children::<GroupIntentSpec>(&mut *tx, &GROUP_INTENT, group.document.id).await?;
    let named: BTreeSet<String> = named.into_iter().flat_map(|intent| intent.spec.intent.into_values()).collect();
    let (mut actions, mut broken) = (Actions::default(), Vec::new());
    let generic: Vec<TypedDocument<NoSpec>> = drover_resources::children(&mut *tx, &GENERIC_INTENT, group.document.id).await?;
    for intent in generic.into_iter().filter(|intent| named.contains(&intent.name)) {
        actions.objects.extend(generic::of(&mut *tx, &intent, &mut broken).await?);
    }
    let traffic: Vec<TypedDocument<NoSpec>> = drover_resources::children(&mut *tx, &TRAFFIC_GROUP_INTENT, group.document.id).await?;
    for intent in traffic.into_iter().filter(|intent| named.contains(&intent.name)) {
        actions.policies.extend(traffic::of(&mut *tx, &intent, &mut broken).await?);
    }
    let used = actions.objects.iter().map(|action| &action.app).chain(actions.policies.iter().map(|policy| &policy.app));
    broken.extend(used.filter(|app| !apps.contains(app)).map(|app| format!("an intent names the app {app}, which does not exist")));
    if broken.is_empty() { Ok(actions) } else { Err(Error::Inconsistent(broken)) }
}

impl Actions {
    /// The objects of an app after the actions.
    ///
    /// # Errors
    /// A change does not fit the object that it names.
    pub fn carried_out(&self, app: &str, rendered: Rendered) -> Result<Rendered, Error> {
        let objects: Vec<_> = self.objects.iter().filter(|action| action.app == app).collect();
        let policies: Vec<_> = self.policies.iter().filter(|policy| policy.app == app).collect();
        if objects.is_empty() && policies.is_empty() {
            return Ok(rendered);
        }
        let inconsistent = |reason: String| Error::Inconsistent(vec![format!("{app}: {reason}")]);
        let mut all: Vec<Value> = rendered.objects;
        for action in objects {
            action.carry_out(&mut all).map_err(inconsistent)?;
        }
        all.extend(policies.into_iter().map(|policy| policy.object.clone()));
        Rendered::of(all).map_err(inconsistent)
    }
}
