//! Scale to zero by one annotation: adds to a Deployment what the autoscaler needs to scale it to zero and back. Pure.
//!
//! `drover.io/scale-to-zero` of a Deployment is `true`, or settings such as `max=20,concurrency=10`. Added are the sidecar that counts its
//! requests, the drain before a pod ends, a Service for the pods and a ScalingPolicy; its own Service loses the selector, because the
//! autoscaler writes who receives its requests (docs/how-to/scale-to-zero.md). Without the annotation nothing is changed.
//!
//! Used by orchestrator for the objects of an app, and by the agent's webhook for objects that somebody applies without Drover. These
//! come back with what was added to them, so [`original`] takes it off again.

mod original;

use serde_json::{Value, json};

pub use original::{HAS_SIDECAR, is_expanded, keep_original, original};

/// The annotation.
pub const SCALE_TO_ZERO: &str = "drover.io/scale-to-zero";

/// Name of the sidecar.
const SIDECAR: &str = "drover-queue-proxy";
/// Name of the volume with the sidecar's token.
const TOKEN: &str = "drover-agent-token";
/// Seconds that a pod gets to end, at least: longer than the sidecar drains.
const GRACE: u64 = 40;

/// What the annotation says.
struct Settings {
    /// Maximum number of pods.
    max: u32,
    /// Requests that a pod gets at the same time; 0: any number.
    concurrency: u32,
}

/// Whether any object asks for it.
pub fn is_asked(objects: &[Value]) -> bool {
    objects.iter().any(|object| settings(object).is_some_and(|settings| !matches!(settings, Ok(None))))
}

/// Adds what each Deployment with the annotation needs. `image` is that of the autoscaler.
///
/// # Errors
/// A sentence for people: what is missing or contradicts it.
pub fn expand(mut objects: Vec<Value>, image: &str) -> Result<Vec<Value>, String> {
    let mut asked = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        match settings(object) {
            Some(Ok(Some(settings))) => asked.push((index, settings)),
            Some(Err(reason)) => return Err(format!("{}: {reason}", named(object))),
            Some(Ok(None)) | None => {}
        }
    }
    for (index, settings) in asked {
        let name = named(&objects[index]);
        let added = change(&mut objects, index, &settings, image).map_err(|reason| format!("{name}: {SCALE_TO_ZERO}: {reason}"))?;
        objects.extend(added);
    }
    Ok(objects)
}

