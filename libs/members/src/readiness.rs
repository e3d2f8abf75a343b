//! Judges whether an object is ready, by its kind. Deployments, StatefulSets and DaemonSets follow the rules of
//! `kubectl rollout status` (`k8s.io/kubectl/pkg/polymorphichelpers`); where kubectl has no rule, the comments here give one.
//!
//! Pure: takes an object as the API server returned it and returns a judgement. Invariants: a status that describes an older
//! generation proves nothing; a workload without pods is ready only if it wants none; a running pod is not yet a ready one.

use serde_json::Value;

/// The judgement on one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The object does what was asked of it.
    Ready,
    /// Not ready yet, with the reason.
    NotReady(String),
    /// Not ready, and it will stay so until somebody changes something; with the reason.
    Failed(String),
}

impl Readiness {
    /// Whether the object is ready.
    pub fn is_ready(&self) -> bool {
        *self == Self::Ready
    }
    /// Why the object is not ready; `None` if it is.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Ready => None,
            Self::NotReady(reason) | Self::Failed(reason) => Some(reason),
        }
    }
}

use Readiness::{Failed, NotReady, Ready};

/// Whether objects of this kind can exist without being ready, so that whole objects and not only their metadata must be watched.
pub fn has_status(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    matches!(
        (group, kind),
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
            | ("batch", "Job")
            | ("", "Pod" | "PersistentVolumeClaim" | "Service" | "Namespace" | "ReplicationController")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("apiregistration.k8s.io", "APIService")
    )
}

/// Judges one object. Kinds for which [`has_status`] is false are ready as soon as they exist.
pub fn of(object: &Value) -> Readiness {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return NotReady("is being deleted".into());
    }
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    if !has_status(api_version, kind) {
        return Ready;
    }
    match kind {
        "Deployment" => observed(object, deployment),
        "StatefulSet" => observed(object, stateful_set),
        "DaemonSet" => observed(object, daemon_set),
        "ReplicaSet" | "ReplicationController" => observed(object, |object| replicas(object, "availableReplicas")),
        "Job" => job(object),
        "Pod" => pod(object),
        "PersistentVolumeClaim" if text("/status/phase") == "Lost" => Failed("its volume is lost".into()),
        "PersistentVolumeClaim" => unless(text("/status/phase") == "Bound", || "is not bound to a volume".into()),
        "Service" => unless(!text("/spec/clusterIP").is_empty() || text("/spec/type") == "ExternalName", || "has no address".into()),
        "Namespace" => unless(text("/status/phase") == "Active", || "is not active".into()),
        "CustomResourceDefinition" => match condition(object, "NamesAccepted") {
            Some(("False", reason)) => Failed(format!("its names are not accepted: {reason}")),
            _ => unless(is_true(object, "Established"), || "is not established".into()),
        },
        _ => unless(is_true(object, "Available"), || "is not available".into()),
    }
}

fn unless(ready: bool, reason: impl FnOnce() -> String) -> Readiness {
    if ready { Ready } else { NotReady(reason()) }
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// Status and message of the condition of this type.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    Some((found["status"].as_str().unwrap_or_default(), found["message"].as_str().unwrap_or_default()))
}

fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|(status, _)| status == "True")
}

/// Judges the status only if the controller wrote it for the newest generation.
fn observed(object: &Value, judge: impl FnOnce(&Value) -> Readiness) -> Readiness {
    let observed = number(object, "/status/observedGeneration");
    if observed == 0 || observed < number(object, "/metadata/generation") {
        return NotReady("its controller has not seen this generation yet".into());
    }
    judge(object)
}

