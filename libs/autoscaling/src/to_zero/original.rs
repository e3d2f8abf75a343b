//! What was added for scale to zero, taken off again: objects in a cluster come back with it when somebody applies them once more. Pure.
//!
//! Invariant: adding to the original of an object gives the same as adding to the object that it was made of.

use serde_json::{Value, json};

use super::{SIDECAR, TOKEN, drain};

/// Annotation of a Service whose selector was taken off: what it had, as JSON.
const ORIGINAL: &str = "drover.io/original-spec";

/// Annotation of a Deployment that got the sidecar in the cluster. When it no longer asks for scale to zero, the agent finds it by this,
/// because only metadata is listed.
pub const HAS_SIDECAR: &str = "drover.io/has-sidecar";

/// Whether a Deployment has the sidecar, or a Service is one whose selector was taken off.
pub fn is_expanded(object: &Value) -> bool {
    let has = |list: &Value, name: &str| list.as_array().is_some_and(|items| items.iter().any(|item| item["name"] == name));
    match object["kind"].as_str() {
        Some("Deployment") => has(&object["spec"]["template"]["spec"]["containers"], SIDECAR),
        Some("Service") => object["metadata"]["annotations"].get(ORIGINAL).is_some(),
        _ => false,
    }
}

/// Notes in a Service that was changed what it had before, so that [`original`] finds it.
pub fn keep_original(changed: &mut Value, before: &Value) {
    let spec = json!({"selector": before["spec"]["selector"], "ports": before["spec"]["ports"]});
    if !changed["metadata"]["annotations"].is_object() {
        changed["metadata"]["annotations"] = json!({});
    }
    changed["metadata"]["annotations"][ORIGINAL] = json!(spec.to_string());
}

/// A Deployment or Service without what was added to it; any other object as it is.
pub fn original(mut object: Value) -> Value {
    match object["kind"].as_str() {
        Some("Deployment") => deployment(&mut object),
        Some("Service") => service(&mut object),
        _ => {}
    }
    object
}

fn deployment(object: &mut Value) {
    remove(&mut object["metadata"]["annotations"], HAS_SIDECAR);
    if !is_expanded(object) {
        return;
    }
    let pod = &mut object["spec"]["template"]["spec"];
    without(pod, "containers", |container| container["name"] == SIDECAR);
    without(pod, "volumes", |volume| volume["name"] == TOKEN);
    for container in pod["containers"].as_array_mut().into_iter().flatten() {
        // The API server adds defaults to the hook, so it is known by what it asks for.
        let hook = &container["lifecycle"]["preStop"]["httpGet"];
        if hook["path"] == drain()["httpGet"]["path"] && hook["port"] == drain()["httpGet"]["port"] {
            remove(&mut container["lifecycle"], "preStop");
        }
        if container["lifecycle"].as_object().is_some_and(serde_json::Map::is_empty) {
            remove(container, "lifecycle");
        }
    }
}

/// A selector that somebody has applied since then counts, with the ports beside it.
fn service(object: &mut Value) {
    let Some(kept) = object["metadata"]["annotations"].get(ORIGINAL).and_then(Value::as_str) else { return };
    let kept: Value = serde_json::from_str(kept).unwrap_or_default();
    remove(&mut object["metadata"]["annotations"], ORIGINAL);
    remove(&mut object["metadata"]["labels"], "drover.io/path");
    remove(&mut object["metadata"]["labels"], "drover.io/policy");
    let selector = &object["spec"]["selector"];
    if selector.as_object().is_none_or(serde_json::Map::is_empty) {
        object["spec"]["selector"] = kept["selector"].clone();
        object["spec"]["ports"] = kept["ports"].clone();
    }
}

fn without(object: &mut Value, list: &str, is: impl Fn(&Value) -> bool) {
    let Some(items) = object[list].as_array_mut() else { return };
    items.retain(|item| !is(item));
    if items.is_empty() {
        remove(object, list);
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SCALE_TO_ZERO, expand};
    use super::*;

    fn app() -> Vec<Value> {
        let container = json!({"name": "app", "image": "shop:1", "ports": [{"containerPort": 8080}]});
        vec![
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "cart", "annotations": {SCALE_TO_ZERO: "true"}},
                "spec": {"template": {"metadata": {"labels": {"app": "cart"}},
                    "spec": {"terminationGracePeriodSeconds": 60, "containers": [container]}}}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "cart", "labels": {"team": "a"}, "annotations": {}},
                "spec": {"selector": {"app": "cart"}, "ports": [{"port": 80, "targetPort": 8080}]}}),
        ]
    }

    #[test]
    fn original_is_what_was_applied_and_adding_again_changes_nothing() {
        let mut once = expand(app(), "drover:1").unwrap();
        keep_original(&mut once[1], &app()[1]);
        assert!(is_expanded(&once[0]) && is_expanded(&once[1]) && !app().iter().any(is_expanded));
        // The API server adds defaults.
        once[0]["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]["httpGet"]["scheme"] = json!("HTTP");
        let back: Vec<Value> = once.iter().cloned().map(original).collect();
        assert_eq!(back[..2], app()[..]);
        let again = expand(back[..2].to_vec(), "drover:1").unwrap();
        assert_eq!(again[1]["spec"], once[1]["spec"]);
        assert_eq!(original(app()[0].clone()), app()[0]);
        let mut marked = once[0].clone();
        marked["metadata"]["annotations"][HAS_SIDECAR] = json!("true");
        assert_eq!(original(marked), app()[0]);
        // Somebody has replaced its pods.
        let mut marked = app()[0].clone();
        marked["metadata"]["annotations"][HAS_SIDECAR] = json!("true");
        assert_eq!(original(marked), app()[0]);
    }

    #[test]
    fn selector_that_was_applied_since_counts() {
        let mut once = expand(app(), "drover:1").unwrap();
        keep_original(&mut once[1], &app()[1]);
        once[1]["spec"] = json!({"selector": {"app": "cart", "tier": "web"}, "ports": [{"port": 81, "targetPort": 8080}]});
        let back = original(once[1].clone());
        assert_eq!((&back["spec"]["selector"]["tier"], &back["spec"]["ports"][0]["port"]), (&json!("web"), &json!(81)));
    }
}
