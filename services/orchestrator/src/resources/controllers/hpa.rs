//! EMCO's hardware intents (hpa-placement): what the containers of a workload request, and which nodes its pods accept.

use drover_resources::{DocumentKind, Invalid, Put, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::not_names;
use crate::resources::DIG;

/// The app of a hardware intent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HpaIntentSpec {
    #[serde(default)]
    pub app: String,
}

impl Spec for HpaIntentSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        Invalid::unless_empty(not_names([("app", self.app.as_str())]))
    }
}

/// The workload that needs resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HpaConsumerSpec {
    #[serde(default, rename = "apiVersion", skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    #[serde(default)]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

impl Spec for HpaConsumerSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let empty = self.name.is_empty().then(|| "spec.name is empty".to_owned());
        let replicas = self.replicas.filter(|replicas| *replicas < 1).map(|_| "spec.replicas is below 1".to_owned());
        Invalid::unless_empty(empty.into_iter().chain(replicas).collect())
    }
}

/// A resource that is needed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HpaRequirementSpec {
    /// Whether an amount is needed (`name`, `requests`), or a label of the node (`key`, `value`).
    pub allocatable: bool,
    /// Stored. As in EMCO, everything that is named is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mandatory: Option<bool>,
    /// Stored; has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    pub resource: HpaResource,
}

/// An amount of a resource, or a label of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HpaResource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Amount that a container requests, in `units`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<i64>,
    /// Most that a container may use, in `units`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<i64>,
    /// Unit of the amounts: `K`, `M`, `G`, `Ki`, `Mi` or `Gi`, or `m` for thousandths. Without one, memory is counted in MB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl Spec for HpaRequirementSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let given = |field: &Option<String>| field.as_deref().is_some_and(|text| !text.is_empty());
        let resource = &self.resource;
        let mut reasons = Vec::new();
        let mut need = |holds: bool, what: &str| {
            if !holds {
                reasons.push(what.to_owned());
            }
        };
        if self.allocatable {
            need(given(&resource.name), "spec.resource.name is empty");
            need(resource.requests.is_some_and(|requests| requests >= 1), "spec.resource.requests is below 1");
        } else {
            need(given(&resource.key), "spec.resource.key is empty");
            need(given(&resource.value), "spec.resource.value is empty");
        }
        need(self.weight.is_none_or(|weight| weight >= 1), "spec.weight is below 1");
        Invalid::unless_empty(reasons)
    }
}

/// `hpa-intents/{hpaIntent}`
pub static HPA_INTENT: DocumentKind = DocumentKind::of::<HpaIntentSpec>("hpa-intent", "HpaIntent", "hpa-intents", &["hpaIntent"])
    .below(&DIG)
    .put(Put::Upsert)
    .filters(&[("intent", "metadata.name")]);

/// `…/hpa-resource-consumers/{hpaConsumer}`
pub static HPA_CONSUMER: DocumentKind =
    DocumentKind::of::<HpaConsumerSpec>("hpa-consumer", "HpaConsumer", "hpa-resource-consumers", &["hpaConsumer"])
        .below(&HPA_INTENT)
        .put(Put::Upsert)
        .filters(&[("consumer", "metadata.name")])
        .tag("hpa-intents");

/// `…/resource-requirements/{hpaResource}`
pub static HPA_REQUIREMENT: DocumentKind =
    DocumentKind::of::<HpaRequirementSpec>("hpa-requirement", "HpaRequirement", "resource-requirements", &["hpaResource"])
        .below(&HPA_CONSUMER)
        .put(Put::Upsert)
        .filters(&[("resource", "metadata.name")])
        .tag("hpa-intents");