fn wanted(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

fn replicas(object: &Value, field: &str) -> Readiness {
    let (wanted, have) = (wanted(object), number(object, &format!("/status/{field}")));
    unless(have >= wanted, || format!("{have} of {wanted} pods available"))
}

fn deployment(object: &Value) -> Readiness {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    if let Some(late) =
        conditions.and_then(|all| all.iter().find(|c| c["type"] == "Progressing" && c["reason"] == "ProgressDeadlineExceeded"))
    {
        return Failed(format!("makes no progress: {}", late["message"].as_str().unwrap_or_default()));
    }
    let status = |field: &str| number(object, &format!("/status/{field}"));
    let (wanted, all, updated, available) = (wanted(object), status("replicas"), status("updatedReplicas"), status("availableReplicas"));
    if updated < wanted {
        NotReady(format!("{updated} of {wanted} pods updated"))
    } else if all > updated {
        NotReady(format!("{} old pods are still there", all - updated))
    } else {
        unless(available >= updated, || format!("{available} of {updated} pods available"))
    }
}

fn stateful_set(object: &Value) -> Readiness {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (wanted, ready, updated) = (wanted(object), number(object, "/status/readyReplicas"), number(object, "/status/updatedReplicas"));
    if ready < wanted {
        return NotReady(format!("{ready} of {wanted} pods ready"));
    }
    // kubectl has no rule for OnDelete: pods of an older revision stay until somebody deletes them.
    if text("/spec/updateStrategy/type") == "OnDelete" {
        return Ready;
    }
    if object.pointer("/spec/updateStrategy/rollingUpdate").is_some_and(Value::is_object) {
        let due = wanted - number(object, "/spec/updateStrategy/rollingUpdate/partition");
        return unless(updated >= due, || format!("{updated} of {due} pods updated"));
    }
    let complete = text("/status/updateRevision") == text("/status/currentRevision");
    unless(complete, || format!("{updated} of {wanted} pods updated, the rollout is not complete"))
}

/// Ready too where no node matches: then no pod is wanted.
fn daemon_set(object: &Value) -> Readiness {
    let status = |field: &str| number(object, &format!("/status/{field}"));
    let (wanted, updated, available) = (status("desiredNumberScheduled"), status("updatedNumberScheduled"), status("numberAvailable"));
    // kubectl has no rule for OnDelete: pods of an older revision stay until somebody deletes them.
    let on_delete = object.pointer("/spec/updateStrategy/type").is_some_and(|kind| kind == "OnDelete");
    if updated < wanted && !on_delete {
        return NotReady(format!("{updated} of {wanted} pods updated"));
    }
    unless(available >= wanted, || format!("{available} of {wanted} pods available"))
}

/// A Job is ready while one of its pods is, when it is complete, and while it is suspended.
fn job(object: &Value) -> Readiness {
    if let Some(("True", message)) = condition(object, "Failed") {
        return Failed(format!("failed: {message}"));
    }
    let suspended = object.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true);
    let ready = suspended || is_true(object, "Complete") || number(object, "/status/ready") > 0;
    unless(ready, || "no pod of it is ready yet".into())
}

