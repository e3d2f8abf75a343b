//! Creates or replaces the EMCO resources of an application. Calls no lifecycle verb of its group.

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use drover_resources::is_dns_label;
use serde_json::json;

use super::wishes::{EVERY, Wishes};
use super::{Application, NAME, VERSION, moves, names, routes};
use crate::hub::{self, segment};
use crate::manifests::Upload;
use crate::session::Session;

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
        (Some(_), _) => bail!("--set, --set-string and --values are for a chart, which is one app"),
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

/// Name and namespace of the application's logical cloud: the one that it has, else that of the namespace.
///
/// # Errors
/// The namespace is not a DNS label or not that of the application, or a request fails.
pub async fn cloud_of(session: &Session, application: &Application, wanted: Option<&str>) -> Result<(String, String)> {
    if let Some(wanted) = wanted {
        ensure!(is_dns_label(wanted), "{wanted:?} is not a valid namespace: use lower-case letters, digits and `-`, at most 63 characters");
    }
    let group = session.client.find(&application.group).await?;
    let known = group.and_then(|group| Some(group["spec"]["logicalCloud"].as_str()?.to_owned()));
    let is_new = known.is_none();
    let cloud = known.unwrap_or_else(|| wanted.unwrap_or("default").to_owned());
    let document = session.client.find(&format!("{}/logical-clouds/{}", application.project, segment(&cloud))).await?;
    let Some(document) = document else {
        // A cloud that is made for a namespace has its name.
        let namespace = if is_new { cloud.clone() } else { "default".to_owned() };
        return Ok((cloud, namespace));
    };
    let namespace = document["spec"]["namespace"].as_str().filter(|namespace| !namespace.is_empty()).unwrap_or("default").to_owned();
    if let Some(wanted) = wanted.filter(|wanted| is_new && *wanted != namespace) {
        bail!(
            "the logical cloud {wanted} has the namespace {namespace}, so nothing can be deployed to the namespace {wanted} here; choose another --namespace"
        );
    }
    if let Some(wanted) = wanted.filter(|wanted| *wanted != namespace) {
        bail!("{0} is in the namespace {namespace}; to have it in {wanted}, run `drover delete {0}` and deploy it again", application.name);
    }
    Ok((cloud, namespace))
}

/// Makes the logical cloud of an application, with every cluster, unless it exists. The application may write everything in it, as with
/// kubectl; an operator who wants less makes the cloud beforehand.
async fn logical_cloud(session: &Session, application: &Application, (name, namespace): (&str, &str)) -> Result<()> {
    let client = &session.client;
    let collection = format!("{}/logical-clouds", application.project);
    let body = json!({"metadata": {"name": name}, "spec": {"namespace": namespace, "level": "0", "grants": {"everything": true}}});
    client.ensure(&collection, &body).await?;
    let cloud = format!("{collection}/{}", segment(name));
    let all = json!({"metadata": {"name": "all"}, "spec": {"clusterProvider": EVERY, "cluster": EVERY}});
    match client.ensure(&format!("{cloud}/cluster-references"), &all).await {
        // The clusters of the cloud are then those that an operator has given it.
        Err(error) if hub::code(&error) == Some("forbidden") => {}
        other => other?,
    }
    match client.post(&format!("{cloud}/instantiate"), None).await {
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
