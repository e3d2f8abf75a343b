//! The documents of EMCO's controllers: generic Kubernetes intents and traffic intents are carried out, all others are kept.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::scenarios::{approved, expect_state, run, stack};
use crate::support::{Stack, doc, no_peers};

async fn generic(stack: &Stack, dig: &str) {
    let intents = format!("{dig}/generic-k8s-intents");
    stack.post(&intents, doc("g", None), 201).await;
    let resources = format!("{intents}/g/resources");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"});
    stack.post(&resources, doc("settings", Some(json!({"app": "shop", "newObject": "true", "resourceGVK": map}))), 201).await;
    let mut data = doc("data", Some(json!({"clusterSpecific": "false"})));
    data["files"] = json!([{"name": "a.properties", "content": STANDARD.encode("x=1")}]);
    stack.post(&format!("{resources}/settings/customizations"), data, 201).await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"});
    stack.post(&resources, doc("shop", Some(json!({"app": "shop", "newObject": "false", "resourceGVK": deployment}))), 201).await;
    let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry/shop:2"}]);
    let spec = json!({"clusterSpecific": "false", "patchType": "json", "patchJson": patch});
    stack.post(&format!("{resources}/shop/customizations"), doc("image", Some(spec)), 201).await;
}

async fn traffic(stack: &Stack, dig: &str) {
    let groups = format!("{dig}/traffic-group-intents");
    stack.post(&groups, doc("t", None), 201).await;
    let server = json!({"app": "shop", "appLabel": "app=shop", "serviceName": "shop", "port": 8080, "protocol": "TCP"});
    let made = stack.post(&format!("{groups}/t/inbound-intents"), doc("in", Some(server.clone())), 201).await;
    assert_eq!(made["spec"], server, "as it was sent");
    let client = json!({"app": "shop", "appLabel": "app=client", "serviceName": "client", "namespaces": [], "cidrs": ["10.0.0.0/8"]});
    stack.post(&format!("{groups}/t/inbound-intents/in/clients"), doc("c", Some(client)), 201).await;
}

#[tokio::test]
async fn generic_and_traffic_intents_change_the_objects_of_apps_once_the_group_names_them() {
    let (_, stack) = stack().await;
    let dig = approved(&stack, "shop", "300m", &["a"], None).await;
    generic(&stack, &dig).await;
    traffic(&stack, &dig).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    expect_state(&run(&stack, &format!("{dig}/update")).await, "succeeded");
    let diff = async |from: i64, to: i64| stack.get(&format!("{dig}/revisions/diff?from={from}&to={to}")).await["objects"].clone();
    assert_eq!(diff(1, 2).await, json!([]), "the group does not name them yet");
    let intents = json!({"intent": {"genericPlacementIntent": "gpi", "gac": "g", "dtc": "t"}});
    stack.post(&format!("{dig}/intents"), doc("i", Some(intents)), 201).await;
    expect_state(&run(&stack, &format!("{dig}/update")).await, "succeeded");
    let objects = diff(2, 3).await;
    let seen: Vec<Value> = objects.as_array().unwrap().iter().map(|object| json!([object["object"], object["change"]])).collect();
    assert_eq!(
        seen,
        [json!(["ConfigMap/settings", "added"]), json!(["Deployment/shop", "changed"]), json!(["NetworkPolicy/t-in", "added"])]
    );
    assert_eq!(objects[1]["patch"][0]["value"], "registry/shop:2");

    // What Drover does not do is refused, not ignored.
    let mesh = json!({"app": "shop", "appLabel": "app=shop", "serviceName": "s", "port": 1, "protocol": "TCP", "serviceMesh": "istio"});
    stack.post(&format!("{dig}/traffic-group-intents/t/inbound-intents"), doc("mesh", Some(mesh)), 201).await;
    let one = doc("one", Some(json!({"clusterSpecific": "true", "patchType": "json", "patchJson": []})));
    stack.post(&format!("{dig}/generic-k8s-intents/g/resources/shop/customizations"), one, 201).await;
    let refused = stack.call("POST", &format!("{dig}/update"), None).await;
    let reasons = refused.body["reasons"].to_string();
    assert!(refused.status == 400 && reasons.contains("istio") && reasons.contains("clusterSpecific"), "{}", refused.body);
}

#[tokio::test]
async fn other_documents_of_controllers_are_kept_and_the_response_says_so() {
    let stack = Stack::start(no_peers()).await;
    let dig = stack.group("shop", &[("web", &crate::support::deployment("web", "500m", 2))], &[("onprem", "a")]).await;
    let networks = json!({"application": "web", "workloadResource": "r1-web", "type": "Deployment"});
    for (collection, spec) in [
        (format!("{dig}/network-controller-intent"), None),
        (format!("{dig}/network-controller-intent/one/workload-intents"), Some(networks)),
        (format!("{dig}/network-chains"), Some(json!({"chainType": "Routing", "namespace": "default"}))),
        (format!("{dig}/hpa-intents"), Some(json!({"app": "web"}))),
        ("/v2/projects/p/ca-certs".to_owned(), Some(json!({"isCA": true}))),
    ] {
        let answer = stack.call("POST", &collection, Some(doc("one", spec.clone()))).await;
        assert_eq!((answer.status, answer.body.get("spec")), (201, spec.as_ref()), "{collection}: {}", answer.body);
        let warning = answer.headers["warning"].to_str().unwrap();
        assert!(warning.starts_with("299 drover \"kept, not carried out: Drover "), "{collection}: {warning}");
    }
    assert_eq!(stack.get(&format!("{dig}/hpa-intents?intent=one")).await[0]["spec"]["app"], "web");
    assert_eq!(stack.call("GET", &format!("{dig}/hpa-intents?intent=two"), None).await.status, 404);
    let wrong = json!({"app": "web", "appLabel": "app=web", "serviceName": "web", "port": -1, "protocol": "HTTP"});
    stack.post(&format!("{dig}/traffic-group-intents"), doc("t", None), 201).await;
    let refused = stack.post(&format!("{dig}/traffic-group-intents/t/inbound-intents"), doc("in", Some(wrong)), 400).await;
    assert_eq!(refused["reasons"].as_array().unwrap().len(), 2, "{refused}");
}
