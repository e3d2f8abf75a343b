//! The labels that say whose an object is.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use uuid::Uuid;

/// Deployment intent group (uuid).
pub const DIG: &str = "drover.io/dig";
/// App of the group.
pub const APP: &str = "drover.io/app";
/// Binding (uuid): one app on one member. Pods carry it too.
pub const BINDING: &str = "drover.io/binding";
/// The Drover installation that applied it (uuid): two of them may share a member and leave each other alone.
pub const HUB: &str = "drover.io/hub";
/// Annotation: digest of the object as Drover desired it.
pub const DIGEST: &str = "drover.io/digest";
/// Annotation of a workload: an agent owns `spec.replicas`.
pub const REPLICAS_OWNER: &str = "drover.io/replicas-owner";
/// Field manager of everything that Drover applies.
pub const FIELD_MANAGER: &str = "drover";

/// The binding that an object's labels name.
pub fn binding(metadata: &ObjectMeta) -> Option<Uuid> {
    metadata.labels.as_ref()?.get(BINDING)?.parse().ok()
}

/// Whose an object is: the labels' values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Installation.
    pub hub: Uuid,
    /// Deployment intent group.
    pub dig: Uuid,
    /// App.
    pub app: String,
    /// Binding.
    pub binding: Uuid,
}

impl Owner {
    /// The labels to set.
    pub fn labels(&self) -> [(&'static str, String); 4] {
        [(HUB, self.hub.to_string()), (DIG, self.dig.to_string()), (APP, self.app.clone()), (BINDING, self.binding.to_string())]
    }
    /// Whether the labels say that this object belongs to the same app of the same group, under whichever binding.
    pub fn owns(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let is = |name: &str, value: &str| labels.is_some_and(|labels| labels.get(name).is_some_and(|found| found == value));
        is(DIG, &self.dig.to_string()) && is(APP, &self.app)
    }
}
