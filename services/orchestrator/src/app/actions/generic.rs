//! Generic Kubernetes intents: objects that are added to an app, and changes of its objects.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drover_manifest::{Limits, objects};
use drover_resources::{NoSpec, TypedDocument, UploadedFile, children};
use serde_json::{Map, Value, json};
use sqlx::PgConnection;

use super::change;
use crate::app::Error;
use crate::resources::controllers::generic::{CUSTOMIZATION, CustomizationSpec, GENERIC_RESOURCE, GenericResourceSpec, ResourceGvk};

/// What is done to one object of an app.
#[derive(Clone, Debug)]
pub struct ObjectAction {
    pub app: String,
    /// How the document is named to people.
    name: String,
    target: Target,
    changes: Vec<Customization>,
}

#[derive(Clone, Debug)]
enum Target {
    /// It is added.
    New(Value),
    /// It is one of the app's.
    Existing(ResourceGvk),
}

#[derive(Clone, Debug, Default)]
struct Customization {
    spec: CustomizationSpec,
    /// Name and content.
    files: Vec<(String, Vec<u8>)>,
}

/// Reads the actions of a generic intent. What Drover does not do is added to `broken`.
pub(super) async fn of(
    tx: &mut PgConnection,
    intent: &TypedDocument<NoSpec>,
    broken: &mut Vec<String>,
) -> Result<Vec<ObjectAction>, Error> {
    let mut actions = Vec::new();
    for resource in children::<GenericResourceSpec>(&mut *tx, &GENERIC_RESOURCE, intent.id).await? {
        let mut changes = Vec::new();
        for customization in children::<CustomizationSpec>(&mut *tx, &CUSTOMIZATION, resource.id).await? {
            if customization.spec.cluster_specific == "true" {
                broken.push(format!(
                    "{}: Drover changes objects in all clusters of an app; clusterSpecific must be false",
                    customization.path
                ));
            }
            let stored = file(&mut *tx, customization.file_digest.as_deref()).await?;
            changes.push(Customization { spec: customization.spec, files: files(&stored) });
        }
        let stored = file(&mut *tx, resource.file_digest.as_deref()).await?;
        match target(&resource.spec, &stored) {
            Ok(target) => actions.push(ObjectAction { app: resource.spec.app, name: resource.name, target, changes }),
            Err(reason) => broken.push(format!("{}: {reason}", resource.path)),
        }
    }
    Ok(actions)
}

async fn file(tx: &mut PgConnection, digest: Option<&[u8]>) -> Result<Vec<u8>, Error> {
    let Some(digest) = digest else { return Ok(Vec::new()) };
    Ok(drover_resources::file(tx, digest).await?.unwrap_or_default())
}

fn files(stored: &[u8]) -> Vec<(String, Vec<u8>)> {
    let files: Vec<UploadedFile> = serde_json::from_slice(stored).unwrap_or_default();
    files.into_iter().map(|file| (file.name, STANDARD.decode(file.content).unwrap_or_default())).collect()
}

fn target(spec: &GenericResourceSpec, stored: &[u8]) -> Result<Target, String> {
    let gvk = spec.resource_gvk.clone().unwrap_or_default();
    if spec.new_object != "true" {
        return Ok(Target::Existing(gvk));
    }
    if stored.is_empty() {
        if !["ConfigMap", "Secret"].contains(&gvk.kind.as_str()) || gvk.name.is_empty() {
            return Err("a new object needs a file, unless resourceGVK names a ConfigMap or a Secret".to_owned());
        }
        return Ok(Target::New(json!({"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": gvk.name}})));
    }
    let text = std::str::from_utf8(stored).map_err(|_| "its file is not text".to_owned())?;
    let mut found = objects::read("its file", text).map_err(|error| error.to_string())?;
    match (found.pop(), found.is_empty()) {
        (Some(object), true) => Ok(Target::New(object.value)),
        _ => Err("its file must have exactly one object".to_owned()),
    }
}

impl ObjectAction {
    /// Adds or changes the object among those of its app.
    pub(super) fn carry_out(&self, objects: &mut Vec<Value>) -> Result<(), String> {
        let at = match &self.target {
            Target::New(object) => {
                objects.push(object.clone());
                objects.len() - 1
            }
            Target::Existing(gvk) => {
                let is = |object: &Value| {
                    object["kind"] == gvk.kind.as_str()
                        && object["metadata"]["name"] == gvk.name.as_str()
                        && (gvk.api_version.is_empty() || object["apiVersion"] == gvk.api_version.as_str())
                };
                objects.iter().position(is).ok_or_else(|| format!("{}: the app has no {} {}", self.name, gvk.kind, gvk.name))?
            }
        };
        for customization in &self.changes {
            customization.apply(&mut objects[at]).map_err(|reason| format!("{}: {reason}", self.name))?;
        }
        Ok(())
    }
}

