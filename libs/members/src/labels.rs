//! The labels by which Drover knows its own objects in a member.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use uuid::Uuid;

/// Label: id of the deployment intent group.
pub const DIG: &str = "drover.io/dig";
/// Label: name of the app within its group.
pub const APP: &str = "drover.io/app";
/// Label: id of the binding, that is of one app on one member. Pods carry it too.
pub const BINDING: &str = "drover.io/binding";
/// Label: id of the Drover installation that applied the object, so that two installations can share a member.
pub const HUB: &str = "drover.io/hub";
/// Annotation: digest of the object as Drover wants it.
pub const DIGEST: &str = "drover.io/digest";
/// Annotation of a CustomResourceDefinition or Namespace that an app has left behind because others need it: id of the installation, of
/// which any app that contains the object may take it over. Such an object has none of the labels.
pub const RELEASED: &str = "drover.io/released";
/// Annotation of an object of a chart: the events of Helm in which it runs as a hook, separated by commas. Weight and delete policy are in
/// Helm's own annotations. Objects of manifests never have it, so that Helm's annotations in them mean nothing, as for kubectl.
pub const HOOK: &str = "drover.io/hook";
/// Annotation of a workload: who sets `spec.replicas`. With [`FIELD_MANAGER`] Drover always writes the number of the manifest, with any
/// other value never. Without the annotation Drover writes the number until another field manager has changed it.
pub const REPLICAS_OWNER: &str = "drover.io/replicas-owner";
/// Annotation of a ScalingPolicy or HorizontalPodAutoscaler: with `all-clusters` its bounds count for all members of the app together.
pub const BOUNDS: &str = "drover.io/bounds";
/// Annotation beside [`BOUNDS`]: what all pods of the workload may request together, as `cpu=8,memory=16Gi`.
pub const BUDGET: &str = "drover.io/budget";
/// Annotation of a workload: with `true` its app must not run twice, so that a move stops the old copy before it starts the new one.
pub const AT_MOST_ONCE: &str = "drover.io/at-most-once";
/// Annotation of a volume claim template of a StatefulSet: with `true`, and the access mode ReadWriteMany, a pod may start in another cluster
/// before it has stopped in this one.
pub const MAY_OVERLAP: &str = "drover.io/may-overlap";
/// Annotation of an object: a CEL expression over `object` that must be true before the object counts as ready.
pub const SERVING_WHEN: &str = "drover.io/serving-when";
/// Annotation of an object: how long all objects of its app must have been ready before the app counts as ready (`90s`, `5m`).
pub const SERVING_AFTER: &str = "drover.io/serving-after";
/// Annotation of a Service: `[PORT]/PATH`, a request that its pods must answer with success before the app serves.
pub const SERVING_HTTP: &str = "drover.io/serving-http";
/// Label of a StorageClass that an operator sets: with `true` its volumes are the same ones in every cluster that has the class so labelled.
pub const SHARED: &str = "drover.io/shared";
/// Finalizer of a pod whose volumes move: the pod stays visible until its kubelet has said that its containers ended.
pub const STOPS: &str = "drover.io/stops-before-it-moves";
/// Annotation of a volume and of a claim that Drover has made: where the volume was before.
pub const MOVED_FROM: &str = "drover.io/moved-from";
/// Helm's annotation of an object: with `keep` the object stays when its app no longer contains it.
pub const RESOURCE_POLICY: &str = "helm.sh/resource-policy";
/// Field manager of everything that Drover applies.
pub const FIELD_MANAGER: &str = "drover";
/// Field manager of `spec.replicas` of a moved copy that starts with the number that ran where it was moved from.
pub const MOVE_MANAGER: &str = "drover-move";

/// The binding that an object's labels name; `None` if they name none.
pub fn binding(metadata: &ObjectMeta) -> Option<Uuid> {
    metadata.labels.as_ref()?.get(BINDING)?.parse().ok()
}

/// Whether an object with this value of [`RESOURCE_POLICY`] stays when its app no longer contains it.
pub fn keeps(policy: &str) -> bool {
    policy.trim().eq_ignore_ascii_case("keep")
}

/// To which app and binding an object belongs: the values of its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub hub: Uuid,
    /// Deployment intent group.
    pub dig: Uuid,
    pub app: String,
    pub binding: Uuid,
}

impl Owner {
    /// The labels to set.
    pub fn labels(&self) -> [(&'static str, String); 4] {
        [(HUB, self.hub.to_string()), (DIG, self.dig.to_string()), (APP, self.app.clone()), (BINDING, self.binding.to_string())]
    }
    /// Whether these labels belong to an object of the same app in the same group, whatever its binding.
    pub fn owns(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let is = |name: &str, value: &str| labels.is_some_and(|labels| labels.get(name).is_some_and(|found| found == value));
        is(DIG, &self.dig.to_string()) && is(APP, &self.app)
    }
}
