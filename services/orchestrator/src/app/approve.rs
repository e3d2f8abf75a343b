//! `approve`: renders every app of the group into a bundle, reads the demand from the bundle, and checks intents and profiles
//! against each other. Nothing is written before all of it has succeeded, so a chart that does not render leaves the group
//! as it was. Instantiate uses what was approved, even if documents have changed since.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::scheduling::{AppRequest, PlacementTerms};
use drover_autoscaling::to_zero;
use drover_members::labels;
use drover_resources::{NoSpec, TypedDocument};
use drover_store::{SealKey, Store};
use serde_json::Value;
use sqlx::PgConnection;

use super::controllers::{self, AppObjects, ControllerAnswer, ControllerKind};
use super::terms::{self, CloudMembers};
use super::{App, Error, Group, GroupPath, actions, calls, grants, group};
use crate::demand;
use crate::render::prefer::PreferredPeers;
use crate::render::{self, AppSource, RenderError, Rendered};
use crate::resources::app::AppSpec;
use crate::resources::logical_cloud::LogicalCloudSpec;
use crate::resources::profile::ProfileSpec;
use crate::resources::{APP, COMPOSITE_PROFILE, DIG, PROFILE};
use crate::store::deployment::{self, ApprovedApp, DeploymentState};
use crate::store::revision::RevisionApp;
use crate::store::{agent, bundle, hold};

/// A rendered group, not yet stored.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub group: Group,
    pub apps: Vec<ApprovedApp>,
    pub bundles: Vec<Rendered>,
    /// Placement terms by app, from the documents as they are now.
    pub terms: BTreeMap<String, PlacementTerms>,
    /// What controllers answered.
    pub answers: Vec<ControllerAnswer>,
}

impl Prepared {
    /// The request to placement for each app.
    pub fn requests(&self) -> Vec<AppRequest> {
        requests(&self.apps, &self.terms)
    }

    /// Its apps as a revision has them.
    pub fn revision(&self) -> Vec<RevisionApp> {
        let terms = |app: &ApprovedApp| self.terms.get(&app.app).cloned().unwrap_or_default();
        self.apps.iter().map(|app| RevisionApp { terms: terms(app), app: app.clone() }).collect()
    }

    /// Stores the bundles.
    ///
    /// # Errors
    /// A query failed.
    pub async fn store_bundles(&self, tx: &mut PgConnection, key: &SealKey) -> Result<(), Error> {
        for rendered in &self.bundles {
            bundle::put(tx, key, rendered).await?;
        }
        Ok(())
    }
}

/// The request to placement for each of these apps.
pub fn requests(apps: &[ApprovedApp], terms: &BTreeMap<String, PlacementTerms>) -> Vec<AppRequest> {
    let request = |app: &ApprovedApp| AppRequest {
        app: app.app.clone(),
        demand: app.demand.clone(),
        terms: terms.get(&app.app).cloned().unwrap_or_default(),
    };
    apps.iter().map(request).collect()
}

impl App {
    /// Approves a group. One that is approved already is rendered again. With `dry` nothing is written.
    ///
    /// # Errors
    /// The group does not exist, is in another state or is being changed by an operation; its documents are inconsistent; an app
    /// cannot be rendered.
    pub async fn approve(&self, path: &GroupPath, dry: bool) -> Result<Prepared, Error> {
        let prepared = self
            .prepare(path, dry, |state| match state {
                DeploymentState::Instantiated => {
                    Err(Error::WrongState { verb: "approve", state, allowed: &["Created", "Approved", "Terminated", "InstantiateStopped"] })
                }
                _ => Ok(()),
            })
            .await?;
        if dry {
            return Ok(prepared);
        }
        let dig = prepared.group.dig.id;
        let mut tx = self.store.begin().await?;
        // Its state may have changed while it was rendered.
        let before = deployment::load(&mut tx, dig, true).await?;
        if let Some(holder) = hold::holder(&mut tx, dig).await? {
            return Err(Error::Busy { holder });
        }
        if before.state == DeploymentState::Instantiated {
            return Err(Error::WrongState {
                verb: "approve",
                state: before.state,
                allowed: &["Created", "Approved", "Terminated", "InstantiateStopped"],
            });
        }
        prepared.store_bundles(&mut tx, self.store.key()?).await?;
        if before.state != DeploymentState::Approved {
            deployment::reach(&mut tx, dig, DeploymentState::Approved, before.revision, None).await?;
        }
        deployment::approve_apps(&mut tx, dig, &prepared.apps).await?;
        deployment::set_controller_answers(&mut tx, dig, &prepared.answers).await?;
        tx.commit().await?;
        Ok(prepared)
    }

