//! Generic Kubernetes intents: objects that are added to an app, and changes of its objects.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drover_manifest::{Limits, objects};
use drover_resources::{NoSpec, TypedDocument, UploadedFile, children};
use drover_store::Store;
use serde_json::{Map, Value, json};
use sqlx::PgConnection;

use super::change;
use super::clusters::LabelledMembers;
use super::objects::{Clusters, Objects};
use crate::app::Error;
use crate::resources::controllers::generic::{CUSTOMIZATION, CustomizationSpec, GENERIC_RESOURCE, GenericResourceSpec, ResourceGvk};

/// What is done to one object of an app.
#[derive(Clone, Debug)]
pub struct ObjectAction {
    pub app: String,
    /// How the document is named to people.
    name: String,
    target: Target,
    /// Where a new object is added: everywhere, unless all of its changes are for single clusters.
    clusters: Clusters,
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
    clusters: Clusters,
    /// Name and content.
    files: Vec<(String, Vec<u8>)>,
}

/// Reads the actions of a generic intent. What Drover does not do is added to `broken`.
pub(super) async fn of(
    (tx, store): (&mut PgConnection, &Store),
    intent: &TypedDocument<NoSpec>,
    members: &LabelledMembers,
    broken: &mut Vec<String>,
) -> Result<Vec<ObjectAction>, Error> {
    let mut actions = Vec::new();
    for resource in children::<GenericResourceSpec>(&mut *tx, &GENERIC_RESOURCE, intent.id).await? {
        let mut changes = Vec::new();
        for customization in children::<CustomizationSpec>(&mut *tx, &CUSTOMIZATION, resource.id).await? {
            let clusters = customization.spec.chosen().map_or(Clusters::Everywhere, |by| members.chosen(by));
            let stored = file(&mut *tx, store, customization.file_digest.as_deref()).await?;
            let spec = drover_resources::opened(store, &CUSTOMIZATION, &customization)?;
            changes.push(Customization { spec, clusters, files: files(&stored) });
        }
        let stored = file(&mut *tx, store, resource.file_digest.as_deref()).await?;
        match target(&resource.spec, &stored) {
            Ok(target) => actions.push(ObjectAction::new(resource.spec.app, resource.name, target, changes)),
            Err(reason) => broken.push(format!("{}: {reason}", resource.path)),
        }
    }
    Ok(actions)
}

