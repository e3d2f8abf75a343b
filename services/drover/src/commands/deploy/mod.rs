//! `drover deploy`: makes EMCO resources from plain manifests, then calls approve and instantiate, or update.
//!
//! Can be repeated after a failure at any point: every resource is created or replaced by name, and the verb is chosen by the state of
//! the group.

mod args;
mod moves;
mod routes;
mod values;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use drover_api::ledger::ClusterCapacity;
use drover_api::operations::{Operation, OperationState};
use drover_api::scheduling::MemberKey;
use drover_resources::is_dns_label;
use serde_json::{Value, json};

pub use self::args::{DeployArgs, MovableArg, WhenFullArg};
use self::values::Values;
pub use self::values::put_profile;
use super::before::Before;
use super::manifests::{self, Deployable, Upload};
use super::{Session, cluster, newcomer};
use crate::globals::Format;
use crate::hub::{self, Answer, segment};
use crate::input::Input;
use crate::{output, watch};

const VERSION: &str = "v1";
const NAME: &str = "default";

/// An application as `deploy` makes it: names of its EMCO resources.
pub struct Application {
    project: String,
    /// `…/composite-apps/{name}/v1`.
    pub composite: String,
    /// `…/deployment-intent-groups/{name}`.
    pub group: String,
    name: String,
}

impl Application {
    /// The application `name` of the session's project.
    pub fn new(session: &Session, name: &str) -> Self {
        let project = format!("/v2/projects/{}", segment(&session.project));
        let composite = format!("{project}/composite-apps/{}/{VERSION}", segment(name));
        let group = format!("{composite}/deployment-intent-groups/{}", segment(name));
        Self { project, composite, group, name: name.to_owned() }
    }

    /// `/v2/projects/{project}`.
    pub fn project(&self) -> &str {
        &self.project
    }

    /// Collections of the intents that `prepare` makes, one for each app.
    pub fn intents(&self) -> [String; 2] {
        ["generic-placement-intents", "migration-intents"].map(|kind| format!("{}/{kind}/{NAME}/app-intents", self.group))
    }
}

/// Options of a deployment beside its manifests. `None` leaves an existing application's setting as it is.
#[derive(Default)]
pub struct Wishes {
    /// EMCO placement elements, of which one is chosen. With `None` a new application may run on every cluster of its logical cloud,
    /// including those added later.
    pub any_of: Option<Vec<Value>>,
    /// `whenFull` of the placement intent.
    pub when_full: Option<&'static str>,
    /// Whether its apps may be moved, and with which priority (1 is moved first).
    pub movable: Option<(bool, u8)>,
    /// Whether apps may be moved that others may call by the names of their Services. `Some(true)` leaves out apps that other apps of
    /// the same deployment call; for those the project's setting counts.
    pub allow_dependants: Option<bool>,
    /// Whether it is to run on all elements of `any_of` instead of one.
    pub everywhere: bool,
    /// Namespace of objects that name none.
    pub namespace: Option<String>,
    /// Values of its chart; `None`: it keeps those that it has.
    pub values: Option<Values>,
}

