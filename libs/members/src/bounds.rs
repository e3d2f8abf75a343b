//! Bounds of an autoscaler that count for all members of an app together: which objects have them, and a member's share in their place.
//!
//! The annotation [`labels::BOUNDS`] on a ScalingPolicy or a HorizontalPodAutoscaler says so; [`labels::BUDGET`] beside it limits what
//! all its pods request together. Who gets which share is decided elsewhere. Pure.

use drover_quantity::{NotAQuantity, milli, units};
use drover_scheduling::Amounts;
use serde_json::{Value, json};

use crate::labels;

/// The value of [`labels::BOUNDS`] for bounds over all members; with `cluster` they count for each, as without the annotation.
const ALL: &str = "all-clusters";

/// An autoscaler with bounds over all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TotalBounds {
    /// Which object.
    pub policy: PolicyName,
    /// The workload that it scales, as `Kind/name`.
    pub workload: String,
    pub min: u32,
    pub max: u32,
    /// What its pods may request together: limits by resource, in the units of [`Amounts`].
    pub budget: Vec<(String, i64)>,
}

/// Kind, namespace and name of an autoscaler; the namespace is empty if the object names none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyName {
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

impl TotalBounds {
    /// The most pods that the bounds and the budget allow, if each requests this.
    pub fn most(&self, pod: &Amounts) -> u32 {
        let affordable =
            self.budget.iter().filter(|(resource, _)| pod.get(resource) > 0).map(|(resource, limit)| limit / pod.get(resource));
        affordable.map(|pods| u32::try_from(pods.max(0)).unwrap_or(u32::MAX)).fold(self.max, u32::min)
    }
}

/// The autoscalers among these objects that have bounds over all members.
///
/// # Errors
/// A sentence for people: which annotation cannot be used, and what would be right.
pub fn of(objects: &[Value]) -> Result<Vec<TotalBounds>, String> {
    let mut found = Vec::new();
    for object in objects {
        let annotations = &object["metadata"]["annotations"];
        let said = match annotations.get(labels::BOUNDS).map(|value| value.as_str().unwrap_or_default()) {
            None | Some("cluster") if annotations.get(labels::BUDGET).is_none() => continue,
            said => said,
        };
        found.push(read(object, said).map_err(|reason| {
            let PolicyName { kind, name, .. } = policy_name(object);
            format!("{kind} {name}: {reason}")
        })?);
    }
    Ok(found)
}

fn read(object: &Value, said: Option<&str>) -> Result<TotalBounds, String> {
    match said {
        Some(ALL) => {}
        Some("cluster") | None => return Err(format!("{} is for bounds over all clusters: add {}: {ALL}", labels::BUDGET, labels::BOUNDS)),
        Some(other) => return Err(format!("{} is {ALL} or cluster, not {other:?}", labels::BOUNDS)),
    }
    let spec = &object["spec"];
    let target = if is_policy(object) {
        &spec["target"]
    } else if is_hpa(object) {
        &spec["scaleTargetRef"]
    } else {
        return Err(format!("{} is for ScalingPolicies and HorizontalPodAutoscalers of autoscaling/v2", labels::BOUNDS));
    };
    let number = |field: &str| spec[field].as_u64().and_then(|number| i32::try_from(number).ok()).map(i32::unsigned_abs);
    let min = if spec["minReplicas"].is_null() { Some(1) } else { number("minReplicas") };
    let (Some(min), Some(max)) = (min, number("maxReplicas").filter(|max| *max > 0)) else {
        return Err("minReplicas and maxReplicas must be whole numbers, and maxReplicas 1 or more".to_owned());
    };
    if min > max {
        return Err("maxReplicas must be no less than minReplicas".to_owned());
    }
    if is_policy(object) && !spec["pin"].is_null() {
        return Err(format!("pin fixes the number in one cluster, which contradicts {}: {ALL}; remove one of the two", labels::BOUNDS));
    }
    Ok(TotalBounds {
        policy: policy_name(object),
        workload: format!("{}/{}", text(&target["kind"]), text(&target["name"])),
        min,
        max,
        budget: budget(&object["metadata"]["annotations"][labels::BUDGET])?,
    })
}

fn budget(said: &Value) -> Result<Vec<(String, i64)>, String> {
    let Some(text) = said.as_str() else { return if said.is_null() { Ok(Vec::new()) } else { Err(wrong(&said.to_string())) } };
    let limit = |part: &str| -> Option<(String, i64)> {
        let (resource, amount) = part.split_once('=')?;
        let resource = resource.trim();
        let read: fn(&str) -> Result<i64, NotAQuantity> = if resource == "cpu" { milli } else { units };
        Some((resource.to_owned(), read(amount.trim()).ok().filter(|limit| *limit > 0)?))
    };
    text.split(',').map(|part| limit(part).ok_or_else(|| wrong(text))).collect()
}

fn wrong(text: &str) -> String {
    format!("{} names limits such as cpu=8,memory=16Gi, not {text:?}", labels::BUDGET)
}

/// Puts the share of a member (lower and upper bound) in the place of bounds over all members. `share_of` names it by policy; the default
/// namespace is filled in.
///
/// An autoscaler without a share keeps its upper bound, but adds no pods: others may be using the room.
pub fn shared(mut objects: Vec<Value>, default: &str, share_of: impl Fn(&PolicyName) -> Option<(u32, u32)>) -> Vec<Value> {
    for object in objects.iter_mut().filter(|object| object["metadata"]["annotations"][labels::BOUNDS] == ALL) {
        let mut policy = policy_name(object);
        if policy.namespace.is_empty() {
            default.clone_into(&mut policy.namespace);
        }
        match share_of(&policy) {
            Some((min, max)) => (object["spec"]["minReplicas"], object["spec"]["maxReplicas"]) = (json!(min), json!(max)),
            None => add_none(object),
        }
    }
    objects
}