    /// Reads and renders a group, if `allowed` accepts its state. Writes nothing. Controllers are told whether it is a dry run.
    ///
    /// # Errors
    /// As for [`App::approve`].
    pub async fn prepare(
        &self,
        path: &GroupPath,
        dry: bool,
        allowed: impl FnOnce(DeploymentState) -> Result<(), Error>,
    ) -> Result<Prepared, Error> {
        let mut db = self.store.acquire().await?;
        let group = group::at(&mut db, path).await?;
        allowed(deployment::load(&mut db, group.dig.id, false).await?.state)?;
        if let Some(holder) = hold::holder(&mut db, group.dig.id).await? {
            return Err(Error::Busy { holder });
        }
        let cloud = terms::cloud(&mut db, &group).await?;
        let named = controllers::named(&mut db, &group, ControllerKind::Action).await?;
        let labels = !named.is_empty() || actions::choose_by_label(&mut db, &group).await?;
        // Labels are another service's, which is asked without a connection.
        drop(db);
        let members = self.labelled(&cloud.members, labels).await?;
        let mut tx = self.store.begin().await?;
        let group = group.renewed();
        let sources = sources(&mut tx, &self.store, &group, &cloud).await?;
        let names: Vec<_> = sources.iter().map(|source| source.app.clone()).collect();
        let mut terms = terms::of(&mut tx, &group, &cloud, &names).await?;
        let routes = terms::routes(&mut tx, &group).await?;
        let actions = actions::of(&mut tx, &self.store, &group, &names, &members).await?;
        let prefer = calls::preferences(calls::of(&mut tx, &group).await?.as_ref(), &names);
        let autoscaler = agent::image(&mut tx, "autoscaler").await?;
        // Rendering takes seconds, so the connection is returned to the pool before it.
        tx.rollback().await?;

        let mut rendered = Vec::with_capacity(sources.len());
        for source in sources {
            let objects = scaled_to_zero(&source, render::render(self.renderer.as_ref(), &source).await?, autoscaler.as_deref())?;
            let objects = actions.carried_out(&source.app, objects)?;
            bounds_are_clear(&source.app, &objects.objects)?;
            rendered.push(AppObjects { app: source.app, namespace: source.namespace, rendered: objects });
        }
        let answers = self.controllers.act(&named, &group, &members, &mut rendered, dry).await?;
        let (apps, bundles) = checked(rendered, &cloud.document.spec, &prefer)?;
        terms::add_reach(&mut terms, &routes, &apps);
        Ok(Prepared { group: group.renewed(), apps, bundles, terms, answers })
    }
}

/// Checks what apps may write, and reads what they demand.
fn checked(
    rendered: Vec<AppObjects>,
    cloud: &LogicalCloudSpec,
    prefer: &BTreeMap<String, PreferredPeers>,
) -> Result<(Vec<ApprovedApp>, Vec<Rendered>), Error> {
    let (mut apps, mut bundles, mut not_granted, mut differing) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for AppObjects { app, namespace, mut rendered } in rendered {
        if let Some(peers) = prefer.get(&app) {
            rendered = rendered.preferring(peers);
        }
        let demand_of =
            |objects: &[Value]| demand::of(objects, &namespace).map_err(|error| Error::Demand { app: app.clone(), source: error });
        let demand = demand_of(&rendered.objects)?;
        if let Some(grants) = cloud.grants() {
            let all = rendered.variants.values().chain([&rendered.objects]);
            not_granted.extend(all.flat_map(|objects| grants::refusals(&grants, cloud.namespace(), &app, objects)));
        }
        for (member, objects) in &rendered.variants {
            // The ledger has one demand per app, wherever it runs.
            let there = demand_of(objects)?;
            if (&there.groups, &there.stateful, &there.immovable, there.at_most_once)
                != (&demand.groups, &demand.stateful, &demand.immovable, demand.at_most_once)
            {
                differing.push(format!(
                    "{app}: a change for single clusters must not change what pods request, which nodes they accept, or what keeps the app in its \
                     place (volumes, {}), as it does on {member}",
                    labels::AT_MOST_ONCE
                ));
            }
        }
        apps.push(ApprovedApp { digest: rendered.digest.clone(), demand, app, namespace });
        bundles.push(rendered);
    }
    if !differing.is_empty() {
        return Err(Error::Inconsistent(differing));
    }
    if !not_granted.is_empty() {
        let mut seen = BTreeSet::new();
        not_granted.retain(|reason| seen.insert(reason.clone()));
        return Err(Error::NotGranted(not_granted));
    }
    Ok((apps, bundles))
}

/// The app with what its Deployments need that are to be scaled to zero.
fn scaled_to_zero(source: &AppSource, rendered: Rendered, image: Option<&str>) -> Result<Rendered, Error> {
    if !to_zero::is_asked(&rendered.objects) {
        return Ok(rendered);
    }
    let image = image.ok_or_else(|| {
        "scale to zero needs the autoscaler in the clusters; `drover agents set autoscaler --on all --version VERSION` brings it there"
            .to_owned()
    });
    let refused = |reason| Error::Render(RenderError::Manifest { app: source.app.clone(), reason });
    image.and_then(|image| to_zero::expand(rendered.objects, image)).and_then(Rendered::of).map_err(refused)
}

