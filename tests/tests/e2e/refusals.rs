//! Bad requests: each is refused with its documented code, and nothing of it is written.

use std::time::Duration;

use base64::Engine;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{Backend, System, failed, scenario, succeeded};
use drover_testkit::eventually;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

struct Case {
    what: &'static str,
    method: &'static str,
    path: &'static str,
    body: Body,
    status: u16,
    code: &'static str,
}

enum Body {
    Json(Value),
    Text(&'static str),
    Zeroes(usize),
}

fn cases() -> Vec<Case> {
    let case = |what, method, path, body, status, code| Case { what, method, path, body, status, code };
    let file = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let cluster = |kubeconfig: &str| Body::Json(json!({"metadata": {"name": "bad"}, "file": file(kubeconfig)}));
    let named = |name: &str| Body::Json(json!({"metadata": {"name": name}}));
    vec![
        case("empty body", "POST", "/v2/projects", Body::Text(""), 400, "empty_body"),
        case("wrong JSON", "POST", "/v2/projects", Body::Text("{\"metadata\": "), 422, "malformed_json"),
        case("50 MB", "POST", "/v2/projects", Body::Zeroes(50 << 20), 413, "too_large"),
        case("an invalid name", "POST", "/v2/projects", named("-no-"), 400, "invalid"),
        case("a name twice", "POST", "/v2/cluster-providers", named("onprem"), 409, "already_exists"),
        case(
            "unknown parent",
            "POST",
            "/v2/projects/nobody/composite-apps",
            Body::Json(json!({"metadata": {"name": "a"}, "spec": {"compositeAppVersion": "v1"}})),
            404,
            "parent_not_found",
        ),
        case("unknown document", "GET", "/v2/projects/nobody", Body::Text(""), 404, "not_found"),
        case("no kubeconfig", "POST", "/v2/cluster-providers/onprem/clusters", cluster("hello"), 422, "kubeconfig_invalid"),
        case("a kubeconfig that runs programs", "POST", "/v2/cluster-providers/onprem/clusters", cluster(EXEC), 422, "kubeconfig_refused"),
        case(
            "a priority out of range",
            "PUT",
            "/v2/cluster-providers/onprem",
            Body::Json(json!({"metadata": {"name": "onprem"}, "spec": {"priority": 11}})),
            400,
            "invalid",
        ),
        case("another name than the path's", "PUT", "/v2/cluster-providers/onprem", named("other"), 400, "mismatched_name"),
        case(
            "an invalid expression",
            "POST",
            "/v2/migration-algorithms",
            Body::Json(json!({"metadata": {"name": "bad"}, "spec": {"expression": "cpu_used +"}})),
            400,
            "expression_invalid",
        ),
        case("a kind of plan that is not supported", "POST", "/v2/plans", Body::Json(json!({"kind": "rebalance"})), 400, "invalid"),
        case("no such route", "GET", "/v2/nonsense", Body::Text(""), 404, "not_found"),
    ]
}

const EXEC: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}}}]\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bad_requests_have_documented_codes() {
    let system = System::new(Backend::Simulated).await;
    let http = reqwest::Client::new();
    let base = system.client.base().as_str().trim_end_matches('/').to_owned();
    let mut wrong = Vec::new();
    for case in cases() {
        let request = http.request(case.method.parse().unwrap(), format!("{base}{}", case.path));
        let request = match case.body {
            Body::Json(body) => request.json(&body),
            Body::Text(text) => request.header("content-type", "application/json").body(text),
            Body::Zeroes(n) => request.header("content-type", "application/json").body(vec![b'0'; n]),
        };
        let answer = request.send().await.unwrap();
        let (status, kind) = (answer.status().as_u16(), answer.headers()["content-type"].to_str().unwrap().to_owned());
        let body: Value = answer.json().await.unwrap_or_default();
        if (status, body["code"].as_str(), kind.as_str()) != (case.status, Some(case.code), "application/problem+json") {
            wrong.push(format!("{}: {status} {kind} {body}", case.what));
        }
        let code = body["code"].as_str().unwrap_or_default();
        let page = http.get(format!("{base}/docs/errors/{code}")).send().await.unwrap();
        if page.status() != 200 {
            wrong.push(format!("{}: no page for {code}", case.what));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(system.client.get::<Value>("/v2/projects").await.unwrap(), json!([]), "nothing was written");
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unrenderable_or_unknown_objects_are_refused() {
    let system = System::new(Backend::Simulated).await;
    let approve = async |name: &str, manifests: &[u8]| {
        let group = Group::of(name, vec![]);
        group.prepare_without_apps(&system.client).await.unwrap();
        let file = base64::engine::general_purpose::STANDARD.encode(manifests);
        system.client.post(&format!("{}/apps", group.composite()), Some(&json!({"metadata": {"name": "a"}, "file": file}))).await?;
        let intent = json!({"anyOf": [{"clusterProvider": "onprem", "cluster": "private-a"}]});
        let body = json!({"metadata": {"name": "a"}, "spec": {"app": "a", "intent": intent}});
        system.client.post(&format!("{}/generic-placement-intents/placement/app-intents", group.path()), Some(&body)).await?;
        system.client.post(&format!("{}/approve", group.path()), None).await.map(|_| group)
    };
    let error = approve("broken-yaml", b"kind: Deployment\n  oops: [").await.unwrap_err();
    assert_eq!(drover::hub::code(&error), Some("malformed_upload"), "{error}");

    // Only the member knows which kinds it has: its preflight refuses an unknown one, and nothing is written there.
    let unknown =
        b"apiVersion: example.com/v1\nkind: Nonsense\nmetadata: {name: none}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: half}\n";
    let group = approve("unknown-kind", unknown).await.unwrap();
    let id = group.verb(&system.client, "instantiate").await.unwrap();
    let operation = ended(&system.client, &id).await.unwrap();
    failed(&operation, "unknown_kind");
    let maps: Api<ConfigMap> = Api::namespaced(system.member("private-a").client.clone(), "default");
    assert!(maps.get_opt("half").await.unwrap().is_none(), "nothing was written");
    system.end().await;
}

/// A kind that only one cluster knows, and a name that is taken in another: the app goes where it is accepted, and says why it is not in
/// the better place.
async fn app_goes_to_the_cluster_that_accepts_its_objects(system: &System) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({"metadata": {"name": "gadgets.e2e.example.com"}, "spec": {"group": "e2e.example.com", "scope": "Namespaced",
        "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    let client = system.member("public-c").client.clone();
    let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &definition).await.unwrap();
    let served =
        async || client.list_api_group_resources("e2e.example.com/v1").await.is_ok_and(|list| !list.resources.is_empty()).then_some(());
    eventually(Duration::from_secs(120), served).await;
    let taken: Service =
        serde_json::from_value(json!({"metadata": {"name": "desk"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}}}))
            .unwrap();
    let theirs: Api<Service> = Api::namespaced(system.member("private-a").client.clone(), "default");
    theirs.create(&PostParams::default(), &taken).await.unwrap();

    let gadget = "apiVersion: e2e.example.com/v1\nkind: Gadget\nmetadata: {name: g}\n";
    let desk = "apiVersion: v1\nkind: Service\nmetadata: {name: desk}\nspec: {ports: [{port: 80}], selector: {app: desk}}\n";
    for (name, objects, against) in [("gadgets", gadget, "serves no kind Gadget"), ("desk", desk, "Service/default/desk exists")] {
        let group = Group::of(name, vec![]);
        group.prepare_without_apps(&system.client).await.unwrap();
        let manifests = format!("{}\n---\n{objects}", drover_e2e::apps::App::new(name, 100).manifests());
        let body = json!({"metadata": {"name": name}, "file": base64::engine::general_purpose::STANDARD.encode(manifests)});
        system.client.post(&format!("{}/apps", group.composite()), Some(&body)).await.unwrap();
        // The provider of private-a is filled first.
        let element = |provider: &str, cluster: &str| json!({"clusterProvider": provider, "cluster": cluster});
        let intent = json!({"anyOf": [element("onprem", "private-a"), element("aws", "public-c")]});
        let body = json!({"metadata": {"name": name}, "spec": {"app": name, "intent": intent}});
        system.client.post(&format!("{}/generic-placement-intents/placement/app-intents", group.path()), Some(&body)).await.unwrap();
        system.client.post(&format!("{}/approve", group.path()), None).await.unwrap();
        let operation = ended(&system.client, &group.verb(&system.client, "instantiate").await.unwrap()).await.unwrap();
        succeeded(&operation);
        system.serves_on(name, "public-c").await;
        assert!(operation.message.contains("not on onprem+private-a") && operation.message.contains(against), "{operation:?}");
        let explained: Value = system.client.get(&format!("/v2/explain?app={name}/{name}&project=e2e")).await.unwrap();
        let told = explained["decided"]["decision"].to_string();
        assert!(told.contains(against), "{told}");
        // A kind that is not served is remembered; a name may be free by now.
        let now = &explained["now"]["decision"]["groups"][0];
        let remembered = now["considered"].to_string().contains("it refused the objects at");
        let place = if remembered { "aws+public-c" } else { "onprem+private-a" };
        assert_eq!((remembered, &now["placement"]["member"]), (name == "gadgets", &json!(place)), "{now:#}");
    }
}
scenario!(app_goes_to_the_cluster_that_accepts_its_objects);