/// Lets an autoscaler hold the number of pods, or lower it.
fn add_none(object: &mut Value) {
    let spec = &mut object["spec"];
    if spec["minReplicas"].as_u64().is_none_or(|min| min > 1) {
        spec["minReplicas"] = json!(1);
    }
    if is_policy(object) {
        let pause = &mut object["spec"]["pause"];
        *pause = json!(if pause.is_null() || pause == "out" { "out" } else { "all" });
    } else if is_hpa(object) {
        object["spec"]["behavior"]["scaleUp"]["selectPolicy"] = json!("Disabled");
    }
}

/// Whether Drover's agent scales by this object.
pub fn is_policy(object: &Value) -> bool {
    object["kind"] == "ScalingPolicy" && object["apiVersion"].as_str().is_some_and(|version| version.starts_with("drover.io/"))
}

/// Whether Kubernetes scales by this object, and can be told to add no pods: autoscaling/v1 cannot.
fn is_hpa(object: &Value) -> bool {
    object["kind"] == "HorizontalPodAutoscaler" && object["apiVersion"] == "autoscaling/v2"
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn policy_name(object: &Value) -> PolicyName {
    let metadata = &object["metadata"];
    PolicyName { kind: text(&object["kind"]), namespace: text(&metadata["namespace"]), name: text(&metadata["name"]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(annotations: Value) -> Value {
        json!({"apiVersion": "drover.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": "web", "annotations": annotations},
            "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}, "policy": "kpa", "minReplicas": 2, "maxReplicas": 12}})
    }

    fn hpa(annotations: Value) -> Value {
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}, "minReplicas": 2, "maxReplicas": 12}})
    }

    #[test]
    fn bounds_over_all_members_are_those_that_say_so() {
        let annotations = json!({"drover.io/bounds": "all-clusters", "drover.io/budget": "cpu=2,memory=1Gi"});
        let objects = [policy(Value::Null), policy(json!({"drover.io/bounds": "cluster"})), policy(annotations.clone()), hpa(annotations)];
        let found = of(&objects).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].min, found[0].max, found[0].workload.as_str()), (2, 12, "Deployment/shop"));
        assert_eq!((found[1].policy.namespace.as_str(), found[1].workload.as_str()), ("shop", "Deployment/shop"));
        // 2 CPUs are eight pods of 250m; 1 GiB is four pods of 256 MiB; what a pod does not request costs nothing.
        let most = |cpu, memory| found[0].most(&Amounts::pod(cpu, memory));
        assert_eq!((most(250, 1), most(250, 256 << 20), most(0, 0), most(3_000, 0)), (8, 4, 12, 0));
    }

    #[test]
    fn annotations_that_cannot_be_used_are_refused_with_what_would_be_right() {
        let with = |change: fn(&mut Value)| {
            let mut object = policy(json!({"drover.io/bounds": "all-clusters"}));
            change(&mut object);
            of(&[object]).unwrap_err()
        };
        for (refused, said) in [
            (with(|object| object["metadata"]["annotations"]["drover.io/bounds"] = json!("everywhere")), "all-clusters or cluster"),
            (with(|object| object["metadata"]["annotations"]["drover.io/budget"] = json!("8 CPUs")), "cpu=8,memory=16Gi"),
            (with(|object| object["metadata"]["annotations"]["drover.io/budget"] = json!("cpu=0")), "cpu=8,memory=16Gi"),
            (with(|object| object["metadata"]["annotations"] = json!({"drover.io/budget": "cpu=1"})), "add drover.io/bounds: all-clusters"),
            (with(|object| object["spec"]["pin"] = json!(3)), "pin"),
            (with(|object| object["spec"]["minReplicas"] = json!(13)), "no less"),
            (with(|object| object["kind"] = json!("Deployment")), "is for ScalingPolicies"),
            (
                with(|object| (object["kind"], object["apiVersion"]) = (json!("HorizontalPodAutoscaler"), json!("autoscaling/v1"))),
                "of autoscaling/v2",
            ),
        ] {
            assert!(refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn share_takes_the_place_of_the_bounds_and_without_one_no_pods_are_added() {
        let said = json!({"drover.io/bounds": "all-clusters"});
        let share_of = |name: &PolicyName| (name.kind == "ScalingPolicy" && name.namespace == "n").then_some((1, 5));
        let objects = vec![policy(said.clone()), hpa(said.clone()), policy(Value::Null)];
        let made = shared(objects.clone(), "n", share_of);
        assert_eq!((&made[0]["spec"]["minReplicas"], &made[0]["spec"]["maxReplicas"]), (&json!(1), &json!(5)));
        assert_eq!(
            (&made[1]["spec"]["minReplicas"], &made[1]["spec"]["behavior"]["scaleUp"]["selectPolicy"]),
            (&json!(1), &json!("Disabled"))
        );
        assert_eq!(made[2], objects[2], "bounds of one cluster are left alone");
        let without = shared(vec![policy(said)], "n", |_| None);
        assert_eq!((&without[0]["spec"]["pause"], &without[0]["spec"]["maxReplicas"]), (&json!("out"), &json!(12)));
    }
}
