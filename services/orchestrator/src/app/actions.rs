//! What the documents of EMCO's action controllers do to the objects of apps: generic Kubernetes intents (`gac`) add and change objects,
//! hardware intents (`hpa`) say what pods need of nodes, and traffic intents (`dtc`) become NetworkPolicies. As in EMCO, an intent counts
//! only if an intent of the group names it.

pub(in crate::app) mod change;
pub(in crate::app) mod clusters;
mod generic;
mod hardware;
pub(in crate::app) mod objects;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};

use drover_api::scheduling::MemberKey;
use drover_resources::{NoSpec, TypedDocument};
use drover_store::Store;
use sqlx::PgConnection;

use self::clusters::LabelledMembers;
use self::objects::{Clusters, Objects};
use super::{App, Error, Group};
use crate::render::Rendered;
use crate::resources::controllers::generic::{CUSTOMIZATION, GENERIC_INTENT};
use crate::resources::controllers::hpa::{HPA_INTENT, HpaIntentSpec};
use crate::resources::controllers::traffic::TRAFFIC_GROUP_INTENT;
use crate::store::group_intent;

/// What is to be done to the objects of the apps of a group.
#[derive(Clone, Debug, Default)]
pub struct Actions {
    objects: Vec<generic::ObjectAction>,
    needs: Vec<hardware::Needs>,
    policies: Vec<traffic::Policy>,
}

/// Reads the actions of a group with these apps.
///
/// # Errors
/// An intent names an app that does not exist or asks for something that Drover does not do, or a query failed.
pub async fn of(tx: &mut PgConnection, store: &Store, group: &Group, apps: &[String], members: &LabelledMembers) -> Result<Actions, Error> {
    let named = group_intent::named(&mut *tx, group.document.id).await?;
    let (mut actions, mut broken) = (Actions::default(), Vec::new());
    let generic: Vec<TypedDocument<NoSpec>> = drover_resources::children(&mut *tx, &GENERIC_INTENT, group.document.id).await?;
    for intent in generic.into_iter().filter(|intent| named.contains(&intent.name)) {
        actions.objects.extend(generic::of((&mut *tx, store), &intent, members, &mut broken).await?);
    }
    let hardware: Vec<TypedDocument<HpaIntentSpec>> = drover_resources::children(&mut *tx, &HPA_INTENT, group.document.id).await?;
    for intent in hardware.into_iter().filter(|intent| named.contains(&intent.name)) {
        actions.needs.extend(hardware::of(&mut *tx, &intent).await?);
    }
    let traffic: Vec<TypedDocument<NoSpec>> = drover_resources::children(&mut *tx, &TRAFFIC_GROUP_INTENT, group.document.id).await?;
    for intent in traffic.into_iter().filter(|intent| named.contains(&intent.name)) {
        actions.policies.extend(traffic::of(&mut *tx, &intent, &mut broken).await?);
    }
    let used = actions.objects.iter().map(|action| &action.app).chain(actions.policies.iter().map(|policy| &policy.app));
    let used = used.chain(actions.needs.iter().map(|needs| &needs.app));
    broken.extend(used.filter(|app| !apps.contains(app)).map(|app| format!("an intent names the app {app}, which does not exist")));
    if broken.is_empty() { Ok(actions) } else { Err(Error::Inconsistent(broken)) }
}

impl Actions {
    /// The objects of an app after the actions.
    ///
    /// # Errors
    /// A change does not fit the object that it names.
    pub fn carried_out(&self, app: &str, rendered: Rendered) -> Result<Rendered, Error> {
        let of = |one: &str| one == app;
        let inconsistent = |reason: String| Error::Inconsistent(vec![format!("{app}: {reason}")]);
        let mut objects = Objects::of(rendered);
        for action in self.objects.iter().filter(|action| of(&action.app)) {
            action.carry_out(&mut objects).map_err(inconsistent)?;
        }
        for needs in self.needs.iter().filter(|needs| of(&needs.app)) {
            objects.change(&Clusters::Everywhere, |objects| needs.carry_out(objects)).map_err(inconsistent)?;
        }
        for policy in self.policies.iter().filter(|policy| of(&policy.app)) {
            let add = |objects: &mut Vec<_>| {
                objects.push(policy.object.clone());
                Ok(())
            };
            objects.change(&Clusters::Everywhere, add).map_err(inconsistent)?;
        }
        objects.rendered().map_err(inconsistent)
    }
}

/// Whether a change of the group chooses clusters by label.
///
/// # Errors
/// The query failed.
pub async fn choose_by_label(tx: &mut PgConnection, group: &Group) -> Result<bool, Error> {
    // The byte after '/' is '0': all paths below are in this range of the index on kind and path.
    let sql = "select exists (select from resource where kind = $1 and path > $2::text || '/' and path < $2 || '0'
        and spec ->> 'clusterSpecific' = 'true' and lower(spec -> 'clusterInfo' ->> 'scope') = 'label')";
    Ok(sqlx::query_scalar(sql).bind(CUSTOMIZATION.name).bind(&group.document.path).fetch_one(tx).await?)
}

impl App {
    /// These clusters, with their labels if those are wanted.
    pub(in crate::app) async fn labelled(&self, members: &[MemberKey], labels: bool) -> Result<LabelledMembers, Error> {
        let mut labelled: BTreeMap<MemberKey, BTreeSet<String>> = members.iter().map(|member| (member.clone(), BTreeSet::new())).collect();
        let providers: BTreeSet<&str> = members.iter().map(MemberKey::provider).filter(|_| labels).collect();
        for provider in providers {
            for (cluster, labels) in self.services.cluster_manager.labels(provider).await? {
                if let Some(known) = labelled.get_mut(&MemberKey::new(provider, &cluster)) {
                    known.extend(labels);
                }
            }
        }
        Ok(LabelledMembers(labelled))
    }
}
