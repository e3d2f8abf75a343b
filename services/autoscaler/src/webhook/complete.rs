//! Adds what an admission request cannot: the Service of the pods and the ScalingPolicy; then the sidecar, if the Deployment was admitted
//! without it; and last, when all pods have one, the Service of the app loses its selector. Without the annotation all of that goes again.
//!
//! Only the agent that acts does this. A pass reads everything anew, so nothing is lost by a restart or by a request that nobody answered.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use drover_autoscaling::to_zero::{HAS_SIDECAR, is_expanded, original};
use drover_tasks::TaskHandle;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, PartialObjectMeta};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::expanded::{Expanded, MADE_BY, SCALE_TO_ZERO, covers, expanded, is_asked, is_by_drover};
use super::{Acts, Shared};
use crate::path::slices;

/// Time between two passes, unless something was admitted.
const PERIOD: Duration = Duration::from_secs(10);
/// After something was admitted: it is stored only then.
const SOON: Duration = Duration::from_millis(500);
/// Field manager of what is added.
const MANAGER: &str = "drover-scale-to-zero";
/// Objects that are read at once.
const PAGE: u32 = 500;

/// A kind of objects.
pub struct Kind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
}

/// The kind that may ask for scale to zero.
pub const DEPLOYMENT: Kind = Kind { group: "apps", version: "v1", kind: "Deployment", plural: "deployments" };
const SERVICE: Kind = Kind { group: "", version: "v1", kind: "Service", plural: "services" };
const SLICE: Kind = Kind { group: "discovery.k8s.io", version: "v1", kind: "EndpointSlice", plural: "endpointslices" };
const POLICY: Kind = Kind { group: "drover.io", version: "v1alpha1", kind: "ScalingPolicy", plural: "scalingpolicies" };
const AUTOSCALER: Kind = Kind { group: "autoscaling", version: "v2", kind: "HorizontalPodAutoscaler", plural: "horizontalpodautoscalers" };

impl Kind {
    fn resource(&self) -> ApiResource {
        let api_version = if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) };
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version,
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }

    fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.resource())
    }

    /// Items of a list do not say what they are.
    fn value(&self, object: DynamicObject) -> Result<Value, String> {
        let mut value = serde_json::to_value(object).map_err(|error| error.to_string())?;
        (value["apiVersion"], value["kind"]) = (json!(self.resource().api_version), json!(self.kind));
        Ok(value)
    }
}

/// An object of the cluster.
///
/// # Errors
/// A sentence for people.
pub async fn read(client: &Client, kind: &Kind, namespace: &str, name: &str) -> Result<Option<Value>, String> {
    let found = kind.api(client, namespace).get_opt(name).await;
    found.map_err(|error| format!("{} {name} cannot be read: {error}", kind.kind))?.map(|object| kind.value(object)).transpose()
}

/// The Services and HorizontalPodAutoscalers of a namespace.
///
/// # Errors
/// A sentence for people.
pub async fn others(client: &Client, namespace: &str) -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    for kind in [SERVICE, AUTOSCALER] {
        let list = kind.api(client, namespace).list(&ListParams::default()).await;
        for object in list.map_err(|error| format!("objects of the kind {} cannot be read: {error}", kind.kind))?.items {
            all.push(kind.value(object)?);
        }
    }
    Ok(all)
}

/// Makes passes while this agent acts; never returns.
pub async fn run(shared: Arc<Shared>, namespace: Option<String>, acts: Acts, task: TaskHandle) {
    // Why apps are not scaled to zero, as it was logged.
    let mut said = HashMap::new();
    loop {
        task.active();
        if acts()
            && let Err(error) = pass(&shared, namespace.as_deref(), &acts, &mut said).await
        {
            tracing::warn!(error, "what scale to zero needs cannot be added now; the next attempt is soon");
        }
        if tokio::time::timeout(PERIOD, shared.admitted.notified()).await.is_ok() {
            tokio::time::sleep(SOON).await;
        }
    }
}