impl Customization {
    fn apply(&self, object: &mut Value) -> Result<(), String> {
        match self.spec.patch_type.as_deref().unwrap_or_default() {
            "json" => {
                let patch = self.spec.patch().map_err(|error| format!("patchJson is not a JSON patch: {error}"))?;
                json_patch::patch(object, &patch).map_err(|error| format!("patchJson does not fit the object: {error}"))
            }
            "merge" => {
                for (name, content) in &self.files {
                    let text = std::str::from_utf8(content).map_err(|_| format!("{name} is not text"))?;
                    let patch = drover_manifest::one(text, Limits::MANIFESTS).map_err(|error| format!("{name}: {error}"))?;
                    change::merge(object, &patch);
                }
                Ok(())
            }
            _ => self.add_data(object),
        }
    }

    /// The files become data of a ConfigMap or Secret.
    fn add_data(&self, object: &mut Value) -> Result<(), String> {
        if self.files.is_empty() {
            return Ok(());
        }
        let secret = object["kind"] == "Secret";
        if !secret && object["kind"] != "ConfigMap" {
            return Err(format!("files become data of ConfigMaps and Secrets only, not of a {}; set patchType", object["kind"]));
        }
        let (mut data, mut binary) = (Map::new(), Map::new());
        for (name, content) in &self.files {
            let key = self.spec.key_of(name);
            match (secret, String::from_utf8(content.clone())) {
                (false, Ok(text)) => drop(data.insert(key, text.into())),
                (false, Err(_)) => drop(binary.insert(key, STANDARD.encode(content).into())),
                (true, _) => drop(data.insert(key, STANDARD.encode(content).into())),
            }
        }
        for (field, entries) in [("data", data), ("binaryData", binary)] {
            if !entries.is_empty() {
                change::merge(object, &json!({field: entries}));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn customization(spec: Value, files: &[(&str, &[u8])]) -> Customization {
        let files = files.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())).collect();
        Customization { spec: serde_json::from_value(spec).unwrap(), files }
    }

    fn action(target: Target, changes: Vec<Customization>) -> ObjectAction {
        ObjectAction { app: "web".into(), name: "one".into(), target, changes }
    }

    #[test]
    fn config_maps_and_secrets_are_made_from_files() {
        let made = |kind: &str, spec: Value, files: &[(&str, &[u8])]| {
            let gvk = json!({"apiVersion": "v1", "kind": kind, "name": "made"});
            let spec_of: GenericResourceSpec =
                serde_json::from_value(json!({"app": "web", "newObject": "true", "resourceGVK": gvk})).unwrap();
            let mut objects = Vec::new();
            action(target(&spec_of, b"").unwrap(), vec![customization(spec, files)]).carry_out(&mut objects).unwrap();
            objects.remove(0)
        };
        let options =
            json!({"clusterSpecific": "false", "configMapOptions": {"dataKeyOptions": [{"fileName": "a.txt", "keyName": "first"}]}});
        let map = made("ConfigMap", options, &[("a.txt", b"1"), ("b.txt", b"2"), ("c.bin", &[0xff])]);
        assert_eq!((&map["data"], &map["binaryData"]), (&json!({"first": "1", "b.txt": "2"}), &json!({"c.bin": "/w=="})));
        let secret = made("Secret", json!({"clusterSpecific": "false"}), &[("key", b"old")]);
        assert_eq!(secret["data"], json!({"key": "b2xk"}));
    }

    #[test]
    fn existing_objects_are_patched_and_missing_ones_are_an_error() {
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 1}});
        let target =
            |name: &str| Target::Existing(ResourceGvk { api_version: "apps/v1".into(), kind: "Deployment".into(), name: name.into() });
        let replicas = |path: &str| {
            let patch = json!([{"op": "replace", "path": path, "value": 3}]);
            customization(json!({"clusterSpecific": "false", "patchType": "json", "patchJson": patch}), &[])
        };
        let merge = customization(json!({"clusterSpecific": "false", "patchType": "merge"}), &[("p.yaml", b"metadata: {labels: {a: b}}")]);
        let mut objects = vec![deployment];
        action(target("web"), vec![replicas("/spec/replicas"), merge]).carry_out(&mut objects).unwrap();
        assert_eq!((&objects[0]["spec"]["replicas"], &objects[0]["metadata"]["labels"]["a"]), (&json!(3), &json!("b")));
        let missing = action(target("db"), vec![]).carry_out(&mut objects).unwrap_err();
        assert_eq!(missing, "one: the app has no Deployment db");
        let unfit = action(target("web"), vec![replicas("/spec/nothing/here")]).carry_out(&mut objects).unwrap_err();
        assert!(unfit.contains("does not fit"), "{unfit}");
    }
}
