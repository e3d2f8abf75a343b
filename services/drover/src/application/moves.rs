//! What `--movable` means for the names by which apps call each other: in another cluster a name is unknown, unless both clusters are in
//! one pod network.

use std::collections::BTreeSet;

use anyhow::Result;
use drover_api::ledger::ClusterCapacity;
use drover_api::scheduling::pod_network;
use serde_json::{Value, json};

use super::Application;
use crate::clusters;
use crate::manifests::Upload;
use crate::session::Session;

/// Writes into the spec of an app's placement intent whether the app may be moved although others may call its Services by name.
pub fn allow_dependants(spec: &mut Value, wanted: Option<bool>, upload: &Upload) {
    match (wanted, spec.as_object_mut()) {
        (None, _) | (_, None) => {}
        (Some(true), Some(fields)) if !upload.callers.is_empty() => drop(fields.remove("allowDependants")),
        (Some(wanted), Some(fields)) => drop(fields.insert("allowDependants".to_owned(), json!(wanted))),
    }
}

/// Whether the names of Services follow an app wherever it goes: all clusters are in one pod network.
///
/// # Errors
/// A request fails.
pub async fn names_follow(session: &Session, clusters: &[ClusterCapacity]) -> Result<bool> {
    let labels = clusters::labels(session, clusters).await?;
    let networks: BTreeSet<Option<&str>> = labels.iter().map(|labels| pod_network(labels)).collect();
    Ok(networks.len() == 1 && !networks.contains(&None))
}

/// Says which apps of a deployment stay although it is movable.
pub fn name_those_that_stay(uploads: &[Upload]) {
    for upload in uploads.iter().filter(|upload| !upload.callers.is_empty()) {
        eprintln!("note: {} is not moved: {} would lose the names of its Services", upload.name, upload.callers.join(", "));
    }
}

/// The apps of other applications that call the Services of this one by name: the items of the list in the REST API.
pub async fn callers(session: &Session, application: &Application) -> Result<Value> {
    Ok(session.client.find(&format!("{}/callers", application.group)).await?.map(|list| list["items"].clone()).unwrap_or_default())
}

/// Says whom a move would leave without a name.
pub fn name_callers(callers: &Value) {
    let text = |caller: &Value, field: &str| caller[field].as_str().unwrap_or_default().to_owned();
    let named: Vec<String> = callers
        .as_array()
        .into_iter()
        .flatten()
        .map(|caller| format!("{} (Service {})", text(caller, "caller"), text(caller, "service")))
        .collect();
    if !named.is_empty() {
        eprintln!("note: callers that lose the name if it is moved away from them: {}", named.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn movable_app_that_its_own_deployment_calls_keeps_the_setting_of_the_project() {
        let upload =
            |callers: &[&str]| Upload { name: "cart".into(), file: Vec::new(), callers: callers.iter().map(|c| (*c).to_owned()).collect() };
        let written = |known: Value, wanted, callers: &[&str]| {
            let mut spec = known;
            allow_dependants(&mut spec, wanted, &upload(callers));
            spec
        };
        assert_eq!(written(json!({}), Some(true), &[]), json!({"allowDependants": true}));
        assert_eq!(written(json!({"allowDependants": true}), Some(true), &["web"]), json!({}));
        assert_eq!(written(json!({"allowDependants": true}), Some(false), &[]), json!({"allowDependants": false}));
        assert_eq!(written(json!({"allowDependants": true}), None, &["web"]), json!({"allowDependants": true}), "as it was");
    }
}
