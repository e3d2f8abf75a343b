//! The documents of EMCO's controllers: generic Kubernetes intents, hardware intents and traffic intents are carried out, all others are
//! kept. Controllers with a hook are called.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_testkit::HttpServer;
use serde_json::{Value, json};

use crate::scenarios::{approved, approved_on_all, expect_state, members, run, stack};
use crate::support::{Stack, WaitSeconds, doc, no_peers};

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
    let refused = stack.call("POST", &format!("{dig}/update"), None).await;
    let reasons = refused.body["reasons"].to_string();
    assert!(refused.status == 400 && reasons.contains("istio"), "{}", refused.body);
}

#[tokio::test]
async fn inbound_intent_with_an_external_name_is_a_route_once_the_group_names_it() {
    let (_, stack) = stack().await;
    let dig = approved(&stack, "shop", "300m", &["a"], None).await;
    traffic(&stack, &dig).await;
    let intents = format!("{dig}/traffic-group-intents/t/inbound-intents");
    let server = |protocol: &str, external: bool| {
        json!({"app": "shop", "appLabel": "app=shop", "serviceName": "shop", "port": 8080, "protocol": protocol,
            "externalName": "shop.example", "externalSupport": external})
    };
    let addresses = async || {
        let routes = stack.get("/v2/routes").await;
        let of = |route: &Value| format!("{} {} {}", route["address"], route["target"], route["reason"]).replace('"', "");
        routes["items"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    stack.post(&intents, doc("inside", Some(server("TCP", false))), 201).await;
    stack.post(&intents, doc("users", Some(server("TCP", true))), 201).await;
    assert!(addresses().await.is_empty(), "the group does not name them yet");
    name(&stack, &dig, json!({"dtc": "t"})).await;
    let shown = addresses().await;
    assert!(shown.len() == 1 && shown[0].starts_with("shop.example:8080 shop:8080"), "{shown:?}");

    // A route has the address before an intent does.
    let route = json!({"app": "shop", "service": "shop", "servicePort": 80, "host": "shop.example", "port": 8080});
    stack.post(&format!("{dig}/routes"), doc("r", Some(route)), 201).await;
    stack.app.publish_routes(&mut std::collections::HashMap::new()).await.unwrap();
    let shown = addresses().await;
    assert!(shown.iter().any(|route| route.contains("/routes/r has the address shop.example:8080")), "{shown:?}");

    stack.post(&intents, doc("datagrams", Some(server("UDP", true))), 201).await;
    let refused = stack.call("POST", &format!("{dig}/approve"), None).await;
    assert!(refused.body.to_string().contains("the data path carries TCP, not UDP"), "{}", refused.body);
}

/// Names these intents of controllers in the group, and approves it.
async fn name(stack: &Stack, dig: &str, intents: Value) {
    let mut named = json!({"genericPlacementIntent": "gpi"});
    named.as_object_mut().unwrap().extend(intents.as_object().unwrap().clone());
    stack.post(&format!("{dig}/intents"), doc("i", Some(json!({"intent": named}))), 201).await;
    assert_eq!(stack.call("POST", &format!("{dig}/approve"), None).await.status, 202);
}

#[tokio::test]
async fn change_for_single_clusters_is_made_only_there() {
    let (fakes, stack) = stack().await;
    let dig = approved_on_all(&stack, "shop", &["a", "b"]).await;
    let resources = format!("{dig}/generic-k8s-intents/g/resources");
    stack.post(&format!("{dig}/generic-k8s-intents"), doc("g", None), 201).await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"});
    stack.post(&resources, doc("shop", Some(json!({"app": "shop", "newObject": "false", "resourceGVK": deployment}))), 201).await;
    let customizations = format!("{resources}/shop/customizations");
    let mut spec = json!({"clusterSpecific": "true", "patchType": "json",
        "patchJson": [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry/shop:edge"}]});
    stack.post(&customizations, doc("image", Some(spec.clone())), 400).await;
    spec["clusterInfo"] = json!({"scope": "name", "clusterProvider": "onprem", "cluster": "b", "clusterLabel": "", "mode": "allow"});
    let made = stack.post(&customizations, doc("image", Some(spec.clone())), 201).await;
    assert_eq!(made["spec"]["clusterInfo"], spec["clusterInfo"], "as it was sent");
    name(&stack, &dig, json!({"gac": "g"})).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    let image = |cluster: &str| fakes.members.objects("shop", cluster)[0]["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    assert_eq!((image("a"), image("b")), (json!("registry/shop:1"), json!("registry/shop:edge")));
    let status = stack.get(&format!("{dig}/status")).await;
    assert_eq!((&status["deployedStatus"], &status["readyStatus"]), (&json!("Instantiated"), &json!("Ready")), "{status:#}");

    // What placement counts is the same in all clusters.
    spec["patchJson"] = json!([{"op": "replace", "path": "/spec/replicas", "value": 3}]);
    assert_eq!(stack.call("PUT", &format!("{customizations}/image"), Some(doc("image", Some(spec)))).await.status, 200);
    let refused = stack.call("POST", &format!("{dig}/update"), None).await;
    assert!(refused.status == 400 && refused.body["detail"].as_str().unwrap().contains("onprem+b"), "{}", refused.body);
}

#[tokio::test]
async fn hardware_intent_becomes_what_pods_request() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "300m", &["a", "b"], None).await;
    let consumers = format!("{dig}/hpa-intents/h/hpa-resource-consumers");
    stack.post(&format!("{dig}/hpa-intents"), doc("h", Some(json!({"app": "shop"}))), 201).await;
    let consumer = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop", "container": "c"});
    stack.post(&consumers, doc("c", Some(consumer)), 201).await;
    let need =
        async |name: &str, spec: Value| stack.post(&format!("{consumers}/c/resource-requirements"), doc(name, Some(spec)), 201).await;
    need("cpu", json!({"allocatable": true, "mandatory": true, "weight": 1, "resource": {"name": "cpu", "requests": 700, "units": "m"}}))
        .await;
    name(&stack, &dig, json!({"hpa-placement-controller": "h"})).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    assert_eq!(fakes.ledger.all()[0].request.demand.groups[0].requests.cpu, 700, "the ledger counts what the intent says");
    expect_state(&run(&stack, &format!("{dig}/terminate")).await, "succeeded");

    // No node has the card: the app fits nowhere, and the reason says what is missing.
    need("card", json!({"allocatable": true, "resource": {"name": "example.com/card", "requests": 1}})).await;
    assert_eq!(stack.call("POST", &format!("{dig}/approve"), None).await.status, 202);
    let failed = run(&stack, &format!("{dig}/instantiate")).await;
    expect_state(&failed, "failed");
    assert!(failed["reasons"].to_string().contains("example.com/card"), "{failed:#}");
}

/// Registers a controller and lets it be called at this address.
async fn register(stack: &Stack, name: &str, kind: &str, url: &str, policy: &str) {
    register_for(stack, name, kind, url, policy, 30).await;
}

/// The same with the seconds in which it must answer.
async fn register_for(stack: &Stack, name: &str, kind: &str, url: &str, policy: &str, seconds: u32) {
    let hook = json!({"url": url, "timeoutSeconds": seconds, "failurePolicy": policy});
    stack.post("/v2/controllers", doc(name, Some(json!({"type": kind, "priority": 1, "hook": hook}))), 201).await;
}

#[tokio::test]
async fn controllers_that_a_group_names_are_asked_and_their_answers_recorded() {
    let placement = json!({"apps": [{"app": "shop", "clusters": [
        {"clusterProvider": "onprem", "cluster": "a", "excluded": "no licence there"}, {"clusterProvider": "aws", "cluster": "c", "score": 5}]}]});
    let action = json!({"changes": [{"app": "shop",
        "patch": [{"kind": "Deployment", "name": "shop", "merge": {"spec": {"template": {"metadata": {"labels": {"seen": "yes"}}}}}}],
        "add": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "added"}}]}]});
    let asked = Arc::new(Mutex::new(Vec::<Value>::new()));
    let answer = |answer: Value| {
        let asked = asked.clone();
        post(move |axum::Json(question): axum::Json<Value>| {
            asked.lock().unwrap().push(question);
            std::future::ready(axum::Json(answer.clone()))
        })
    };
    let server = HttpServer::start(Router::new().route("/placement", answer(placement)).route("/action", answer(action))).await;
    let fakes = members();
    let stack = Stack::calling(&fakes, WaitSeconds::PATIENT, &[server.url("/")]).await;
    register(&stack, "licences", "placement", &server.url("/placement"), "Fail").await;
    register(&stack, "marks", "action", &server.url("/action"), "Fail").await;
    register(&stack, "broken", "action", &server.url("/nowhere"), "Ignore").await;
    register(&stack, "elsewhere", "action", "http://127.0.0.1:1/", "Ignore").await;
    let dig = approved(&stack, "shop", "300m", &["a", "b", "c"], None).await;
    assert!(asked.lock().unwrap().is_empty(), "the group names none");
    name(&stack, &dig, json!({"licences": "one", "marks": "two", "broken": "three", "elsewhere": "four"})).await;

    let dry = stack.call("POST", &format!("{dig}/instantiate?dryRun=All"), None).await.body;
    assert!(dry.to_string().contains("excluded by the controller licences: no licence there"), "{dry:#}");
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    assert_eq!(fakes.members.present(), ["shop@b"]);
    let objects = fakes.members.objects("shop", "b");
    let names: Vec<_> = objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["added", "shop"]);
    assert_eq!(objects[1]["spec"]["template"]["metadata"]["labels"], json!({"app": "shop", "seen": "yes"}));

    let questions = asked.lock().unwrap().clone();
    let of = |kind: &str| questions.iter().filter(|question| question["kind"] == kind).cloned().collect::<Vec<_>>();
    let (placements, actions) = (of("PlacementQuestion"), of("ActionQuestion"));
    assert_eq!(placements.iter().map(|question| question["dryRun"].as_bool().unwrap()).collect::<Vec<_>>(), [true, false]);
    assert_eq!((&placements[1]["intent"], &placements[1]["apps"][0]["app"]), (&json!("one"), &json!("shop")));
    assert_eq!(actions[0]["apps"][0]["objects"][0]["kind"], "Deployment");
    assert_eq!(actions[0]["clusters"].as_array().unwrap().len(), 3);

    let answers = &stack.get(&format!("{dig}/revisions")).await["items"][0]["controllers"];
    let seen: Vec<_> =
        answers.as_array().unwrap().iter().map(|one| (one["controller"].as_str().unwrap(), one["used"].as_bool().unwrap())).collect();
    assert_eq!(seen, [("broken", false), ("elsewhere", false), ("marks", true), ("licences", true)]);
    assert!(answers[0]["reason"].as_str().unwrap().contains("404"), "{answers:#}");
    assert!(answers[1]["reason"].as_str().unwrap().contains("--controller-origins"), "{answers:#}");
    assert_eq!(answers[2]["said"], json!(["shop: changed Deployment/shop", "shop: added ConfigMap/added"]));
}

