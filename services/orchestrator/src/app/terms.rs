//! Turns intents into placement terms with all defaults filled in: the app intent's, else the project's, else Drover's.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::scheduling::{Element, Intent, MemberKey, PlacementTerms, Reachability};
use drover_resources::{NoSpec, TypedDocument};
use sqlx::PgConnection;

use super::{Error, Group, calls};
use crate::resources::app_intent::AppIntentSpec;
use crate::resources::cluster_reference::ClusterReferenceSpec;
use crate::resources::controllers::traffic::TRAFFIC_GROUP_INTENT;
use crate::resources::group_intent::GroupIntentSpec;
use crate::resources::logical_cloud::LogicalCloudSpec;
use crate::resources::route::RouteSpec;
use crate::resources::{APP_INTENT, CLUSTER_REFERENCE, GENERIC_PLACEMENT_INTENT, GROUP_INTENT, LOGICAL_CLOUD, ROUTE};
use crate::store::deployment::ApprovedApp;
use crate::store::intent_routes;

/// The logical cloud of a group with its clusters.
#[derive(Clone, Debug)]
pub struct CloudMembers {
    pub document: TypedDocument<LogicalCloudSpec>,
    /// In order, without duplicates.
    pub members: Arc<[MemberKey]>,
}

/// Reads the logical cloud of a group.
///
/// # Errors
/// The logical cloud does not exist, or a query failed.
pub async fn cloud(tx: &mut PgConnection, group: &Group) -> Result<CloudMembers, Error> {
    let name = &group.document.spec.logical_cloud;
    let below = group.below(tx).await?;
    let document = below
        .at::<LogicalCloudSpec>(&LOGICAL_CLOUD, &group.logical_cloud_path())?
        .ok_or_else(|| Error::Inconsistent(vec![format!("the logical cloud {name} does not exist")]))?;
    let references = below.children::<ClusterReferenceSpec>(&CLUSTER_REFERENCE, document.id)?;
    let mut members: Vec<_> = references.iter().map(|reference| reference.spec.member()).collect();
    members.sort();
    members.dedup();
    Ok(CloudMembers { document, members: members.into() })
}

/// The placement terms of each of these apps.
///
/// # Errors
/// The documents are inconsistent, or a query failed.
pub async fn of(
    tx: &mut PgConnection,
    group: &Group,
    cloud: &CloudMembers,
    apps: &[String],
) -> Result<BTreeMap<String, PlacementTerms>, Error> {
    let intents = app_intents(&mut *tx, group).await?;
    let graph = calls::of(tx, group).await?;
    let mut broken = Vec::new();
    for intent in intents.keys().filter(|app| !apps.contains(app)) {
        broken.push(format!("an app intent names the app {intent}, which does not exist"));
    }
    if cloud.members.is_empty() {
        broken.push(format!("the logical cloud {} has no clusters", cloud.document.name));
    }
    if !broken.is_empty() {
        return Err(Error::Inconsistent(broken));
    }
    let defaults = &group.project.spec;
    let terms = |app: &String| {
        let intent = intents.get(app);
        PlacementTerms {
            // Without an intent an app may run anywhere in its logical cloud.
            intent: intent
                .map(|spec| tidy(&spec.intent))
                .filter(|intent| *intent != Intent::default())
                .unwrap_or_else(|| anywhere(&cloud.members)),
            logical_cloud: cloud.members.clone(),
            when_full: intent.and_then(|spec| spec.when_full).or(defaults.when_full).unwrap_or_default(),
            packing: intent.and_then(|spec| spec.packing).or(defaults.packing).unwrap_or_default(),
            allow_dependants: intent.and_then(|spec| spec.allow_dependants).or(defaults.allow_dependants),
            calls: graph.as_ref().map(|graph| graph.terms(app, &cloud.members)),
            // Known when the app's Services are.
            reached_by: Vec::new(),
            // Controllers are asked when the app is placed.
            advice: Vec::new(),
        }
    };
    Ok(apps.iter().map(|app| (app.clone(), terms(app))).collect())
}