async fn file(tx: &mut PgConnection, store: &Store, digest: Option<&[u8]>) -> Result<Vec<u8>, Error> {
    let Some(digest) = digest else { return Ok(Vec::new()) };
    Ok(drover_resources::file(tx, store, digest).await?.unwrap_or_default())
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
    fn new(app: String, name: String, target: Target, changes: Vec<Customization>) -> Self {
        let clusters = match (&target, changes.is_empty()) {
            (Target::New(_), false) => Clusters::union(changes.iter().map(|change| &change.clusters)),
            _ => Clusters::Everywhere,
        };
        Self { app, name, target, clusters, changes }
    }

    /// Adds or changes the object among those of its app.
    pub(super) fn carry_out(&self, objects: &mut Objects) -> Result<(), String> {
        match &self.target {
            Target::New(object) => objects.change(&self.clusters, |objects| {
                objects.push(object.clone());
                Ok(())
            })?,
            Target::Existing(_) => objects.change(&Clusters::Everywhere, |objects| self.find(objects).map(drop))?,
        }
        for customization in &self.changes {
            objects.change(&customization.clusters, |objects| {
                customization.apply(self.find(objects)?).map_err(|reason| format!("{}: {reason}", self.name))
            })?;
        }
        Ok(())
    }

    fn find<'a>(&self, objects: &'a mut [Value]) -> Result<&'a mut Value, String> {
        let found = match &self.target {
            // It was added as the last one.
            Target::New(_) => objects.last_mut(),
            Target::Existing(gvk) => {
                let is = |object: &&mut Value| {
                    object["kind"] == gvk.kind.as_str()
                        && object["metadata"]["name"] == gvk.name.as_str()
                        && (gvk.api_version.is_empty() || object["apiVersion"] == gvk.api_version.as_str())
                };
                objects.iter_mut().find(is)
            }
        };
        found.ok_or_else(|| match &self.target {
            Target::New(_) => format!("{}: the object was not added", self.name),
            Target::Existing(gvk) => format!("{}: the app has no {} {}", self.name, gvk.kind, gvk.name),
        })
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
    use std::collections::BTreeMap;

    use drover_api::scheduling::MemberKey;

    use super::*;
    use crate::render::Rendered;

    fn customization(spec: Value, files: &[(&str, &[u8])]) -> Customization {
        let files = files.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())).collect();
        Customization { spec: serde_json::from_value(spec).unwrap(), clusters: Clusters::Everywhere, files }
    }

    fn action(target: Target, changes: Vec<Customization>) -> ObjectAction {
        ObjectAction::new("web".into(), "one".into(), target, changes)
    }

    /// The objects of the app after the action.
    fn carried_out(action: &ObjectAction, objects: Vec<Value>) -> Result<Vec<Value>, String> {
        let mut objects = Objects::of(Rendered { objects, digest: String::new(), variants: BTreeMap::new() });
        action.carry_out(&mut objects)?;
        Ok(objects.rendered()?.objects)
    }

    #[test]
    fn config_maps_and_secrets_are_made_from_files() {
        let made = |kind: &str, spec: Value, files: &[(&str, &[u8])]| {
            let gvk = json!({"apiVersion": "v1", "kind": kind, "name": "made"});
            let spec_of: GenericResourceSpec =
                serde_json::from_value(json!({"app": "web", "newObject": "true", "resourceGVK": gvk})).unwrap();
            carried_out(&action(target(&spec_of, b"").unwrap(), vec![customization(spec, files)]), Vec::new()).unwrap().remove(0)
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
        let objects = carried_out(&action(target("web"), vec![replicas("/spec/replicas"), merge]), vec![deployment]).unwrap();
        assert_eq!((&objects[0]["spec"]["replicas"], &objects[0]["metadata"]["labels"]["a"]), (&json!(3), &json!("b")));
        let missing = carried_out(&action(target("db"), vec![]), objects.clone()).unwrap_err();
        assert_eq!(missing, "one: the app has no Deployment db");
        let unfit = carried_out(&action(target("web"), vec![replicas("/spec/nothing/here")]), objects).unwrap_err();
        assert!(unfit.contains("does not fit"), "{unfit}");
    }

    #[test]
    fn new_object_is_only_in_the_clusters_of_its_changes_if_all_are_for_single_clusters() {
        let gvk = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "made"});
        let spec: GenericResourceSpec = serde_json::from_value(json!({"app": "web", "newObject": "true", "resourceGVK": gvk})).unwrap();
        let edge = MemberKey::new("p", "edge");
        let only = |content: &'static [u8]| Customization {
            clusters: Clusters::These([edge.clone()].into()),
            ..customization(json!({"clusterSpecific": "true"}), &[("a", content)])
        };
        let base = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "base"}});
        let of = |changes| {
            let mut objects = Objects::of(Rendered::of(vec![base.clone()]).unwrap());
            action(target(&spec, b"").unwrap(), changes).carry_out(&mut objects).unwrap();
            objects.rendered().unwrap()
        };
        let one = of(vec![only(b"1")]);
        assert_eq!((one.objects.len(), one.in_member(&edge).len(), &one.in_member(&edge)[1]["data"]), (1, 2, &json!({"a": "1"})));
        let both = of(vec![customization(json!({"clusterSpecific": "false"}), &[("b", b"2")]), only(b"1")]);
        assert_eq!((&both.objects[1]["data"], &both.in_member(&edge)[1]["data"]), (&json!({"b": "2"}), &json!({"a": "1", "b": "2"})));
    }
}
