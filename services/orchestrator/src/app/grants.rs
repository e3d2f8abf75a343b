//! What the apps of a logical cloud may write: checked when a group is approved, and sent with each binding, so that
//! resource-synchronizer, which knows the kinds of the member, checks it again before it writes.

use drover_api::grants::{Grants, ObjectToWrite};
use drover_manifest::objects::is_cluster_scoped;
use serde_json::Value;

/// Why the logical cloud refuses objects of an app, a reason per object. Of kinds that are not Kubernetes' own it is not known here
/// whether they are cluster-scoped.
pub fn refusals(grants: &Grants, own: &str, app: &str, objects: &[Value]) -> Vec<String> {
    let refusal = |object: &Value| {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let group = text("/apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
        let (kind, namespace) = (text("/kind"), text("/metadata/namespace"));
        let namespace = match (is_cluster_scoped(group, kind), namespace.is_empty()) {
            (true, _) => None,
            (false, true) => Some(own),
            (false, false) => Some(namespace),
        };
        grants.refusal(own, ObjectToWrite { group, kind, namespace, name: text("/metadata/name"), object })
    };
    objects.iter().filter_map(refusal).map(|reason| format!("{app}: {reason}")).collect()
}
