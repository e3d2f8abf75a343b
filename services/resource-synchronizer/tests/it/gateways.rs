//! Weights of an `HTTPRoute` follow those of a route, on kubesim and on a real API server.

use std::time::Instant;

use drover_api::bindings::{DesiredBinding, Phase};
use drover_api::traffic::{GatewayRef, RouteBackend, RouteProtocol, RouteReport, RouteTable};
use drover_kubesim::Fault;
use drover_members::DEADLINE;
use drover_scheduling::MemberKey;
use drover_testkit::{crds, eventually};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::real::real;
use crate::support::{MEMBER, PATIENCE, Stack, absent, binding, define, deployment, loose, service};

const ELSEWHERE: &str = "aws+b";

struct Shop {
    stack: Stack,
    routes: Api<DynamicObject>,
    namespace: String,
    copy: Uuid,
    table: RouteTable,
    elsewhere: Uuid,
}

impl Shop {
    /// With a copy of two pods in the member, and an `HTTPRoute` that nobody has weighed.
    async fn start(stack: Stack, definition: &Value, namespace: &str) -> (Self, DesiredBinding) {
        define(stack.client(), vec![definition.clone()]).await;
        stack.bundle("web", vec![deployment("web", 2, "100m"), service("web")]).await;
        let desired = DesiredBinding { namespace: namespace.to_owned(), ..binding("web", "web") };
        stack.desire(&desired).await;
        stack.reaches(&desired, Phase::Ready).await;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "HTTPRoute"));
        let routes: Api<DynamicObject> = Api::namespaced_with(stack.client(), namespace, &resource);
        let backends = json!([{"name": "web", "port": 80}, {"name": "web-aws-b", "port": 80, "weight": 0}, {"name": "canary", "port": 80, "weight": 3}]);
        let spec = json!({"hostnames": ["shop.example"], "rules": [
            {"matches": [{"path": {"type": "PathPrefix", "value": "/static"}}], "backendRefs": [{"name": "files", "port": 80}]},
            {"backendRefs": backends},
        ]});
        let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "shop"}, "spec": spec});
        routes.create(&PostParams::default(), &serde_json::from_value(route).unwrap()).await.unwrap();
        let gateway = GatewayRef { cluster: MemberKey(MEMBER.into()), namespace: namespace.to_owned(), http_route: "shop".into() };
        let table = RouteTable {
            id: Uuid::new_v4(),
            name: "p/shop/web".into(),
            protocol: RouteProtocol::Http,
            host: Some("shop.example".into()),
            port: 80,
            service: "web".into(),
            service_port: String::new(),
            probe: None,
            hold_seconds: 0,
            gateway: Some(gateway),
            backends: Vec::new(),
        };
        let namespace = namespace.to_owned();
        (Self { stack, routes, namespace, copy: desired.id, table, elsewhere: Uuid::new_v4() }, desired)
    }

    /// Publishes the weights of the copy here and of the one elsewhere.
    fn publish(&self, here: u16, there: u16) {
        let copy = |binding, member: &str, weight| RouteBackend { binding, member: MemberKey(member.into()), weight };
        let backends = vec![copy(self.copy, MEMBER, here), copy(self.elsewhere, ELSEWHERE, there)];
        self.stack.routes.publish(self.table.id.to_string(), Some(RouteTable { backends, ..self.table.clone() }));
    }

    /// The weights in the `HTTPRoute`, by name of the backend.
    async fn weights(&self) -> Vec<(String, Option<u64>)> {
        let route = self.routes.get("shop").await.unwrap();
        let rules = route.data["spec"]["rules"].as_array().unwrap().clone();
        let backends = rules.into_iter().flat_map(|rule| rule["backendRefs"].as_array().unwrap().clone());
        backends.map(|backend| (backend["name"].as_str().unwrap().to_owned(), backend["weight"].as_u64())).collect()
    }

    async fn weighs(&self, here: u64, there: u64) {
        let is = |found: &[(String, Option<u64>)]| found[1].1 == Some(here) && found[2].1 == Some(there);
        if tokio::time::timeout(PATIENCE, eventually(PATIENCE * 2, async || is(&self.weights().await).then_some(()))).await.is_err() {
            panic!("{here} and {there} are not in {:?}; told is {:?}", self.weights().await, self.report().await);
        }
    }

    async fn report(&self) -> Option<RouteReport> {
        self.report_of(self.table.id).await
    }

    async fn report_of(&self, route: Uuid) -> Option<RouteReport> {
        let (_, page) = self.stack.send(reqwest::Method::GET, "/internal/feeds/traffic", &()).await;
        let item = page["items"].as_array().unwrap().iter().find(|item| item["key"] == route.to_string())?.clone();
        serde_json::from_value(item["value"].clone()).ok()
    }

    /// Waits until this is told of the copies, as weight and number of pods that answer.
    async fn tells(&self, wanted: [(u16, usize); 2]) -> RouteReport {
        eventually(PATIENCE, async || {
            let report = self.report().await?;
            let found: Vec<_> = report.backends.iter().map(|copy| (copy.weight, copy.answering)).collect();
            (found == wanted).then_some(report)
        })
        .await
    }
}