/// Runs it.
pub async fn run(session: &Session, args: DeployArgs) -> Result<()> {
    let application = Application::new(session, &args.name);
    let clusters = cluster::all(session).await?;
    let deployable = deployable(session, &application, &args, &clusters).await?;
    let uploads = &deployable.uploads;
    let wishes = Wishes {
        any_of: elements(&clusters, &args.on, args.only.as_deref(), args.label.as_deref())?.or_else(|| args.everywhere.then(every)),
        everywhere: args.everywhere,
        namespace: args.namespace.clone(),
        values: Values::of(&args.values)?,
        when_full: args.when_full.map(WhenFullArg::word),
        allow_dependants: args.movable.map(|which| which == MovableArg::All),
        movable: if args.movable.is_some() {
            Some((true, move_priority(session, &application, args.move_priority).await?))
        } else if args.pinned {
            Some((false, 10))
        } else {
            None
        },
    };
    deployable.notes.iter().for_each(|note| eprintln!("note: {note}"));
    if wishes.allow_dependants == Some(true) {
        moves::name_those_that_stay(uploads);
    }
    if args.dry_run {
        let before = Before::read(session, &application).await?;
        let outcome = dry_run(session, &application, uploads, &wishes).await;
        let restored = before.restore(session, &application).await;
        let outcome = outcome?;
        moves::name_callers(&outcome["callers"]);
        print_dry_run(session, &outcome)?;
        restored.context("documents that the dry run changed could not be restored")?;
        return super::plan::fits(&outcome);
    }
    newcomer::drop_planned(session, &application).await?;
    prepare(session, &application, uploads, &wishes).await?;
    if args.no_routes || !args.routes.is_empty() {
        routes::replace(session, &application, &args.routes, uploads).await?;
    }
    let verb = verb(session, &application).await?;
    let body = args.since_dry_run.as_deref().map(basis).transpose()?;
    let answer = session.client.post(&format!("{}/{verb}", application.group), body.as_ref()).await?;
    let id = operation_of(&answer)?;
    if body.is_some() {
        print_changes(session, &id).await?;
    }
    if wishes.allow_dependants == Some(true) {
        moves::name_callers(&moves::callers(session, &application).await?);
    }
    if args.wait {
        let operation = watch::to_success(&session.client, &id).await.map_err(|error| hint_to_split(error, &deployable))?;
        if session.format != Format::Table {
            return output::print(session.format, &operation, |_| (vec![], vec![]));
        }
        eprintln!("{} is up: {}", args.name, super::deployed::objects(session, &application, deployable.objects).await?);
        if deployable.objects.is_none() {
            print_notes(session, &application).await;
        }
        return Ok(());
    }
    output::print(session.format, &json!({"operation": id}), |_| (vec!["OPERATION"], vec![vec![id.clone()]]))
}

/// The body that names the basis of the dry run in this file.
fn basis(file: &Path) -> Result<Value> {
    let text = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let answer: Value = serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", file.display()))?;
    match answer.get("basis") {
        Some(basis) => Ok(json!({"basis": basis})),
        None => bail!("{} is not the answer of `drover deploy … --dry-run -o json`: it has no `basis`", file.display()),
    }
}

/// Prints what charts say to those who install them. The application is up whether that can be rendered or not.
async fn print_notes(session: &Session, application: &Application) {
    match session.client.find(&format!("{}/notes", application.group)).await {
        Ok(list) => {
            let list = list.unwrap_or_default();
            let notes = list["items"].as_array().into_iter().flatten().filter_map(|item| item["notes"].as_str());
            notes.for_each(|text| eprintln!("\n{}", text.trim_end()));
        }
        Err(error) => eprintln!("note: the notes of the chart cannot be shown: {error:#}"),
    }
}

async fn print_changes(session: &Session, id: &str) -> Result<()> {
    let operation: Operation = session.client.get(&format!("/v2/operations/{id}")).await?;
    match operation.changed_since_dry_run.as_slice() {
        [] => eprintln!("nothing has changed since the dry run"),
        changes => changes.iter().for_each(|change| eprintln!("changed since the dry run: {change}")),
    }
    Ok(())
}

/// Reads what is to be deployed. An application that is there keeps the way in which it was taken apart.
async fn deployable(session: &Session, application: &Application, args: &DeployArgs, clusters: &[ClusterCapacity]) -> Result<Deployable> {
    let input = args.input.read().await?;
    let namespace = cloud_of(session, application, args.namespace.as_deref()).await?.1;
    let known = names(session, &format!("{}/apps", application.composite)).await?;
    let was_split = !known.is_empty() && known != [application.name.as_str()];
    if args.split && !known.is_empty() && !was_split && state(session, application).await?.as_deref() == Some("Instantiated") {
        bail!("{0} runs as one app; to split it, run `drover delete {0}` and deploy it again with --split", application.name);
    }
    if was_split && !args.split && matches!(input, Input::Manifests(_)) {
        eprintln!("note: {} was deployed with --split and stays split", application.name);
    }
    let split = matches!(input, Input::Manifests(_)) && was_split;
    let given = !args.values.set.is_empty() || !args.values.values.is_empty();
    ensure!(!given || matches!(input, Input::Archive(_)), "--set and --values are for a Helm chart; manifests have no values");
    let deployable =
        if args.split || split { manifests::apart(input, &namespace)? } else { manifests::together(input, &application.name, &namespace)? };
    let is_placed = args.everywhere || !args.on.is_empty() || args.only.is_some() || args.label.is_some() || !known.is_empty();
    if deployable.workloads == Some(0) && !is_placed && clusters.len() > 1 {
        bail!(
            "there is no workload (Deployment, Pod, …) in these manifests, so no cluster suits them better than another; say where they belong: `--everywhere`, `--on PROVIDERS`, `--only CLUSTER` or `--label LABEL`"
        );
    }
    Ok(deployable)
}

