//! Values that a real server fills in. Only those that somebody may read or compare; not all of them.

use serde_json::{Map, Value, json};

use crate::kinds::ServedKind;
use crate::object::{map, text};

/// Fills in what is absent.
pub fn apply(kind: &ServedKind, object: &mut Value) {
    match &*kind.resource {
        "pods" => pod(&mut object["spec"]),
        "services" => service(object),
        "namespaces" => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            set(&mut object["spec"], &[("finalizers", json!(["kubernetes"]))]);
            set(&mut object["status"], &[("phase", json!("Active"))]);
        }
        "persistentvolumeclaims" => {
            set(&mut object["spec"], &[("volumeMode", json!("Filesystem"))]);
            set(&mut object["status"], &[("phase", json!("Pending"))]);
        }
        "secrets" => set(object, &[("type", json!("Opaque"))]),
        "deployments.apps" => {
            let spec = &mut object["spec"];
            set(
                spec,
                &[
                    ("replicas", json!(1)),
                    ("revisionHistoryLimit", json!(10)),
                    ("progressDeadlineSeconds", json!(600)),
                    ("strategy", json!({"type": "RollingUpdate"})),
                ],
            );
            if spec["strategy"]["type"] == "RollingUpdate" {
                set(&mut spec["strategy"]["rollingUpdate"], &[("maxSurge", json!("25%")), ("maxUnavailable", json!("25%"))]);
            }
            template(spec);
        }
        "replicasets.apps" | "replicationcontrollers" => {
            set(&mut object["spec"], &[("replicas", json!(1))]);
            template(&mut object["spec"]);
        }
        "statefulsets.apps" => {
            let spec = &mut object["spec"];
            set(
                spec,
                &[
                    ("replicas", json!(1)),
                    ("podManagementPolicy", json!("OrderedReady")),
                    ("revisionHistoryLimit", json!(10)),
                    ("updateStrategy", json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})),
                ],
            );
            template(spec);
        }
        "daemonsets.apps" => {
            let spec = &mut object["spec"];
            set(
                spec,
                &[
                    ("revisionHistoryLimit", json!(10)),
                    ("updateStrategy", json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})),
                ],
            );
            template(spec);
        }
        "jobs.batch" => {
            let spec = &mut object["spec"];
            let completions = if spec.get("parallelism").is_none() && spec.get("completions").is_none() { Some(json!(1)) } else { None };
            set(
                spec,
                &[
                    ("parallelism", json!(1)),
                    ("backoffLimit", json!(6)),
                    ("completionMode", json!("NonIndexed")),
                    ("suspend", json!(false)),
                ],
            );
            if let Some(one) = completions {
                set(spec, &[("completions", one)]);
            }
            template(spec);
        }
        _ => {}
    }
    if matches!(&*kind.resource, "jobs.batch") && object.pointer("/spec/selector").is_none() {
        let uid = object["metadata"]["uid"].clone();
        object["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
        let name = object["metadata"]["name"].clone();
        let labels = crate::object::map_mut(object, &["spec", "template", "metadata", "labels"]);
        labels.insert("batch.kubernetes.io/controller-uid".into(), uid);
        labels.insert("batch.kubernetes.io/job-name".into(), name);
    }
}

/// What an update keeps when its author left it out.
pub fn carry(kind: &ServedKind, old: &Value, new: &mut Value) {
    let fields: &[&str] = match &*kind.resource {
        "services" => &["clusterIP", "clusterIPs"],
        "persistentvolumeclaims" => &["volumeName", "storageClassName"],
        "jobs.batch" => &["selector"],
        _ => return,
    };
    for field in fields {
        if new["spec"].get(*field).is_none()
            && let Some(value) = old["spec"].get(*field)
        {
            new["spec"][*field] = value.clone();
        }
    }
}

fn set(object: &mut Value, defaults: &[(&str, Value)]) {
    if object.is_null() {
        *object = Value::Object(Map::new());
    }
    let Some(map) = object.as_object_mut() else { return };
    for (key, value) in defaults {
        let at = map.entry(*key).or_insert(Value::Null);
        if at.is_null() {
            *at = value.clone();
        }
    }
}

fn template(spec: &mut Value) {
    if let Some(spec) = spec.pointer_mut("/template/spec").filter(|spec| spec.is_object()) {
        pod(spec);
    }
}

fn pod(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    set(
        spec,
        &[
            ("restartPolicy", json!("Always")),
            ("terminationGracePeriodSeconds", json!(30)),
            ("dnsPolicy", json!("ClusterFirst")),
            ("schedulerName", json!("default-scheduler")),
            ("securityContext", json!({})),
        ],
    );
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let latest = !text(container, "/image").contains(':') || text(container, "/image").ends_with(":latest");
            set(
                container,
                &[
                    ("resources", json!({})),
                    ("terminationMessagePath", json!("/dev/termination-log")),
                    ("terminationMessagePolicy", json!("File")),
                    ("imagePullPolicy", json!(if latest { "Always" } else { "IfNotPresent" })),
                ],
            );
            ports(container);
            if let Some(limits) = map(container, "/resources/limits").cloned() {
                let limits: Vec<(&str, Value)> = limits.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
                set(&mut container["resources"]["requests"], &limits);
            }
        }
    }
}

fn ports(of: &mut Value) {
    for port in of.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        set(port, &[("protocol", json!("TCP"))]);
    }
}

fn service(object: &mut Value) {
    let uid = text(object, "/metadata/uid").to_string();
    let spec = &mut object["spec"];
    set(spec, &[("type", json!("ClusterIP")), ("sessionAffinity", json!("None")), ("internalTrafficPolicy", json!("Cluster"))]);
    ports(spec);
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let number = port["port"].clone();
        set(port, &[("targetPort", number)]);
    }
    if spec["type"] != "ExternalName" {
        // The address is derived from the uid, so that no allocator is needed; it carries no traffic.
        let hash = uid.bytes().fold(0u16, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        set(spec, &[("clusterIP", json!(format!("10.96.{}.{}", hash >> 8, hash & 255)))]);
        let ip = spec["clusterIP"].clone();
        set(spec, &[("clusterIPs", json!([ip])), ("ipFamilies", json!(["IPv4"])), ("ipFamilyPolicy", json!("SingleStack"))]);
    }
    set(&mut object["status"], &[("loadBalancer", json!({}))]);
}