/// Whether bounds over all members can be read.
fn bounds_are_clear(app: &str, objects: &[Value]) -> Result<(), Error> {
    let refused = |reason| Error::Render(RenderError::Manifest { app: app.to_owned(), reason });
    drover_members::bounds::of(objects).map(drop).map_err(refused)
}

/// What is to be rendered, by app.
pub(super) async fn sources(tx: &mut PgConnection, store: &Store, group: &Group, cloud: &CloudMembers) -> Result<Vec<AppSource>, Error> {
    let apps = group.below(&mut *tx).await?.children::<AppSpec>(&APP, group.composite_app.id)?;
    if apps.is_empty() {
        return Err(Error::Inconsistent(vec![format!("the composite app {} has no apps", group.composite_app.name)]));
    }
    let spec = drover_resources::opened(store, &DIG, &group.document)?;
    let unknown = spec.override_values.iter().filter(|values| !apps.iter().any(|app| app.name == values.app));
    let broken: Vec<_> = unknown.map(|values| format!("overrideValues names the app {}, which does not exist", values.app)).collect();
    if !broken.is_empty() {
        return Err(Error::Inconsistent(broken));
    }
    let profiles = profiles(&mut *tx, group).await?;
    let mut sources = Vec::new();
    for app in apps {
        let profile = match profiles.get(&app.name) {
            Some(digest) => file(&mut *tx, store, Some(digest)).await?,
            None => None,
        };
        let overrides =
            spec.override_values.iter().filter(|values| values.app == app.name).flat_map(|values| values.values.clone()).collect();
        sources.push(AppSource {
            file: file(&mut *tx, store, app.file_digest.as_deref()).await?.unwrap_or_default(),
            app: app.name,
            profile,
            overrides,
            release: spec.version.clone(),
            namespace: cloud.document.spec.namespace().to_owned(),
        });
    }
    Ok(sources)
}

/// Files of the profiles in the group's composite profile, by app.
async fn profiles(tx: &mut PgConnection, group: &Group) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let name = &group.document.spec.composite_profile;
    let path = format!("{}/{}/{name}", group.composite_app.path, COMPOSITE_PROFILE.segment);
    let composite: TypedDocument<NoSpec> = drover_resources::get(&mut *tx, &COMPOSITE_PROFILE, &path)
        .await?
        .ok_or_else(|| Error::Inconsistent(vec![format!("the composite profile {name} does not exist")]))?;
    let profiles = drover_resources::children::<ProfileSpec>(tx, &PROFILE, composite.id).await?;
    Ok(profiles.into_iter().filter_map(|profile| Some((profile.spec.app, profile.file_digest?))).collect())
}

async fn file(tx: &mut PgConnection, store: &Store, digest: Option<&[u8]>) -> Result<Option<Vec<u8>>, Error> {
    let Some(digest) = digest else { return Ok(None) };
    Ok(drover_resources::file(tx, store, digest).await?)
}

/// The approved apps of a group with their terms as they are now.
///
/// # Errors
/// The documents are inconsistent, or a query failed.
pub async fn approved_requests(tx: &mut PgConnection, group: &Group) -> Result<Vec<AppRequest>, Error> {
    let apps = deployment::approved_apps(&mut *tx, group.dig.id).await?;
    let cloud = terms::cloud(&mut *tx, group).await?;
    requests_of(tx, group, &cloud, &apps).await
}

/// As [`approved_requests`], of apps and a logical cloud that have been read.
///
/// # Errors
/// As for [`approved_requests`].
pub async fn requests_of(
    tx: &mut PgConnection,
    group: &Group,
    cloud: &CloudMembers,
    apps: &[ApprovedApp],
) -> Result<Vec<AppRequest>, Error> {
    let names: Vec<_> = apps.iter().map(|app| app.app.clone()).collect();
    let mut terms = terms::of(&mut *tx, group, cloud, &names).await?;
    terms::add_reach(&mut terms, &terms::routes(tx, group).await?, apps);
    Ok(requests(apps, &terms))
}

#[cfg(test)]
mod tests {
    use drover_api::scheduling::MemberKey;
    use serde_json::json;

    use super::*;

    #[test]
    fn change_for_single_clusters_that_ties_the_app_to_a_node_is_refused() {
        let objects = |pod: Value| {
            let spec =
                json!({"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod}});
            vec![json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})]
        };
        let containers = json!([{"name": "web", "image": "web:1"}]);
        let there = objects(json!({"containers": containers, "volumes": [{"name": "data", "hostPath": {"path": "/srv"}}]}));
        let rendered = Rendered::of(objects(json!({"containers": containers}))).unwrap();
        let rendered = rendered.with_variants([(MemberKey::new("aws", "c"), there)].into()).unwrap();
        let app = AppObjects { app: "web".into(), namespace: "default".into(), rendered };

        let refused = checked(vec![app], &LogicalCloudSpec::default(), &BTreeMap::new());

        assert!(matches!(&refused, Err(Error::Inconsistent(reasons)) if reasons[0].contains("volumes")), "{:?}", refused.err());
    }
}