#[tokio::test]
async fn controller_that_fails_or_refuses_stops_the_request() {
    let late = post(|| tokio::time::sleep(Duration::from_secs(60)));
    let no = post(|| std::future::ready(axum::Json(json!({"refused": ["all licences are in use"]}))));
    let server = HttpServer::start(Router::new().route("/late", late).route("/no", no)).await;
    let stack = Stack::calling(&members(), WaitSeconds::PATIENT, &[server.url("/")]).await;
    let wrong = json!({"type": "monitor", "hook": {"url": "file:///etc/passwd", "timeoutSeconds": 90}});
    let refused = stack.post("/v2/controllers", doc("wrong", Some(wrong)), 400).await;
    assert_eq!(refused["reasons"].as_array().unwrap().len(), 3, "{refused}");
    register_for(&stack, "late", "action", &server.url("/late"), "Fail", 2).await;
    register(&stack, "licences", "placement", &server.url("/no"), "Ignore").await;
    let dig = approved(&stack, "shop", "300m", &["a"], None).await;
    stack.post(&format!("{dig}/intents"), doc("i", Some(json!({"intent": {"genericPlacementIntent": "gpi", "late": "x"}}))), 201).await;
    let failed = stack.call("POST", &format!("{dig}/approve"), None).await;
    assert_eq!((failed.status, failed.body["code"].as_str()), (502, Some("controller_failed")), "{}", failed.body);
    assert!(failed.body["detail"].as_str().unwrap().contains("late failed: it did not answer within 2 s"), "{}", failed.body);
    let intents = json!({"intent": {"genericPlacementIntent": "gpi", "licences": "x"}});
    assert_eq!(stack.call("PUT", &format!("{dig}/intents/i"), Some(doc("i", Some(intents)))).await.status, 200);
    let refused = stack.call("POST", &format!("{dig}/instantiate"), None).await;
    assert_eq!((refused.status, refused.body["code"].as_str()), (409, Some("controller_refused")), "{}", refused.body);
    assert_eq!(refused.body["reasons"], json!(["all licences are in use"]));
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
        ("/v2/projects/p/ca-certs".to_owned(), Some(json!({"isCA": true}))),
    ] {
        let answer = stack.call("POST", &collection, Some(doc("one", spec.clone()))).await;
        assert_eq!((answer.status, answer.body.get("spec")), (201, spec.as_ref()), "{collection}: {}", answer.body);
        let warning = answer.headers["warning"].to_str().unwrap();
        assert!(warning.starts_with("299 drover \"kept, not carried out: Drover "), "{collection}: {warning}");
    }
    stack.post(&format!("{dig}/hpa-intents"), doc("one", Some(json!({"app": "web"}))), 201).await;
    assert_eq!(stack.get(&format!("{dig}/hpa-intents?intent=one")).await[0]["spec"]["app"], "web");
    assert_eq!(stack.call("GET", &format!("{dig}/hpa-intents?intent=two"), None).await.status, 404);
    let wrong = json!({"app": "web", "appLabel": "app=web", "serviceName": "web", "port": -1, "protocol": "HTTP"});
    stack.post(&format!("{dig}/traffic-group-intents"), doc("t", None), 201).await;
    let refused = stack.post(&format!("{dig}/traffic-group-intents/t/inbound-intents"), doc("in", Some(wrong)), 400).await;
    assert_eq!(refused["reasons"].as_array().unwrap().len(), 2, "{refused}");
}