/// Stands for every provider, or for every cluster of one, also those that are registered later.
const EVERY: &str = MemberKey::EVERY;

/// All clusters as placement elements.
fn every() -> Vec<Value> {
    vec![json!({"clusterProvider": EVERY, "cluster": EVERY})]
}

/// An application of several workloads that fits no cluster may fit when it is taken apart.
fn hint_to_split(error: anyhow::Error, deployable: &Deployable) -> anyhow::Error {
    let together = deployable.uploads.len() == 1 && deployable.workloads.is_some_and(|workloads| workloads > 1);
    let text = error.to_string();
    // A workload that no node admits fits no better by itself.
    let is_full = ["no_room", "plan_infeasible"].iter().any(|code| text.contains(code)) && !text.contains("no node admits it");
    if together && is_full {
        return anyhow::anyhow!("{text}\n  hint: all its workloads go to one cluster; `--split` places each of them by itself");
    }
    error
}

/// The priority that was given, else the one that the application has, else 10.
async fn move_priority(session: &Session, application: &Application, given: Option<u8>) -> Result<u8> {
    if let Some(given) = given {
        return Ok(given);
    }
    let [_, intents] = application.intents();
    let known = session.client.find(&intents).await?.unwrap_or_default();
    let known = known.as_array().into_iter().flatten().find_map(|intent| intent["spec"]["priority"].as_u64());
    Ok(known.and_then(|known| u8::try_from(known).ok()).unwrap_or(10))
}

/// What a deployment would change in an application that runs. Documents that are written for that are restored.
///
/// # Errors
/// The application does not run, or a request fails.
pub async fn preview(session: &Session, application: &Application, uploads: &[Upload]) -> Result<Value> {
    if state(session, application).await?.as_deref() != Some("Instantiated") {
        bail!("{0} does not run; `drover deploy {0} … --dry-run` shows where it would go", application.name);
    }
    let before = Before::read(session, application).await?;
    let outcome = dry_run(session, application, uploads, &Wishes::default()).await;
    let restored = before.restore(session, application).await;
    let outcome = outcome?;
    restored.context("documents that were changed for it could not be restored")?;
    Ok(outcome)
}

async fn dry_run(session: &Session, application: &Application, uploads: &[Upload], wishes: &Wishes) -> Result<Value> {
    prepare(session, application, uploads, wishes).await?;
    // Without approving it: that would change the state of a terminated application.
    let verb = match state(session, application).await?.as_deref() {
        Some("Instantiated") => "update?dryRun=All",
        _ => "instantiate?dryRun=All&approve=true",
    };
    let mut outcome = session.client.post(&format!("{}/{verb}", application.group), None).await?.body;
    if wishes.allow_dependants == Some(true) {
        outcome["callers"] = moves::callers(session, application).await?;
    }
    Ok(outcome)
}

/// Terminates the application and removes the resources that `deploy` made.
///
/// # Errors
/// There is no such application, a request fails, or the termination fails.
pub async fn delete(session: &Session, name: &str) -> Result<()> {
    let application = Application::new(session, name);
    if session.client.find(&application.composite).await?.is_none() {
        bail!("no application is called {name} in project {}; see `drover get apps`", session.project);
    }
    let mut with_volumes = Vec::new();
    if matches!(state(session, &application).await?.as_deref(), Some("Instantiated" | "InstantiateStopped")) {
        with_volumes = super::deployed::stateful_sets(session, &application).await?;
        let answer = session.client.post(&format!("{}/terminate", application.group), None).await?;
        let operation = watch::follow(&session.client, &operation_of(&answer)?).await?;
        // An instantiation that goes on is cancelled instead, which is what was asked for.
        if operation.state != OperationState::Cancelled {
            watch::succeeded(operation)?;
        }
    }
    remove(session, &application).await?;
    for set in with_volumes {
        eprintln!("note: volume claims that {set} made stay there with their data, as in Kubernetes; `kubectl delete pvc` removes them");
    }
    eprintln!("{name} is gone");
    Ok(())
}