fn named(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// What the annotation of an object says; `None` without one, `Ok(None)` if it says no.
fn settings(object: &Value) -> Option<Result<Option<Settings>, String>> {
    let text = object["metadata"]["annotations"].get(SCALE_TO_ZERO)?;
    Some(read(text.as_str().unwrap_or_default()).and_then(|settings| match settings {
        Some(_) if object["kind"] != "Deployment" => Err(format!("{SCALE_TO_ZERO} is for Deployments")),
        settings => Ok(settings),
    }))
}

fn read(text: &str) -> Result<Option<Settings>, String> {
    let mut settings = Settings { max: 10, concurrency: 0 };
    match text {
        "false" => return Ok(None),
        "true" => return Ok(Some(settings)),
        _ => {}
    }
    for part in text.split(',') {
        let number = |value: &str| value.trim().parse::<u32>().map_err(|_| format!("{SCALE_TO_ZERO}: {part:?} is not a number"));
        match part.trim().split_once('=') {
            Some(("max", value)) => settings.max = number(value)?.max(1),
            Some(("concurrency", value)) => settings.concurrency = number(value)?,
            _ => return Err(format!("{SCALE_TO_ZERO} is true, false, or settings such as max=20,concurrency=10, not {text:?}")),
        }
    }
    Ok(Some(settings))
}

/// Changes a Deployment and its Service; returns the objects to add.
fn change(objects: &mut [Value], index: usize, settings: &Settings, image: &str) -> Result<Vec<Value>, String> {
    let deployment = &objects[index];
    let name = deployment["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let namespace = deployment["metadata"].get("namespace").cloned();
    let scaled_by_others = |object: &Value| {
        let target = &object["spec"]["scaleTargetRef"];
        object["kind"] == "HorizontalPodAutoscaler" && target["kind"] == "Deployment" && target["name"] == name.as_str()
    };
    if objects.iter().any(scaled_by_others) {
        return Err("a HorizontalPodAutoscaler scales it too; remove one of the two".to_owned());
    }
    let labels = deployment["spec"]["template"]["metadata"]["labels"].clone();
    let service = service_of(objects, &labels, namespace.as_ref())?;
    let (port, target) = port_of(&objects[service])?;
    let app = container_of(&objects[index], &target)?;
    let container = &objects[index]["spec"]["template"]["spec"]["containers"][app.index];
    if !container["lifecycle"]["preStop"].is_null() {
        return Err("its container has a preStop hook; the sidecar needs that place to let requests end".to_owned());
    }
    let probe = &container["readinessProbe"]["httpGet"];
    let ready_path = probe["path"].as_str().filter(|_| resolves(container, &probe["port"], app.port)).map(str::to_owned);

    let pod = &mut objects[index]["spec"]["template"]["spec"];
    pod["containers"][app.index]["lifecycle"]["preStop"] = drain();
    push(pod, "containers", sidecar(&name, app.port, ready_path.as_deref(), settings, image));
    push(
        pod,
        "volumes",
        json!({"name": TOKEN, "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "audience": "drover-autoscaler", "expirationSeconds": 3600}}]}}),
    );
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap_or(0).max(GRACE);
    pod["terminationGracePeriodSeconds"] = json!(grace);

    let service = &mut objects[service];
    let selector = service["spec"]["selector"].take();
    if let Some(spec) = service["spec"].as_object_mut() {
        spec.remove("selector");
        let mut port = port;
        if let Some(fields) = port.as_object_mut() {
            fields.remove("targetPort");
            fields.entry("name").or_insert_with(|| json!("http"));
        }
        spec.insert("ports".to_owned(), json!([port]));
    }
    service["metadata"]["labels"]["drover.io/path"] = json!("public");
    service["metadata"]["labels"]["drover.io/policy"] = json!(name);
    let of_pods = service["metadata"]["name"].as_str().unwrap_or_default().to_owned();

    let mut added = vec![
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": format!("{of_pods}-pods"), "labels": {"drover.io/path": "pods", "drover.io/policy": name}},
            "spec": {"clusterIP": "None", "selector": selector,
                "ports": [{"name": "queue", "port": 8012}, {"name": "queue-admin", "port": 8022}]}}),
        json!({"apiVersion": "drover.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": name},
            "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "mode": "apply", "policy": "kpa",
                "minReplicas": 0, "maxReplicas": settings.max, "kpa": {"containerConcurrency": settings.concurrency}}}),
    ];
    for object in &mut added {
        if let Some(namespace) = &namespace {
            object["metadata"]["namespace"] = namespace.clone();
        }
    }
    Ok(added)
}

/// The one Service that selects the pods.
fn service_of(objects: &[Value], labels: &Value, namespace: Option<&Value>) -> Result<usize, String> {
    let selects = |object: &Value| {
        let selector = object["spec"]["selector"].as_object().filter(|selector| !selector.is_empty());
        object["kind"] == "Service"
            && object["apiVersion"] == "v1"
            && object["metadata"].get("namespace") == namespace
            && selector.is_some_and(|selector| selector.iter().all(|(key, value)| labels[key] == *value))
    };
    let found: Vec<usize> = (0..objects.len()).filter(|index| selects(&objects[*index])).collect();
    match found[..] {
        [] => Err("no Service selects its pods; requests reach them, and wake it, through a Service".to_owned()),
        [only] if objects[only]["spec"]["clusterIP"] == "None" => {
            Err("its Service is headless, so that clients ask for pods by themselves".to_owned())
        }
        [only] => Ok(only),
        _ => Err("several Services select its pods; it may have one".to_owned()),
    }
}