async fn weights_go_there_and_back(stack: Stack, definition: &Value, namespace: &str) {
    let (mut shop, desired) = Shop::start(stack, definition, namespace).await;
    shop.publish(100, 0);
    shop.weighs(100, 0).await;
    shop.publish(80, 20);
    shop.weighs(80, 20).await;
    let report = shop.tells([(80, 2), (20, 0)]).await;
    assert_eq!(report.problem, None);

    // Killed between two shares: what is missing is done after the start.
    shop.stack.kill();
    shop.publish(0, 100);
    shop.stack.restart().await;
    shop.weighs(0, 100).await;

    // Somebody's `kubectl apply` puts the old weights back.
    let theirs = json!([{"op": "replace", "path": "/spec/rules/1/backendRefs/0/weight", "value": 55}]);
    let theirs: Patch<()> = Patch::Json(serde_json::from_value(theirs).unwrap());
    shop.routes.patch("shop", &PatchParams::default(), &theirs).await.unwrap();
    shop.weighs(0, 100).await;

    shop.publish(100, 0);
    shop.weighs(100, 0).await;
    let rest = |found: Vec<(String, Option<u64>)>| found.into_iter().filter(|(name, _)| !name.starts_with("web")).collect::<Vec<_>>();
    let (files, canary) = (("files".to_owned(), shop.weights().await[0].1), ("canary".to_owned(), Some(3)));
    assert_eq!(rest(shop.weights().await), [files, canary], "what is not the app's stays");
    let route = shop.routes.get("shop").await.unwrap();
    assert_eq!(route.data["spec"]["hostnames"], json!(["shop.example"]));
    let managers: Vec<_> = route.metadata.managed_fields.unwrap_or_default().into_iter().filter_map(|field| field.manager).collect();
    assert!(managers.iter().any(|manager| manager == "drover"), "{managers:?}");

    // A route that is deleted leaves the HTTPRoute as it is.
    shop.stack.routes.publish(shop.table.id.to_string(), None);
    eventually(PATIENCE, async || shop.report().await.is_none().then_some(())).await;
    assert_eq!(shop.weights().await[1].1, Some(100));
    shop.stack.desire(&absent(&desired)).await;
    shop.stack.reaches(&absent(&desired), Phase::Gone).await;
}

fn http_route() -> Value {
    loose("gateway.networking.k8s.io", "v1", "HTTPRoute")
}

#[tokio::test]
async fn weights_of_an_http_route_go_there_and_back() {
    let stack = Stack::start().await;
    stack.know(MEMBER);
    weights_go_there_and_back(stack, &http_route(), "default").await;
}

#[tokio::test]
async fn weights_of_an_http_route_go_there_and_back_on_a_real_server() {
    let Some(stack) = real() else { return };
    let stack = stack.await;
    stack.know_by(std::fs::read_to_string(drover_testkit::needs("DROVER_CONTRACT_KUBECONFIG").unwrap()).unwrap());
    let (namespace, client) = (format!("drover-gateway-{}", std::process::id()), stack.client());
    weights_go_there_and_back(stack, &crds("gateway-api")[0], &namespace).await;
    // It has the HTTPRoute, which is nobody's of Drover.
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.delete(&namespace, &DeleteParams::default()).await.ok();
}

#[tokio::test]
async fn missing_http_route_and_missing_backend_are_told() {
    let stack = Stack::start().await;
    stack.know(MEMBER);
    let (shop, _) = Shop::start(stack, &http_route(), "default").await;
    let without = json!({"spec": {"rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}});
    shop.routes.patch("shop", &PatchParams::default(), &Patch::Merge(&without)).await.unwrap();
    // The copy elsewhere has no backend: it does not answer, and the one here keeps what it has.
    shop.publish(0, 100);
    shop.tells([(1, 2), (0, 0)]).await;
    assert_eq!(shop.weights().await, [("web".to_owned(), None)]);

    shop.routes.delete("shop", &DeleteParams::default()).await.unwrap();
    let told = eventually(PATIENCE, async || shop.report().await?.problem).await;
    assert_eq!(told, format!("there is no HTTPRoute {}/shop in {MEMBER}", shop.namespace));
}

#[tokio::test]
async fn gateway_of_a_cluster_that_does_not_answer_delays_no_route_of_another_cluster() {
    let stack = Stack::start().await;
    stack.know(MEMBER);
    stack.add_member(ELSEWHERE);
    stack.sim.fault(ELSEWHERE, Fault::Partition { hang: true });
    let (shop, _) = Shop::start(stack, &http_route(), "default").await;
    let gateway = GatewayRef { cluster: MemberKey(ELSEWHERE.into()), ..shop.table.gateway.clone().unwrap() };
    let silent = RouteTable { id: Uuid::new_v4(), gateway: Some(gateway), ..shop.table.clone() };
    let asked = Instant::now();
    shop.stack.routes.publish(silent.id.to_string(), Some(silent.clone()));
    for (here, there) in [(100, 0), (80, 20), (0, 100)] {
        shop.publish(here, there);
        shop.weighs(here.into(), there.into()).await;
    }
    let report = shop.report_of(silent.id).await;
    assert!(report.is_none() || asked.elapsed() > DEADLINE, "its first request is still waiting for an answer: {report:?}");
    // It is told in the end, and forgotten with the route.
    let told = eventually(PATIENCE, async || shop.report_of(silent.id).await?.problem).await;
    assert!(told.contains(ELSEWHERE), "{told}");
    shop.stack.routes.publish(silent.id.to_string(), None);
    eventually(PATIENCE, async || shop.report_of(silent.id).await.is_none().then_some(())).await;
}