/// Removes the project that [`prepare`] made, with its logical cloud.
///
/// # Errors
/// A request fails, for example because the project has got other applications.
pub async fn remove_project(session: &Session, application: &Application) -> Result<()> {
    let cloud = format!("{}/logical-clouds/{NAME}", application.project);
    if session.client.find(&cloud).await?.is_some() {
        match session.client.post(&format!("{cloud}/terminate"), None).await {
            Err(error) if hub::code(&error) != Some("wrong_state") => return Err(error),
            _ => {}
        }
        for reference in names(session, &format!("{cloud}/cluster-references")).await? {
            session.client.delete(&format!("{cloud}/cluster-references/{}", segment(&reference))).await?;
        }
        session.client.delete(&cloud).await?;
    }
    session.client.delete(&application.project).await
}

/// Removes the resources that [`prepare`] made, of an application that does not run.
///
/// # Errors
/// A request fails.
pub async fn remove(session: &Session, application: &Application) -> Result<()> {
    routes::delete(session, application, None).await?;
    // EMCO lists group intents without their names; this is the name that `prepare` uses.
    session.client.delete(&format!("{}/intents/{NAME}", application.group)).await?;
    for collection in ["generic-placement-intents", "migration-intents"] {
        let path = format!("{}/{collection}", application.group);
        for intent in names(session, &path).await? {
            for child in names(session, &format!("{path}/{intent}/app-intents")).await? {
                session.client.delete(&format!("{path}/{intent}/app-intents/{child}")).await?;
            }
            session.client.delete(&format!("{path}/{intent}")).await?;
        }
    }
    session.client.delete(&application.group).await?;
    for profile in names(session, &application.profiles()).await? {
        session.client.delete(&format!("{}/{}", application.profiles(), segment(&profile))).await?;
    }
    for app in names(session, &format!("{}/apps", application.composite)).await? {
        session.client.delete(&format!("{}/apps/{app}", application.composite)).await?;
    }
    session.client.delete(&format!("{}/composite-profiles/{NAME}", application.composite)).await?;
    session.client.delete(&application.composite).await
}

/// Placement elements for `--on`, `--only` and `--label`; `None` if none of these was given.
///
/// # Errors
/// No cluster is registered, or none has this name or provider.
pub fn elements(clusters: &[ClusterCapacity], on: &[String], only: Option<&str>, label: Option<&str>) -> Result<Option<Vec<Value>>> {
    ensure!(!clusters.is_empty(), "no cluster is registered; register one with `drover cluster add`");
    if on.is_empty() && only.is_none() && label.is_none() {
        return Ok(None);
    }
    let providers = || clusters.iter().map(|c| c.provider.as_str()).collect::<std::collections::BTreeSet<_>>();
    for wanted in on {
        if !providers().contains(wanted.as_str()) {
            bail!(
                "no provider called {wanted} has a cluster; providers with clusters are: {}",
                providers().into_iter().collect::<Vec<_>>().join(", ")
            );
        }
    }
    if let Some(label) = label {
        return Ok(Some(vec![json!({"clusterProvider": EVERY, "clusterLabel": label})]));
    }
    let Some(only) = only else {
        return Ok(Some(on.iter().map(|provider| json!({"clusterProvider": provider, "cluster": EVERY})).collect()));
    };
    let chosen: Vec<Value> = clusters
        .iter()
        .filter(|c| c.cluster == only || c.member.0 == only || format!("{}/{}", c.provider, c.cluster) == only)
        .map(|c| json!({"clusterProvider": c.provider, "cluster": c.cluster}))
        .collect();
    if chosen.is_empty() {
        let known: Vec<String> = clusters.iter().map(|c| format!("{}/{}", c.provider, c.cluster)).collect();
        bail!("no cluster is called {only}; registered are: {}", known.join(", "));
    }
    Ok(Some(chosen))
}