/// The one port of a Service, and the port of the pods behind it.
fn port_of(service: &Value) -> Result<(Value, Value), String> {
    match service["spec"]["ports"].as_array().map(Vec::as_slice) {
        Some([port]) => {
            let target = match &port["targetPort"] {
                Value::Null => port["port"].clone(),
                target => target.clone(),
            };
            Ok((port.clone(), target))
        }
        _ => Err("its Service has several ports; it may have one".to_owned()),
    }
}

/// The container of the app.
struct AppContainer {
    index: usize,
    port: u64,
}

/// The container that listens on the target of the Service.
fn container_of(deployment: &Value, target: &Value) -> Result<AppContainer, String> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let named = |container: &Value, wanted: &Value| {
        let ports = container["ports"].as_array().into_iter().flatten();
        ports.filter(|port| port["name"] == *wanted || port["containerPort"] == *wanted).find_map(|port| port["containerPort"].as_u64())
    };
    let declared =
        containers.iter().enumerate().find_map(|(index, container)| Some(AppContainer { index, port: named(container, target)? }));
    declared
        .or_else(|| Some(AppContainer { index: 0, port: target.as_u64()? }))
        .filter(|_| !containers.is_empty())
        .ok_or_else(|| format!("no container has the port {target} that its Service leads to"))
}

/// Whether the port of a probe is this one.
fn resolves(container: &Value, port: &Value, number: u64) -> bool {
    let ports = || container["ports"].as_array().into_iter().flatten();
    port.as_u64() == Some(number) || ports().any(|one| one["name"] == *port && one["containerPort"] == number)
}

/// The hook with which the app waits until the sidecar has drained.
fn drain() -> Value {
    json!({"httpGet": {"port": 8022, "path": "/wait-for-drain"}})
}

fn sidecar(policy: &str, port: u64, ready_path: Option<&str>, settings: &Settings, image: &str) -> Value {
    let mut command = vec!["/bin/drover-autoscaler", "queue-proxy"].into_iter().map(str::to_owned).collect::<Vec<_>>();
    let mut option = |name: &str, value: String| command.extend([name.to_owned(), value]);
    option("--app-port", port.to_string());
    option("--container-concurrency", settings.concurrency.to_string());
    option("--policy", policy.to_owned());
    option("--decider", "http://drover-autoscaler.kube-system:9465".to_owned());
    if let Some(path) = ready_path {
        option("--ready-path", path.to_owned());
    }
    json!({
        "name": SIDECAR, "image": image, "command": command,
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "ports": [{"name": "queue", "containerPort": 8012}, {"name": "queue-admin", "containerPort": 8022}],
        "readinessProbe": {"httpGet": {"port": 8022, "path": "/ready"}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "25m", "memory": "16Mi"}},
        "volumeMounts": [{"name": TOKEN, "mountPath": "/var/run/secrets/drover.io", "readOnly": true}],
        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true, "runAsUser": 65532,
            "capabilities": {"drop": ["ALL"]}},
    })
}

fn push(object: &mut Value, list: &str, value: Value) {
    match object[list].as_array_mut() {
        Some(items) => items.push(value),
        None => object[list] = json!([value]),
    }
}

#[cfg(test)]
mod tests {
    use drover_manifest::{Limits, yaml};

    use super::*;