fn pod(object: &Value) -> Readiness {
    let phase = object.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    match phase {
        "Succeeded" => Ready,
        "Failed" => {
            Failed(format!("failed: {}", object.pointer("/status/message").and_then(Value::as_str).unwrap_or("its containers ended")))
        }
        _ if is_true(object, "Ready") => Ready,
        _ => NotReady(match condition(object, "PodScheduled") {
            Some(("False", message)) => format!("fits on no node: {message}"),
            _ => "is not ready".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judge(api_version: &str, kind: &str, spec: Value, status: Value) -> Readiness {
        of(&json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "generation": 2}, "spec": spec, "status": status}))
    }
    fn not(reason: &str) -> Readiness {
        NotReady(reason.into())
    }

    #[test]
    fn deployment_is_ready_when_rollout_status_says_so() {
        let judge = |spec, status| judge("apps/v1", "Deployment", spec, status);
        let all = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        assert_eq!(judge(json!({"replicas": 2}), all.clone()), Ready);
        // The status describes an older generation.
        let mut old = all.clone();
        old["observedGeneration"] = json!(1);
        assert!(matches!(judge(json!({"replicas": 2}), old), NotReady(_)));
        // No pods are enough only if none are wanted.
        assert_eq!(judge(json!({}), json!({"observedGeneration": 2})), not("0 of 1 pods updated"));
        assert_eq!(judge(json!({"replicas": 0}), json!({"observedGeneration": 2})), Ready);
        let mut surging = all.clone();
        surging["replicas"] = json!(3);
        assert_eq!(judge(json!({"replicas": 2}), surging), not("1 old pods are still there"));
        let mut starting = all.clone();
        starting["availableReplicas"] = json!(1);
        assert_eq!(judge(json!({"replicas": 2}), starting), not("1 of 2 pods available"));
        let mut late = all;
        late["conditions"] =
            json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}]);
        assert_eq!(judge(json!({"replicas": 2}), late), Failed("makes no progress: timed out".into()));
    }

    #[test]
    fn stateful_set_is_ready_when_rollout_status_says_so() {
        let judge = |spec, status| judge("apps/v1", "StatefulSet", spec, status);
        let rolling_update =
            |partition: i64| json!({"replicas": 2, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}});
        let status = |ready: i64, updated: i64, current: &str| json!({"observedGeneration": 2, "readyReplicas": ready, "updatedReplicas": updated, "currentRevision": current, "updateRevision": "b"});
        assert_eq!(judge(rolling_update(0), status(1, 1, "a")), not("1 of 2 pods ready"));
        assert_eq!(judge(rolling_update(0), status(2, 1, "a")), not("1 of 2 pods updated"));
        assert_eq!(judge(rolling_update(0), status(2, 2, "a")), Ready);
        // A pod that is being deleted may still count as ready, but no longer as updated.
        assert_eq!(judge(rolling_update(0), status(2, 1, "b")), not("1 of 2 pods updated"));
        // Pods below the partition keep the old revision on purpose.
        assert_eq!(judge(rolling_update(1), status(2, 1, "a")), Ready);
        assert_eq!(judge(rolling_update(5), status(2, 0, "a")), Ready);
        // Without parameters of the rolling update the two revisions decide.
        let no_parameters = json!({"replicas": 2, "updateStrategy": {"type": "RollingUpdate"}});
        assert_eq!(judge(no_parameters.clone(), status(2, 2, "a")), not("2 of 2 pods updated, the rollout is not complete"));
        assert_eq!(judge(no_parameters, status(2, 2, "b")), Ready);
        // kubectl has no rule for OnDelete: ready pods are enough, whatever their revision.
        assert_eq!(judge(json!({"replicas": 2, "updateStrategy": {"type": "OnDelete"}}), status(2, 0, "a")), Ready);
        // A controller that never wrote a status has not accepted zero replicas either.
        assert_eq!(judge(json!({"replicas": 0}), json!({})), not("its controller has not seen this generation yet"));
    }

    #[test]
    fn daemon_set_that_matches_no_node_is_ready() {
        let none = json!({"observedGeneration": 2, "desiredNumberScheduled": 0, "currentNumberScheduled": 0, "numberReady": 0});
        assert_eq!(judge("apps/v1", "DaemonSet", json!({"updateStrategy": {"type": "RollingUpdate"}}), none), Ready);
        // Before its controller has counted the nodes, zero means nothing.
        for status in [json!({}), json!({"observedGeneration": 1, "desiredNumberScheduled": 0})] {
            let unseen = judge("apps/v1", "DaemonSet", json!({}), status);
            assert_eq!(unseen, not("its controller has not seen this generation yet"));
        }
    }

    #[test]
    fn daemon_set_waits_for_updated_and_available_pods() {
        let judge = |strategy: &str, updated: i64, available: i64| {
            let status = json!({"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": updated, "numberAvailable": available});
            judge("apps/v1", "DaemonSet", json!({"updateStrategy": {"type": strategy}}), status)
        };
        assert_eq!(judge("RollingUpdate", 1, 2), not("1 of 2 pods updated"));
        assert_eq!(judge("RollingUpdate", 2, 1), not("1 of 2 pods available"));
        assert_eq!(judge("RollingUpdate", 2, 2), Ready);
        assert_eq!(judge("OnDelete", 0, 2), Ready);
    }

    #[test]
    fn job_is_ready_while_a_pod_of_it_is_ready_or_when_complete() {
        let job = |status| judge("batch/v1", "Job", json!({}), status);
        assert!(!job(json!({"active": 1})).is_ready());
        assert!(job(json!({"active": 1, "ready": 1})).is_ready());
        assert!(job(json!({"conditions": [{"type": "Complete", "status": "True"}]})).is_ready());
        assert_eq!(job(json!({"conditions": [{"type": "Failed", "status": "True", "message": "m"}]})), Failed("failed: m".into()));
    }

    #[test]
    fn running_pod_is_not_ready_before_its_condition_says_so() {
        let pod = |status| judge("v1", "Pod", json!({}), status);
        assert_eq!(pod(json!({"phase": "Running"})), not("is not ready"));
        assert_eq!(pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})), Ready);
        let unschedulable =
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]});
        assert_eq!(pod(unschedulable), not("fits on no node: 0/3 nodes"));
        assert!(matches!(pod(json!({"phase": "Failed"})), Failed(_)));
    }

    #[test]
    fn other_kinds_are_ready_by_their_own_conditions() {
        assert_eq!(judge("v1", "ConfigMap", json!({}), json!({})), Ready);
        assert_eq!(judge("v1", "PersistentVolumeClaim", json!({}), json!({"phase": "Bound"})), Ready);
        assert_eq!(judge("v1", "PersistentVolumeClaim", json!({}), json!({"phase": "Pending"})), not("is not bound to a volume"));
        assert_eq!(judge("v1", "Service", json!({"clusterIP": "None"}), json!({})), Ready);
        let crd = |status| judge("apiextensions.k8s.io/v1", "CustomResourceDefinition", json!({}), status);
        assert_eq!(crd(json!({})), not("is not established"));
        assert_eq!(crd(json!({"conditions": [{"type": "Established", "status": "True"}]})), Ready);
        // A kind of the same name in another group is ready as soon as it exists.
        assert_eq!(judge("serving.knative.dev/v1", "Service", json!({}), json!({})), Ready);
        let going = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(of(&going), not("is being deleted"));
    }
}