/// Creates or replaces every resource that the application needs; calls no lifecycle verb.
///
/// # Errors
/// The name is not a DNS label, or a request fails.
pub async fn prepare(session: &Session, application: &Application, uploads: &[Upload], wishes: &Wishes) -> Result<()> {
    // The name becomes that of the Helm release. Checked first, because the group is refused only after other resources are written.
    ensure!(
        is_dns_label(&application.name),
        "{:?} is not a valid name: use lower-case letters, digits and `-`, at most 63 characters, beginning and ending with a letter or digit",
        application.name
    );
    let client = &session.client;
    let named = |name: &str| json!({"metadata": {"name": name}});
    client.ensure("/v2/projects", &named(&session.project)).await?;
    let (cloud, namespace) = cloud_of(session, application, wishes.namespace.as_deref()).await?;
    logical_cloud(session, application, (&cloud, &namespace)).await?;
    let composite = json!({"metadata": {"name": application.name}, "spec": {"compositeAppVersion": VERSION}});
    client.ensure(&format!("{}/composite-apps", application.project), &composite).await?;
    let apps = format!("{}/apps", application.composite);
    for upload in uploads {
        let file = base64::engine::general_purpose::STANDARD.encode(&upload.file);
        let body = json!({"metadata": {"name": upload.name}, "file": file});
        client.upsert(&apps, &segment(&upload.name), &body).await.with_context(|| format!("app {}", upload.name))?;
    }
    client.ensure(&format!("{}/composite-profiles", application.composite), &named(NAME)).await?;
    let mut group = json!({
        "metadata": {"name": application.name},
        "spec": {"compositeProfile": NAME, "version": application.name, "logicalCloud": cloud, "overrideValues": []},
    });
    let groups = format!("{}/deployment-intent-groups", application.composite);
    match (&wishes.values, uploads) {
        (None, _) => client.ensure(&groups, &group).await?,
        (Some(values), [chart]) => {
            values.write_profile(session, application, &chart.name).await?;
            group["spec"]["overrideValues"] = values.overrides(&chart.name);
            client.upsert(&groups, &segment(&application.name), &group).await.map(drop)?;
        }
        (Some(_), _) => bail!("--set and --values are for a chart, which is one app"),
    }

    let placement = format!("{}/generic-placement-intents", application.group);
    client.ensure(&placement, &named(NAME)).await?;
    let app_intents = format!("{placement}/{NAME}/app-intents");
    for upload in uploads {
        let name = segment(&upload.name);
        let known = client.find(&format!("{app_intents}/{name}")).await?;
        let mut spec = known.map_or_else(|| json!({"app": upload.name, "intent": {}}), |known| known["spec"].clone());
        if let Some(any_of) = &wishes.any_of {
            spec["intent"] = json!({(if wishes.everywhere { "allOf" } else { "anyOf" }): any_of});
        }
        if let Some(word) = wishes.when_full {
            spec["whenFull"] = word.into();
        }
        moves::allow_dependants(&mut spec, wishes.allow_dependants, upload);
        client.upsert(&app_intents, &name, &json!({"metadata": {"name": upload.name}, "spec": spec})).await?;
    }
    let intents = json!({"metadata": {"name": NAME}, "spec": {"intent": {"genericPlacementIntent": NAME}}});
    client.ensure(&format!("{}/intents", application.group), &intents).await?;
    if let Some((migration, priority)) = wishes.movable {
        let collection = format!("{}/migration-intents", application.group);
        client.ensure(&collection, &named(NAME)).await?;
        for upload in uploads {
            let spec = json!({"app": upload.name, "migration": migration, "priority": priority});
            let body = json!({"metadata": {"name": upload.name}, "spec": spec});
            client.upsert(&format!("{collection}/{NAME}/app-intents"), &segment(&upload.name), &body).await?;
        }
    }
    drop_old_apps(session, application, uploads).await
}

/// Approves the group unless it is instantiated; the verb that is to be called next.
///
/// # Errors
/// A request fails.
pub async fn verb(session: &Session, application: &Application) -> Result<&'static str> {
    if state(session, application).await?.as_deref() == Some("Instantiated") {
        return Ok("update");
    }
    session.client.post(&format!("{}/approve", application.group), None).await?;
    Ok("instantiate")
}

