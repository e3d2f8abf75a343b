//! A Deployment and its Service with what they need for scale to zero, from what is in the cluster. Pure.

use drover_autoscaling::to_zero::{self, HAS_SIDECAR, keep_original, original};
use serde_json::{Value, json};

/// Label of what was added, so that it can be found again: the Service of the pods and the ScalingPolicy.
pub const MADE_BY: &str = "drover.io/made-by";
/// Value of [`MADE_BY`].
pub const SCALE_TO_ZERO: &str = "scale-to-zero";

/// What should be in the cluster.
#[derive(Debug, PartialEq)]
pub struct Expanded {
    pub deployment: Value,
    pub service: Value,
    pub added: Vec<Value>,
}

/// Whether its annotation asks for scale to zero, and it is not an object that Drover has applied.
pub fn is_asked(deployment: &Value) -> bool {
    !is_by_drover(deployment) && to_zero::is_asked(std::slice::from_ref(deployment))
}

/// Whether Drover has applied the object: then what it needs is none of the webhook's business.
pub fn is_by_drover(object: &Value) -> bool {
    object["metadata"]["labels"].get("drover.io/binding").is_some()
}

/// What a Deployment needs. `others`: the Services and HorizontalPodAutoscalers of its namespace.
///
/// # Errors
/// A sentence for people: what is missing or contradicts it.
pub fn expanded(deployment: &Value, others: &[Value], image: &str) -> Result<Expanded, String> {
    let others = without_made(others);
    let before: Vec<Value> = std::iter::once(deployment).chain(&others).cloned().map(original).collect();
    let mut after = to_zero::expand(before.clone(), image)?;
    let mut added = after.split_off(before.len());
    let changed = (1..before.len()).find(|index| before[*index] != after[*index]);
    let changed = changed.ok_or_else(|| format!("{} does not ask for it", to_zero::SCALE_TO_ZERO))?;
    let mut service = after.swap_remove(changed);
    keep_original(&mut service, &before[changed]);
    // It means nothing without a selector, and whoever applies the Service again is not asked why it differs.
    let port = &before[changed]["spec"]["ports"][0]["targetPort"];
    if !port.is_null() {
        service["spec"]["ports"][0]["targetPort"] = port.clone();
    }
    let mut deployment = after.swap_remove(0);
    deployment["metadata"]["annotations"][HAS_SIDECAR] = json!("true");
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment["metadata"]["name"],
        "uid": deployment["metadata"]["uid"]}]);
    for object in &mut added {
        object["metadata"]["labels"][MADE_BY] = json!(SCALE_TO_ZERO);
        object["metadata"]["ownerReferences"] = owner.clone();
    }
    Ok(Expanded { deployment, service, added })
}

/// Whether an object has everything that is wanted; it may have more, such as defaults.
pub fn covers(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| covers(found.get(key).unwrap_or(&Value::Null), wanted))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| covers(found, wanted))
        }
        (found, wanted) => found == wanted,
    }
}

/// Objects without those that were added.
fn without_made(objects: &[Value]) -> Vec<Value> {
    objects.iter().filter(|object| object["metadata"]["labels"][MADE_BY] != SCALE_TO_ZERO).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "cart", "namespace": "shop", "uid": "u", "annotations": {"drover.io/scale-to-zero": "max=3"}},
            "spec": {"template": {"metadata": {"labels": {"app": "cart"}},
                "spec": {"containers": [{"name": "app", "ports": [{"containerPort": 8080}]}]}}}})
    }

    fn service(name: &str, app: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"},
            "spec": {"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8080}]}})
    }

    #[test]
    fn what_was_expanded_is_expanded_to_the_same_again() {
        let others = [service("other", "other"), service("cart", "cart")];
        let once = expanded(&deployment(), &others, "drover:1").unwrap();
        assert_eq!((&once.service["metadata"]["name"], once.added.len()), (&json!("cart"), 2));
        assert!(once.added.iter().all(|object| object["metadata"]["ownerReferences"][0]["uid"] == "u"));
        let pods = once.added.iter().find(|object| object["kind"] == "Service").unwrap().clone();
        // Of the Services in the cluster, that of the pods selects them too; it is not the app's own.
        let others = [pods, once.service.clone()];
        let again = expanded(&once.deployment, &others, "drover:1").unwrap();
        assert_eq!(again, once);
    }

    #[test]
    fn what_is_missing_is_said() {
        let said = expanded(&deployment(), &[service("other", "other")], "drover:1").unwrap_err();
        assert!(said.contains("no Service selects its pods"), "{said}");
        let mut of_drover = deployment();
        of_drover["metadata"]["labels"]["drover.io/binding"] = json!("b");
        assert!(is_asked(&deployment()) && !is_asked(&of_drover));
    }

    #[test]
    fn defaults_are_no_difference() {
        let found = json!({"a": [{"b": 1, "default": true}], "c": 2});
        assert!(covers(&found, &json!({"a": [{"b": 1}]})));
        assert!(!covers(&found, &json!({"a": [{"b": 2}]})) && !covers(&found, &json!({"a": []})) && !covers(&found, &json!({"d": 1})));
    }
}