async fn pass(shared: &Shared, namespace: Option<&str>, acts: &Acts, said: &mut HashMap<(String, String), String>) -> Result<(), String> {
    let Deployments { asked, left } = deployments(&shared.client, namespace).await?;
    for app in &asked {
        if !acts() {
            return Ok(());
        }
        match complete(shared, app).await {
            Ok(()) => drop(said.remove(app)),
            Err(reason) if said.get(app) == Some(&reason) => {}
            Err(reason) => {
                tracing::warn!(namespace = app.0, deployment = app.1, reason, "it is not scaled to zero");
                said.insert(app.clone(), reason);
            }
        }
    }
    said.retain(|app, _| asked.contains(app));
    let mut failed = undo_others(shared, namespace, &asked).await?;
    for app in left.into_iter().chain(made_for(&shared.client, namespace).await?) {
        // While its Service leads to the path, its pods need the sidecar.
        if !asked.contains(&app)
            && !failed.contains_key(&app)
            && let Err(error) = take_rest(&shared.client, &app).await
        {
            failed.insert(app, error);
        }
    }
    let mut failed: Vec<String> = failed.into_values().collect();
    failed.sort();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// Namespaces and names of Deployments.
struct Deployments {
    /// Those with the annotation.
    asked: HashSet<(String, String)>,
    /// Those without it that have got a sidecar.
    left: Vec<(String, String)>,
}

/// Only metadata is read, page by page: a cluster may have many.
async fn deployments(client: &Client, namespace: Option<&str>) -> Result<Deployments, String> {
    let api: Api<Deployment> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut found = Deployments { asked: HashSet::new(), left: Vec::new() };
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list_metadata(&params).await.map_err(|error| format!("Deployments cannot be listed: {error}"))?;
        for PartialObjectMeta { metadata, .. } in page.items {
            let object = json!({"kind": "Deployment", "metadata": {"labels": metadata.labels, "annotations": metadata.annotations}});
            let name = (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
            match metadata.deletion_timestamp {
                Some(_) => {}
                None if is_asked(&object) => drop(found.asked.insert(name)),
                None if has_left(&object) => found.left.push(name),
                None => {}
            }
        }
        match page.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => params = params.continue_token(&more),
            None => return Ok(found),
        }
    }
}

/// Whether a Deployment does not ask for scale to zero any more and has got a sidecar.
fn has_left(deployment: &Value) -> bool {
    !is_asked(deployment) && !is_by_drover(deployment) && deployment["metadata"]["annotations"].get(HAS_SIDECAR).is_some()
}

/// Brings one app a step further. The keeper of its path forgets the old addresses of its Service ([`crate::path::stale`]).
async fn complete(shared: &Shared, (namespace, name): &(String, String)) -> Result<(), String> {
    let client = &shared.client;
    let Some(deployment) = read(client, &DEPLOYMENT, namespace, name).await?.filter(is_asked) else { return Ok(()) };
    let others = others(client, namespace).await?;
    let wanted = expanded(&deployment, &others, &shared.image)?;
    for object in &wanted.added {
        let kind = if object["kind"] == "Service" { &SERVICE } else { &POLICY };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let found = read(client, kind, namespace, name).await?;
        if found.as_ref().is_some_and(|found| !made(found)) {
            return Err(format!("there is a {} {name} already, which was not made for scale to zero; rename it", kind.kind));
        }
        if !found.is_some_and(|found| covers(&found, object)) {
            let applied = kind.api(client, namespace).patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await;
            applied.map_err(|error| format!("{} {name} cannot be applied: {error}", kind.kind))?;
        }
    }
    let Expanded { deployment: with_sidecar, service, .. } = wanted;
    if !covers(&deployment, &with_sidecar) {
        replace(client, &DEPLOYMENT, with_sidecar).await?;
        tracing::info!(namespace, deployment = name, "it has a sidecar now, and will be scaled to zero");
        return Ok(());
    }
    let service_name = service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let found = others.iter().find(|other| other["kind"] == "Service" && other["metadata"]["name"] == service_name.as_str());
    // A pod without the sidecar would get no requests any more.
    let selects = found.is_some_and(|found| found["spec"].get("selector").is_some());
    if !rolled_out(&deployment) {
        return Ok(());
    }
    if selects || !found.is_some_and(|found| covers(found, &service)) {
        replace(client, &SERVICE, service).await?;
    }
    Ok(())
}

/// Whether all its pods are of the present template.
fn rolled_out(deployment: &Value) -> bool {
    let count = |field: &str| deployment["status"][field].as_i64().unwrap_or_default();
    deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"] && count("updatedReplicas") == count("replicas")
}

/// The Services of a label in one namespace, or in all.
async fn services(client: &Client, namespace: Option<&str>, label: String) -> Result<Vec<DynamicObject>, String> {
    let resource = SERVICE.resource();
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let list = api.list(&ListParams::default().labels(&label)).await;
    Ok(list.map_err(|error| format!("Services cannot be listed: {error}"))?.items)
}

/// Namespaces and names of the apps for which Services of pods were made.
async fn made_for(client: &Client, namespace: Option<&str>) -> Result<Vec<(String, String)>, String> {
    let made = services(client, namespace, format!("{MADE_BY}={SCALE_TO_ZERO}")).await?;
    let app = |service: DynamicObject| Some((service.metadata.namespace?, service.metadata.labels?.remove(slices::POLICY)?));
    Ok(made.into_iter().filter_map(app).collect())
}