/// The routes of a group.
///
/// # Errors
/// A query failed.
pub async fn routes(tx: &mut PgConnection, group: &Group) -> Result<Vec<RouteSpec>, Error> {
    let below = group.below(&mut *tx).await?;
    let mut routes = below.children::<RouteSpec>(&ROUTE, group.dig.id)?;
    if !below.children::<NoSpec>(&TRAFFIC_GROUP_INTENT, group.dig.id)?.is_empty() {
        routes.extend(intent_routes::of_group(tx, group.dig.id).await?);
    }
    Ok(routes.into_iter().map(|route| route.spec).collect())
}

/// Adds to the terms of apps with routes how the data path can reach them.
pub fn add_reach(terms: &mut BTreeMap<String, PlacementTerms>, routes: &[RouteSpec], apps: &[ApprovedApp]) {
    for app in apps {
        let Some(terms) = terms.get_mut(&app.app) else { continue };
        let by_data_path = |route: &&RouteSpec| route.gateway.is_none() && !route.allow_out_of_reach;
        let routed = || routes.iter().filter(|route| route.app == app.app).filter(by_data_path);
        if routed().next().is_none() {
            continue;
        }
        let is_open = |route: &RouteSpec, way: Reachability| {
            let mut open = app.demand.open_services.iter();
            open.any(|(service, ways)| service.rsplit('/').next() == Some(&route.service) && ways.contains(&way))
        };
        let ways = [Reachability::NodePort, Reachability::LoadBalancer].into_iter();
        terms.reached_by = ways.filter(|way| routed().all(|route| is_open(route, *way))).collect();
        terms.reached_by.insert(0, Reachability::PodNetwork);
    }
}

/// The app intents of the generic placement intent that the group uses, by app.
async fn app_intents(tx: &mut PgConnection, group: &Group) -> Result<BTreeMap<String, AppIntentSpec>, Error> {
    let below = group.below(tx).await?;
    let sets = below.children::<NoSpec>(&GENERIC_PLACEMENT_INTENT, group.document.id)?;
    let chosen = below.children::<GroupIntentSpec>(&GROUP_INTENT, group.document.id)?;
    let chosen = chosen.iter().find_map(|intent| intent.spec.generic_placement_intent());
    let set = match (chosen, sets.as_slice()) {
        (_, []) => return Ok(BTreeMap::new()),
        (Some(name), sets) => sets.iter().find(|set| set.name == name).ok_or_else(|| {
            Error::Inconsistent(vec![format!("the intents name the generic placement intent {name}, which does not exist")])
        })?,
        (None, [only]) => only,
        (None, _) => {
            return Err(Error::Inconsistent(vec!["there are several generic placement intents; name one in the group's intents".into()]));
        }
    };
    let mut by_app = BTreeMap::new();
    for intent in below.children::<AppIntentSpec>(&APP_INTENT, set.id)? {
        let app = intent.spec.app.clone();
        if by_app.insert(app.clone(), intent.spec).is_some() {
            return Err(Error::Inconsistent(vec![format!("the app {app} has several app intents in {}", set.name)]));
        }
    }
    Ok(by_app)
}

fn anywhere(members: &[MemberKey]) -> Intent {
    let element = |member: &MemberKey| Element {
        cluster_provider: Some(member.provider().to_owned()),
        cluster: Some(member.cluster().to_owned()),
        ..Element::default()
    };
    Intent { all_of: Vec::new(), any_of: members.iter().map(element).collect() }
}

/// Drops empty strings, which EMCO's clients send for fields that they leave out.
fn tidy(intent: &Intent) -> Intent {
    let text = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    fn elements(list: &[Element], text: &dyn Fn(&Option<String>) -> Option<String>) -> Vec<Element> {
        list.iter()
            .map(|element| Element {
                cluster_provider: text(&element.cluster_provider),
                cluster: text(&element.cluster),
                cluster_label: text(&element.cluster_label),
                any_of: elements(&element.any_of, text),
            })
            .collect()
    }
    Intent { all_of: elements(&intent.all_of, &text), any_of: elements(&intent.any_of, &text) }
}
