//! Bindings (copies of an app in a cluster), as they are ordered from resource-synchronizer and reported by it.

use std::sync::Arc;

use drover_scheduling::{DigRef, MemberKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::grants::Grants;

/// Rendered objects of an app, stored once per digest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Bundle {
    pub digest: Arc<str>,
    /// The objects in the JSON form of Kubernetes, without Drover's labels.
    pub objects: Vec<Value>,
}

/// Bindings whose desired state is to be stored, each at most once, and a bundle that is stored with them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DesiredBindings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Bundle>,
    pub bindings: Vec<DesiredBinding>,
}

impl FromIterator<DesiredBinding> for DesiredBindings {
    /// Bindings that need no bundle, or whose bundle is stored already.
    fn from_iter<I: IntoIterator<Item = DesiredBinding>>(bindings: I) -> Self {
        Self { bundle: None, bindings: bindings.into_iter().collect() }
    }
}

/// The desired state of a binding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DesiredBinding {
    pub id: Uuid,
    /// The group that the app belongs to.
    pub dig: Arc<DigRef>,
    pub app: String,
    pub member: MemberKey,
    /// Namespace for objects that name none.
    pub namespace: String,
    /// Digest of the bundle to apply.
    pub digest: Arc<str>,
    pub state: DesiredState,
    /// Fence of the writer. A write with a lower fence than the last one is refused.
    pub fence: i64,
    /// What it may write besides namespaced objects in `namespace`. Missing: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Arc<Grants>>,
    /// The service account of the member, as `namespace/name`, as which its objects are written and deleted. Missing: the account that Drover
    /// has in the member. With `absent` it stays the one with which they were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act_as: Option<Arc<str>>,
    /// The part of the app that runs here while its pods move one after the other with their volumes. Missing: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Arc<Share>>,
    /// Whether this is an earlier revision to which somebody goes back: its hooks of rollback run, and not those of upgrade.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rollback: bool,
    /// With `absent`: also delete the volume claims that its StatefulSets made, with their data, when its pods are gone.
    #[serde(default, skip_serializing_if = "is_false")]
    pub delete_volumes: bool,
    /// Whether the names of its Services are to answer in other members of its pod network, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub names: bool,
}

/// The part of an app with volumes that one of its copies runs while the app moves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Share {
    /// Which pods of its StatefulSets run here.
    pub sets: Vec<SetShare>,
    /// The volumes of these pods, which must exist before the pods.
    #[serde(default)]
    pub volumes: Vec<TakenVolume>,
    /// The pods that must not run here any more.
    #[serde(default)]
    pub releases: Vec<Release>,
}

/// The pods of a StatefulSet that run in one place: as many as `replicas`, from the ordinal `start` on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetShare {
    pub namespace: String,
    pub name: String,
    pub start: u32,
    pub replicas: u32,
}

/// A volume with the claim that is bound to it, as they are to be made elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TakenVolume {
    /// The PersistentVolumeClaim; it names the volume.
    pub claim: Value,
    /// The PersistentVolume, with the reclaim policy `Retain` and a reference to the claim.
    pub volume: Value,
}

impl TakenVolume {
    /// Namespace and name of the claim.
    pub fn claim_name(&self) -> (&str, &str) {
        let text = |field: &str| self.claim["metadata"][field].as_str().unwrap_or_default();
        (text("namespace"), text("name"))
    }
    /// Name of the volume.
    pub fn volume_name(&self) -> &str {
        self.volume["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// A pod that is to stop, and the volumes that it gives up. Its claims and volumes are deleted there; the data stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Release {
    pub namespace: String,
    pub pod: String,
    /// Name of its StatefulSet.
    pub set: String,
    pub claims: Vec<ReleasedClaim>,
}

/// A volume claim that a pod gives up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleasedClaim {
    pub name: String,
    /// The volume that it must be bound to; a claim that is bound to another one is not touched.
    pub volume: String,
}

impl Release {
    /// The pod as `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }
}

/// A question: which pods with volumes do these StatefulSets of a member have?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeQuestion {
    pub member: MemberKey,
    pub sets: Vec<SetName>,
}

/// A StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct SetName {
    pub namespace: String,
    pub name: String,
}

/// The pods with volumes of an app in a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeAnswer {
    /// All pods, by StatefulSet and in ascending order of their ordinals.
    pub pods: Vec<StatefulPod>,
    /// Why some of it could not be found out, a sentence each.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// A pod of a StatefulSet, with the volumes that follow it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatefulPod {
    pub namespace: String,
    /// Name of its StatefulSet.
    pub set: String,
    pub ordinal: u32,
    pub volumes: Vec<TakenVolume>,
}

/// A question: would the member accept these objects?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Preflight {
    /// The binding as it would be. Nothing is stored, so its id, digest and fence mean nothing.
    pub binding: DesiredBinding,
    /// The objects in the JSON form of Kubernetes, without Drover's labels.
    pub objects: Vec<Value>,
}