/// Gives Services their selectors back whose Deployments do not ask for scale to zero any more, and deletes what was added for them. Returns
/// the apps of which that failed, and why.
async fn undo_others(
    shared: &Shared,
    namespace: Option<&str>,
    asked: &HashSet<(String, String)>,
) -> Result<HashMap<(String, String), String>, String> {
    let mut failed = HashMap::new();
    for service in services(&shared.client, namespace, format!("{}={}", slices::PATH, slices::PUBLIC)).await? {
        let service = SERVICE.value(service)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (metadata, policy) = (&service["metadata"], text(&service["metadata"]["labels"][slices::POLICY]));
        let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        let app = (namespace, policy);
        if !is_expanded(&service) || !metadata["deletionTimestamp"].is_null() || asked.contains(&app) {
            continue;
        }
        // One that cannot be written keeps no other one from being undone.
        match undo(&shared.client, service, &app.0, &name, &app.1).await {
            Ok(()) => tracing::info!(
                namespace = app.0,
                service = name,
                "it leads to the pods of its app again, which is not scaled to zero any more"
            ),
            Err(error) => drop(failed.insert(app, error)),
        }
    }
    Ok(failed)
}

/// Whether an object was made for scale to zero.
fn made(object: &Value) -> bool {
    object["metadata"]["labels"][MADE_BY] == SCALE_TO_ZERO
}

/// Undoes everything for one Service. Its own annotation goes last, because a later pass finds by it what is left.
async fn undo(client: &Client, service: Value, namespace: &str, name: &str, policy: &str) -> Result<(), String> {
    let mut leads = service.clone();
    leads["spec"] = original(service)["spec"].take();
    replace(client, &SERVICE, leads).await?;
    for (kind, name) in [(&POLICY, policy), (&SERVICE, &*format!("{name}-pods"))] {
        delete_made(client, kind, namespace, name).await?;
    }
    let slice = slices::name(name);
    let deleted = gone(SLICE.api(client, namespace).delete(&slice, &DeleteParams::default()).await);
    deleted.map_err(|error| format!("EndpointSlice {slice} cannot be deleted: {error}"))?;
    // The annotation may have gone while nobody answered the API server: then the sidecar is still there, and perhaps no pod.
    let left = |found: &Value| is_expanded(found) && !is_asked(found) && !is_by_drover(found);
    if let Some(deployment) = read(client, &DEPLOYMENT, namespace, policy).await?.filter(left) {
        replace(client, &DEPLOYMENT, plain(deployment)).await?;
    }
    match read(client, &SERVICE, namespace, name).await?.filter(is_expanded) {
        Some(again) => replace(client, &SERVICE, original(again)).await,
        None => Ok(()),
    }
}

/// Undoes scale to zero for an app that stopped asking for it before its Service lost the selector, so that [`undo_others`] does not find it.
/// The sidecar and its mark go last: a later pass finds by the mark what is left.
async fn take_rest(client: &Client, (namespace, name): &(String, String)) -> Result<(), String> {
    let left = |found: &Value| !is_asked(found) && !is_by_drover(found);
    let Some(deployment) = read(client, &DEPLOYMENT, namespace, name).await?.filter(left) else { return Ok(()) };
    let made = services(client, Some(namespace), format!("{MADE_BY}={SCALE_TO_ZERO},{}={name}", slices::POLICY)).await?;
    delete_made(client, &POLICY, namespace, name).await?;
    for service in made.into_iter().filter_map(|service| service.metadata.name) {
        delete_made(client, &SERVICE, namespace, &service).await?;
    }
    // An earlier agent has put the sidecar in without the mark.
    if is_expanded(&deployment) || has_left(&deployment) {
        replace(client, &DEPLOYMENT, plain(deployment)).await?;
        tracing::info!(namespace, deployment = name, "its sidecar goes, because it does not ask for scale to zero any more");
    }
    Ok(())
}

/// A Deployment without its sidecar, which is not left without a pod.
fn plain(deployment: Value) -> Value {
    let expanded = is_expanded(&deployment);
    let mut plain = original(deployment);
    if expanded && plain["spec"]["replicas"] == 0 {
        plain["spec"]["replicas"] = 1.into();
    }
    plain
}

/// Deletes an object if it was made for scale to zero.
async fn delete_made(client: &Client, kind: &Kind, namespace: &str, name: &str) -> Result<(), String> {
    if read(client, kind, namespace, name).await?.as_ref().is_some_and(made) {
        let deleted = gone(kind.api(client, namespace).delete(name, &DeleteParams::default()).await);
        deleted.map_err(|error| format!("{} {name} cannot be deleted: {error}", kind.kind))?;
    }
    Ok(())
}

/// Writes an object as it is here, unless it has changed since it was read.
async fn replace(client: &Client, kind: &Kind, object: Value) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    let failed = |error: String| format!("{} {name} cannot be written: {error}", kind.kind);
    let object: DynamicObject = serde_json::from_value(object).map_err(|error| failed(error.to_string()))?;
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let written = kind.api(client, &namespace).replace(&name, &params, &object).await;
    written.map(drop).map_err(|error| failed(error.to_string()))
}

/// Deleting what is not there is no failure.
fn gone<T>(deleted: kube::Result<T>) -> kube::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(drop),
    }
}
