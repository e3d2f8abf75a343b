//! EMCO's generic Kubernetes intents (generic action controller): objects that are added to an app, and changes of its objects.

use std::collections::BTreeMap;

use drover_resources::{DocumentKind, Echo, File, Invalid, Keep, NoSpec, Put, Spec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::not_names;
use crate::resources::DIG;

/// An object that is added, or one of the app that is changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GenericResourceSpec {
    /// The app that has the object.
    #[serde(default)]
    pub app: String,
    /// `true`: the file of this document is the object, or it is a ConfigMap or Secret made from the files of its customizations;
    /// `false`: the object is in the app's chart or manifests.
    #[serde(default)]
    pub new_object: String,
    /// The object, unless the file of this document is one.
    #[serde(default, rename = "resourceGVK", skip_serializing_if = "Option::is_none")]
    pub resource_gvk: Option<ResourceGvk>,
}

/// Kind and name of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceGvk {
    #[serde(default)]
    pub api_version: String,
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    pub name: String,
}

impl Spec for GenericResourceSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let mut reasons = not_names([("app", self.app.as_str())]);
        if !["true", "false"].contains(&self.new_object.as_str()) {
            reasons.push(format!("spec.newObject: {:?} is not \"true\" or \"false\"", self.new_object));
        }
        if self.new_object == "false" && self.resource_gvk.as_ref().is_none_or(|gvk| gvk.kind.is_empty() || gvk.name.is_empty()) {
            reasons.push("spec.resourceGVK must name the object that is changed".to_owned());
        }
        Invalid::unless_empty(reasons)
    }
}

/// A change of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomizationSpec {
    /// `true`: only in the clusters of `clusterInfo`; `false`: in all clusters.
    #[serde(default)]
    pub cluster_specific: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_info: Option<ClusterInfo>,
    /// `json`: `patchJson` is a JSON patch (RFC 6902); `merge`: each file is merged into the object; empty: the files are data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch_type: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patch_json: Vec<BTreeMap<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_options: Option<DataOptions>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_options: Option<DataOptions>,
}

/// The clusters that a change is for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterInfo {
    /// `name` or `label`.
    pub scope: String,
    pub cluster_provider: String,
    /// With the scope `name`: the cluster.
    pub cluster: String,
    /// With the scope `label`: a label of the clusters.
    pub cluster_label: String,
    /// `allow`: in these clusters; `deny`: in all others of the logical cloud.
    pub mode: String,
}

impl ClusterInfo {
    /// Whether clusters are chosen by label.
    pub fn by_label(&self) -> bool {
        self.scope.eq_ignore_ascii_case("label")
    }

    /// Whether all other clusters are meant.
    pub fn denies(&self) -> bool {
        self.mode.eq_ignore_ascii_case("deny")
    }

    fn broken(&self) -> Vec<String> {
        let one_of = |field: &str, value: &str, words: [&str; 2]| {
            let known = words.iter().any(|word| value.eq_ignore_ascii_case(word));
            (!known).then(|| format!("spec.clusterInfo.{field}: {value:?} is not {} or {}", words[0], words[1]))
        };
        let scope = one_of("scope", &self.scope, ["name", "label"]);
        let mode = one_of("mode", &self.mode, ["allow", "deny"]);
        let named = match self.by_label() {
            true => ("clusterLabel", &self.cluster_label),
            false => ("cluster", &self.cluster),
        };
        let empty = [("clusterProvider", &self.cluster_provider), named].into_iter().filter(|(_, value)| value.is_empty());
        scope.into_iter().chain(mode).chain(empty.map(|(field, _)| format!("spec.clusterInfo.{field} is empty"))).collect()
    }
}

/// Under which keys files become data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataOptions {
    #[serde(default)]
    pub data_key_options: Vec<DataKey>,
}

/// The key of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataKey {
    #[serde(default)]
    pub file_name: String,
    #[serde(default)]
    pub key_name: String,
}

impl CustomizationSpec {
    /// The clusters that it is for, unless it is for all.
    pub fn chosen(&self) -> Option<&ClusterInfo> {
        self.cluster_info.as_ref().filter(|_| self.cluster_specific == "true")
    }

    /// The key of a file in the data of a ConfigMap or Secret: the name of the file, unless the options say otherwise.
    pub fn key_of(&self, file: &str) -> String {
        let options = self.config_map_options.iter().chain(&self.secret_options).flat_map(|options| &options.data_key_options);
        let named = options.into_iter().find(|option| option.file_name == file && !option.key_name.is_empty());
        named.map_or_else(|| file.to_owned(), |option| option.key_name.clone())
    }
}

impl Spec for CustomizationSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let mut reasons = Vec::new();
        if !["true", "false"].contains(&self.cluster_specific.as_str()) {
            reasons.push(format!("spec.clusterSpecific: {:?} is not \"true\" or \"false\"", self.cluster_specific));
        }
        if self.cluster_specific == "true" {
            match &self.cluster_info {
                Some(info) => reasons.extend(info.broken()),
                None => reasons.push("spec.clusterInfo is missing, although spec.clusterSpecific is true".to_owned()),
            }
        }
        if !["", "json", "merge"].contains(&self.patch_type.as_deref().unwrap_or_default()) {
            reasons.push("spec.patchType must be json, merge or empty".to_owned());
        }
        if self.patch_type.as_deref() == Some("json")
            && let Err(error) = self.patch()
        {
            reasons.push(format!("spec.patchJson is not a JSON patch: {error}"));
        }
        Invalid::unless_empty(reasons)
    }
}

impl CustomizationSpec {
    /// The JSON patch.
    ///
    /// # Errors
    /// It is not a JSON patch.
    pub fn patch(&self) -> Result<json_patch::Patch, serde_json::Error> {
        serde_json::from_value(serde_json::json!(self.patch_json))
    }
}

fn any(_: &[u8]) -> Result<(), Invalid> {
    Ok(())
}

const FILE: File =
    File { required: false, many: false, keep: Keep::Table, max_bytes: 1 << 20, content_type: "application/octet-stream", check: any };

/// `generic-k8s-intents/{genericK8sIntent}`
pub static GENERIC_INTENT: DocumentKind =
    DocumentKind::of::<NoSpec>("generic-k8s-intent", "GenericK8sIntent", "generic-k8s-intents", &["genericK8sIntent"])
        .below(&DIG)
        .echo(Echo::Never)
        .put(Put::Upsert);

/// `…/resources/{genericResource}`; the file is the object.
pub static GENERIC_RESOURCE: DocumentKind =
    DocumentKind::of::<GenericResourceSpec>("generic-resource", "GenericResource", "resources", &["genericResource"])
        .below(&GENERIC_INTENT)
        .put(Put::Upsert)
        .tag("generic-k8s-intents")
        .file(FILE);

/// `…/customizations/{customization}`, with any number of files.
pub static CUSTOMIZATION: DocumentKind =
    DocumentKind::of::<CustomizationSpec>("customization", "Customization", "customizations", &["customization"])
        .below(&GENERIC_RESOURCE)
        .sealed(&[&["patchJson", "*", "value"]])
        .put(Put::Upsert)
        .tag("generic-k8s-intents")
        .file(File { many: true, ..FILE });