/// The id of the operation that an accepted verb started.
///
/// # Errors
/// The response has no `Location`.
pub fn operation_of(answer: &Answer) -> Result<String> {
    let location = answer.location.as_deref().context("the response names no operation")?;
    Ok(location.rsplit('/').next().unwrap_or(location).to_owned())
}

/// Name and namespace of the application's logical cloud: the one that it has, else that of the namespace.
async fn cloud_of(session: &Session, application: &Application, wanted: Option<&str>) -> Result<(String, String)> {
    if let Some(wanted) = wanted {
        ensure!(is_dns_label(wanted), "{wanted:?} is not a valid namespace: use lower-case letters, digits and `-`, at most 63 characters");
    }
    let group = session.client.find(&application.group).await?;
    let known = group.and_then(|group| Some(group["spec"]["logicalCloud"].as_str()?.to_owned()));
    let Some(cloud) = known else {
        // The cloud called `default` has the namespace of that name.
        let namespace = wanted.unwrap_or("default");
        return Ok((namespace.to_owned(), namespace.to_owned()));
    };
    let document = session.client.find(&format!("{}/logical-clouds/{}", application.project, segment(&cloud))).await?;
    let namespace = document.and_then(|document| Some(document["spec"]["namespace"].as_str()?.to_owned())).unwrap_or_default();
    let namespace = if namespace.is_empty() { "default".to_owned() } else { namespace };
    if let Some(wanted) = wanted.filter(|wanted| *wanted != namespace) {
        bail!("{0} is in the namespace {namespace}; to have it in {wanted}, run `drover delete {0}` and deploy it again", application.name);
    }
    Ok((cloud, namespace))
}

/// Makes the logical cloud of an application, with every cluster, unless it exists. Who may make one may write everything, as with kubectl; an operator who
/// wants less makes the cloud beforehand.
async fn logical_cloud(session: &Session, application: &Application, (name, namespace): (&str, &str)) -> Result<()> {
    let client = &session.client;
    let collection = format!("{}/logical-clouds", application.project);
    let body = json!({"metadata": {"name": name}, "spec": {"namespace": namespace, "level": "0", "grants": {"everything": true}}});
    client.ensure(&collection, &body).await?;
    let collection_of = segment(name);
    let all = json!({"metadata": {"name": "all"}, "spec": {"clusterProvider": EVERY, "cluster": EVERY}});
    match client.ensure(&format!("{collection}/{collection_of}/cluster-references"), &all).await {
        // The clusters of the cloud are then those that an operator has given it.
        Err(error) if hub::code(&error) == Some("forbidden") => {}
        other => other?,
    }
    match client.post(&format!("{collection}/{collection_of}/instantiate"), None).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(hub::code(&error), Some("wrong_state" | "forbidden")) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn drop_old_apps(session: &Session, application: &Application, uploads: &[Upload]) -> Result<()> {
    for app in names(session, &format!("{}/apps", application.composite)).await? {
        if uploads.iter().any(|upload| upload.name == app) {
            continue;
        }
        routes::delete(session, application, Some(&app)).await?;
        for intents in ["generic-placement-intents", "migration-intents"] {
            session.client.delete(&format!("{}/{intents}/{NAME}/app-intents/{}", application.group, segment(&app))).await?;
        }
        session.client.delete(&format!("{}/apps/{}", application.composite, segment(&app))).await?;
    }
    Ok(())
}

/// Names of a collection's documents; empty if there is no such collection.
///
/// # Errors
/// The request fails.
pub async fn names(session: &Session, collection: &str) -> Result<Vec<String>> {
    let Some(list) = session.client.find(collection).await? else { return Ok(Vec::new()) };
    Ok(list.as_array().into_iter().flatten().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

/// EMCO state of the group; `None` if there is no such group.
///
/// # Errors
/// The request fails.
pub async fn state(session: &Session, application: &Application) -> Result<Option<String>> {
    let status = session.client.find(&format!("{}/status", application.group)).await?;
    Ok(status.and_then(|status| Some(status["states"]["actions"].as_array()?.last()?["state"].as_str()?.to_owned())))
}

fn print_dry_run(session: &Session, body: &Value) -> Result<()> {
    output::print(session.format, body, |_| (vec!["DRY RUN: nothing was changed"], super::plan::dry_run_rows(body)))
}