    fn app(annotation: &str) -> Vec<Value> {
        vec![
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "cart", "annotations": {SCALE_TO_ZERO: annotation}},
                "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "cart"}}, "template": {"metadata": {"labels": {"app": "cart"}},
                "spec": {"containers": [{"name": "app", "image": "drover:dev", "command": ["/bin/drover-autoscaler", "demo-app"],
                    "ports": [{"containerPort": 8080}]}]}}}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "cart"},
                "spec": {"selector": {"app": "cart"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}),
        ]
    }

    /// The example that users without Drover apply, with the names that are given here.
    fn example() -> Vec<Value> {
        let text = include_str!("../../../../deploy/autoscaler/examples/scale-to-zero.yaml");
        let text = text.replace("agent-token", TOKEN).replace("- name: queue-proxy", &format!("- name: {SIDECAR}"));
        yaml::documents_within(&text, Limits::MANIFESTS).unwrap().into_iter().map(|document| document.value).collect()
    }

    #[test]
    fn annotation_gives_what_the_example_has() {
        let mut made = expand(app("concurrency=10"), "drover:dev").unwrap();
        made[0]["metadata"].as_object_mut().unwrap().remove("annotations");
        for wanted in example() {
            let found =
                made.iter().find(|object| (&object["kind"], &object["metadata"]["name"]) == (&wanted["kind"], &wanted["metadata"]["name"]));
            assert_eq!(found, Some(&wanted));
        }
        assert_eq!(made.len(), example().len());
    }

    #[test]
    fn objects_without_the_annotation_stay_as_they_are() {
        for objects in [app("false"), example()] {
            assert!(!is_asked(&objects));
            assert_eq!(expand(objects.clone(), "drover:dev"), Ok(objects));
        }
        assert!(is_asked(&app("true")) && is_asked(&app("yes")));
    }

    #[test]
    fn named_ports_and_probes_are_followed_and_namespaces_kept() {
        let mut objects = app("true,");
        objects[0]["metadata"]["annotations"][SCALE_TO_ZERO] = json!("max=3");
        objects[0]["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{"name": "web", "containerPort": 3000}]);
        objects[0]["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] = json!({"httpGet": {"path": "/ok", "port": "web"}});
        objects[1]["spec"]["ports"][0]["targetPort"] = json!("web");
        for object in &mut objects {
            object["metadata"]["namespace"] = json!("shop");
        }
        let made = expand(objects, "registry/drover:1").unwrap();
        let sidecar = &made[0]["spec"]["template"]["spec"]["containers"][1];
        let command: Vec<&str> = sidecar["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(command.windows(2).any(|pair| pair == ["--app-port", "3000"]), "{command:?}");
        assert!(command.windows(2).any(|pair| pair == ["--ready-path", "/ok"]), "{command:?}");
        assert_eq!(sidecar["image"], "registry/drover:1");
        assert!(made.iter().all(|object| object["metadata"]["namespace"] == "shop"));
        assert_eq!(made[3]["spec"]["maxReplicas"], 3);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        type Change = dyn Fn(&mut Vec<Value>);
        let refused = |change: &Change| {
            let mut objects = app("true");
            change(&mut objects);
            expand(objects, "drover:dev").unwrap_err()
        };
        let cases: [(&Change, &str); 7] = [
            (&|objects| drop(objects.remove(1)), "no Service selects"),
            (
                &|objects| {
                    objects.push(
                        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"}, "spec": {"selector": {"app": "cart"}}}),
                    )
                },
                "several Services",
            ),
            (&|objects| objects[1]["spec"]["clusterIP"] = json!("None"), "headless"),
            (&|objects| objects[1]["spec"]["ports"] = json!([{"port": 1}, {"port": 2}]), "several ports"),
            (&|objects| objects[0]["spec"]["template"]["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"exec": {}}}), "preStop"),
            (
                &|objects| {
                    objects.push(
                        json!({"kind": "HorizontalPodAutoscaler", "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "cart"}}}),
                    )
                },
                "HorizontalPodAutoscaler",
            ),
            (&|objects| objects[0]["metadata"]["annotations"][SCALE_TO_ZERO] = json!("maximum=3"), "max=20"),
        ];
        for (change, reason) in cases {
            let said = refused(change);
            assert!(said.contains(reason) && said.contains("cart"), "{said:?} lacks {reason:?}");
        }
    }
}