/// What speaks against applying objects in a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreflightAnswer {
    /// A sentence per object that would be refused. Empty: all would be accepted.
    pub reasons: Vec<String>,
    /// Another member may accept the objects: only what is in this one speaks against them.
    #[serde(default)]
    pub elsewhere: bool,
    /// All of it may end although nobody changes the objects or the member's rules: when other apps leave, or when the member answers again.
    #[serde(default, rename = "mayEnd")]
    pub may_end: bool,
    /// Those of `reasons` that do not end so. Only they may be remembered: the others name what other apps have at this moment.
    #[serde(default)]
    pub lasting: Vec<String>,
}

/// Whether the objects of a binding shall exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DesiredState {
    /// The objects exist.
    Present,
    /// None of the objects exists.
    Absent,
}

/// Status of a binding (feed `bindings`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingStatus {
    pub id: Uuid,
    pub member: MemberKey,
    /// Digest of the bundle that this status is about. If it is not the desired digest, the desired one has not been processed yet.
    pub digest: Arc<str>,
    /// Fence of the desired state that this status is about.
    pub fence: i64,
    pub phase: Phase,
    /// Stable code of the reason: `preflight_failed`, `unreachable`, `unschedulable`, `apply_failed`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Explanation for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// It has failed because of what is in this member: another one may accept the objects.
    #[serde(default, skip_serializing_if = "is_false")]
    pub elsewhere: bool,
    /// What of `reason` ends only if somebody changes the objects or the member's rules. Only this may be remembered: the rest names what
    /// other apps have in the member at this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasting: Option<String>,
    /// Message of the cluster's scheduler about pods that fit on no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unschedulable: Option<String>,
    #[serde(default)]
    pub objects: Vec<ObjectStatus>,
    /// Workloads of which another field manager has chosen the number of replicas; Drover does not change it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaled: Vec<ScaledWorkload>,
    /// Objects that are left in the cluster although the binding no longer contains them, because others would lose theirs with them or,
    /// as volume claims, because they have data: a sentence per object, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
    /// The pods of [`Share::releases`] that are known to run here no longer and whose volumes are given up, as `namespace/name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<String>,
    /// Seconds for which all objects must have been ready before the binding is: the app's `drover.io/serving-after`.
    #[serde(default, skip_serializing_if = "is_zero", alias = "serving_after")]
    pub serving_after: u32,
    /// The run of the chart's tests that was asked for last, without what the tests have printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tested: Option<TestRun>,
    /// Version of the [`BoundsOrder`] that its autoscalers have in the member; absent while they do not have the one that was given last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<i64>,
}

/// An order to keep autoscalers of a binding inside these bounds: its share of bounds that count for all members of the app together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BoundsOrder {
    /// Grows with each change. An order with a lower version than the last one is refused.
    pub version: i64,
    /// By autoscaler. One with bounds over all members that is not among them adds no pods.
    pub shares: Vec<PolicyShare>,
}

/// The bounds of one autoscaler in one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyShare {
    /// `ScalingPolicy` or `HorizontalPodAutoscaler`
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub min: u32,
    pub max: u32,
}

/// An order to run the tests of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestOrder {
    /// Id of the run, which the caller chooses. Missing: tests that run are no longer followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Uuid>,
    /// Fence of the writer.
    pub fence: i64,
}

/// A run of the tests of a chart (hooks of the event `test`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestRun {
    pub run: Uuid,
    /// Whether it has ended: every test has succeeded, or one has failed.
    pub ended: bool,
    /// The tests that have begun, in their order.
    pub tests: Vec<TestedHook>,
}

impl TestRun {
    /// The run without what its tests have printed.
    pub fn without_logs(mut self) -> Self {
        self.tests.iter_mut().for_each(|test| test.log = None);
        self
    }
}

/// A test of a chart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestedHook {
    /// The object, as `Pod/web-test`.
    pub object: String,
    pub result: TestResult,
    /// Why it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The end of what its pods have printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// How a test is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TestResult {
    Running,
    Succeeded,
    Failed,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A workload whose number of replicas was chosen by another field manager than Drover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScaledWorkload {
    pub kind: String,
    pub name: String,
    /// The number when it was last read.
    pub replicas: i32,
    /// Field manager in Kubernetes: `kube-controller-manager` for an HPA.
    pub by: String,
}

impl ScaledWorkload {
    /// The workload as `Kind/name`, by which demands name it.
    pub fn workload(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }
}

/// Phase of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Phase {
    Pending,
    Applying,
    Applied,
    Ready,
    Failed,
    Deleting,
    Gone,
    Unreachable,
}

/// Status of an object of a binding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObjectStatus {
    /// API group; empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
    /// Whether the object exists in the cluster as desired.
    pub applied: bool,
    /// Whether the object is ready, as its kind defines it (for workloads as `kubectl rollout status` does).
    pub ready: bool,
    /// Why the object is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
