//! Users' requests go on while their app moves. The members are simulated, with pods that answer.

use std::net::SocketAddr;
use std::time::Duration;

use drover_api::operations::Operation;
use drover_api::traffic::{RouteList, RouteView};
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended, free_port, operation_id};
use drover_e2e::members::Shape;
use drover_e2e::{SOON_READY, System, failed, succeeded};
use drover_lab::load::{Load, Outcome, Plan};
use drover_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::relocating::no_pods;

const HOST: &str = "shop.example";
const PORT: u16 = 8080;
const PATIENCE: Duration = Duration::from_secs(120);

/// A system with pods that answer, and a group with a route.
struct Shop {
    system: System,
    group: Group,
    port: u16,
}

impl Shop {
    async fn start(web: App, shift: Value) -> Self {
        Self::with(web, shift, &[]).await
    }

    /// The same with more flags for services.
    async fn with(web: App, shift: Value, flags: &[(&'static str, &'static str)]) -> Self {
        let system = System::shaped(&Shape { answering: true, ..Shape::default() }, flags).await;
        let group = Group::new("shop", web.serving(PORT)).movable(5);
        let port = free_port();
        let route = json!({"host": HOST, "port": port, "shift": shift});
        succeeded(&group.deploy_with_route(&system.client, route).await.unwrap());
        let shop = Self { system, group, port };
        shop.serves().await;
        shop
    }

    /// The route, as users see it.
    async fn route(&self) -> RouteView {
        let mut routes = self.system.client.get::<RouteList>("/v2/routes?project=e2e").await.unwrap().items;
        assert_eq!(routes.len(), 1, "{routes:?}");
        routes.remove(0)
    }

    /// Changes how traffic goes to a new copy.
    async fn shifts(&self, shift: Value) {
        let spec = json!({"app": "web", "service": "web", "servicePort": 80, "host": HOST, "port": self.port, "shift": shift});
        let document = json!({"metadata": {"name": self.group.name}, "spec": spec});
        let routes = format!("{}/routes", self.group.path());
        self.system.client.upsert(&routes, &self.group.name, &document).await.unwrap();
    }

    async fn serves(&self) {
        eventually(PATIENCE, async || (self.route().await.state == "serving").then_some(())).await;
    }

    fn load(&self, rate: f64, streams: bool) -> Load {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        Load::start(Plan { address, host: HOST.to_owned(), rate, slow_every: 50, streams }).unwrap()
    }

    /// Moves the app away from where it is, and opens that cluster again.
    async fn moved(&self) -> Operation {
        let home = self.system.home("web").await;
        let provider = self.system.member(&home).provider;
        let client = &self.system.client;
        let order = json!({"kind": "drain", "clusterProvider": provider, "cluster": home});
        let plan = client.post("/v2/plans", Some(&order)).await.unwrap().body;
        let id = operation_id(client, Method::POST, &format!("/v2/plans/{}/apply", plan["id"].as_str().unwrap())).await.unwrap();
        let operation = ended(client, &id).await.unwrap();
        client.delete(&format!("/v2/cluster-providers/{provider}/clusters/{home}/cordon")).await.unwrap();
        self.system.opened(&home).await;
        operation
    }
}

fn none_failed(outcome: &Outcome) {
    assert_eq!(outcome.failed, 0, "{} were served: {:#?}", outcome.served, outcome.failures);
    assert!(outcome.served > 0);
}

/// `moves` moves under load. No request fails, and no POST reaches the pods twice.
async fn requests_go_on(rate: f64, moves: usize) {
    let shop = Shop::start(App::new("web", 300).replicas(2), json!({"drainSeconds": 3600})).await;
    let load = shop.load(rate, true);
    for _ in 0..moves {
        let before = shop.system.home("web").await;
        succeeded(&shop.moved().await);
        assert_ne!(shop.system.home("web").await, before);
    }
    none_failed(&load.end().await);
    let route = shop.route().await;
    assert_eq!((route.state.as_str(), route.backends.len(), route.backends[0].weight), ("serving", 1, 100), "{route:?}");
    shop.system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_request_fails_while_the_app_moves() {
    requests_go_on(50.0, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes minutes; part of make test-long"]
async fn no_request_fails_through_ten_moves_with_200_requests_per_second() {
    requests_go_on(200.0, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn weight_goes_to_the_new_copy_step_by_step() {
    let shift = |pause: u32| json!({"steps": [20], "pauseSeconds": pause, "drainSeconds": 3600});
    let mut pause = 3;
    let shop = Shop::start(App::new("web", 300), shift(pause)).await;
    let load = shop.load(50.0, false);
    loop {
        let home = shop.system.home("web").await;
        // While the first share lasts, both copies get requests.
        let seen = eventually(Duration::from_secs(3600), async || {
            let backends = shop.route().await.backends;
            let weight = |old: bool| backends.iter().find(|one| (one.cluster.cluster() == home) == old).map(|one| one.weight);
            let shared = (weight(true), weight(false)) == (Some(80), Some(20));
            (shared && backends.iter().all(|backend| backend.requests > 0)).then_some(())
        });
        let mut moved = std::pin::pin!(shop.moved());
        tokio::select! {
            () = seen => {
                succeeded(&moved.as_mut().await);
                break;
            }
            operation = &mut moved => succeeded(&operation),
        }
        // On a slow machine the share is over before anybody looks.
        pause *= 4;
        assert!(pause < 200, "nobody has seen the first share");
        shop.shifts(shift(pause)).await;
    }
    none_failed(&load.end().await);
    shop.system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn move_whose_new_copy_does_not_answer_the_data_path_is_undone() {
    // The cluster believes that the pods are ready, but nothing listens where the Service points.
    let shop = Shop::with(App::new("web", 300), json!({}), &[SOON_READY]).await;
    let before = shop.system.home("web").await;
    let load = shop.load(30.0, false);
    let sim = shop.system.sim().unwrap();
    for member in shop.system.members().iter().filter(|member| member.name != before) {
        sim.silence_pods(member.name);
    }
    let operation = shop.moved().await;
    failed(&operation, "traffic_not_answered");
    none_failed(&load.end().await);
    assert_eq!(shop.system.home("web").await, before);
    let route = shop.route().await;
    assert_eq!((route.backends.len(), route.backends[0].weight), (1, 100), "{route:?}");
    shop.system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn move_whose_new_copy_never_gets_ready_is_undone_without_a_failed_request() {
    let shop = Shop::with(App::new("web", 300), json!({}), &[SOON_READY]).await;
    let before = shop.system.home("web").await;
    let load = shop.load(30.0, false);
    for member in shop.system.members().iter().filter(|member| member.name != before) {
        no_pods(&shop.system, member.name, true).await;
    }
    failed(&shop.moved().await, "destination_not_ready");
    none_failed(&load.end().await);
    assert_eq!(shop.system.home("web").await, before);
    shop.system.end().await;
}

/// A move in which something happens to the new copy when it has a fifth of the traffic. It is undone, and no request fails. Nothing of
/// the new copy is left once `ends` has been done.
async fn interrupted(app: App, happens: impl AsyncFn(&Shop, &str), ends: impl AsyncFn(&Shop)) {
    // A new copy that is not ready any more is given up soon, and so is the wait for its end.
    let flags = [SOON_READY, ("orchestrator", "--gone-seconds=10")];
    let shop = Shop::with(app, json!({"steps": [20], "pauseSeconds": 600, "drainSeconds": 5}), &flags).await;
    let before = shop.system.home("web").await;
    let load = shop.load(30.0, false);
    let happens = async {
        let new = eventually(PATIENCE, async || {
            let backends = shop.route().await.backends;
            backends.into_iter().find(|backend| backend.weight == 20 && backend.requests > 0).map(|backend| backend.cluster)
        })
        .await;
        happens(&shop, new.cluster()).await;
    };
    let (operation, ()) = tokio::join!(shop.moved(), happens);
    failed(&operation, "destination_not_ready");
    none_failed(&load.end().await);
    ends(&shop).await;
    eventually(PATIENCE, async || (shop.system.home("web").await == before).then_some(())).await;
    let route = shop.route().await;
    assert_eq!((route.backends.len(), route.backends[0].weight), (1, 100), "{route:?}");
    shop.system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn move_whose_new_node_is_cut_off_during_the_shift_is_undone_without_a_failed_request() {
    let lost = std::sync::Mutex::new(Vec::new());
    let cut_off = async |shop: &Shop, new: &str| {
        let pods = shop.system.member(new).pods().list(&Default::default()).await.unwrap().items;
        for node in pods.into_iter().filter_map(|pod| pod.spec?.node_name) {
            shop.system.sim().unwrap().node_down(new, &node);
            lost.lock().unwrap().push((new.to_owned(), node));
        }
    };
    // A pod on a node that is cut off may still run, so its copy is gone only when the node is back.
    let back = async |shop: &Shop| {
        for (member, node) in lost.lock().unwrap().drain(..) {
            shop.system.sim().unwrap().node_up(&member, &node);
        }
    };
    interrupted(App::new("web", 300), cut_off, back).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn move_whose_new_copy_crashes_again_and_again_is_undone_without_a_failed_request() {
    let crash = async |shop: &Shop, new: &str| {
        let member = shop.system.member(new).clone();
        // Each pod of the new copy is replaced as soon as it is ready, until the move gives up.
        tokio::spawn(async move {
            loop {
                let Ok(pods) = member.pods().list(&Default::default()).await else { return };
                for pod in pods.items {
                    let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
                    if conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
                        let _ = member.pods().delete(&pod.metadata.name.unwrap_or_default(), &Default::default()).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
    };
    // A pod that is deleted goes on for longer than the slowest answer takes: a POST that is cut off cannot be repeated.
    interrupted(App::new("web", 300).annotated("kit/stop-delay", "5s"), crash, async |_: &Shop| ()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn second_route_of_an_address_is_refused_and_a_missing_service_is_named() {
    let shop = Shop::start(App::new("web", 300), json!({})).await;
    let client = &shop.system.client;
    let routes = format!("{}/routes", shop.group.path());
    let route = |name: &str, host: &str, service: &str| json!({"metadata": {"name": name}, "spec": {"app": "web", "service": service, "servicePort": 80, "host": host, "port": shop.port}});
    let error = client.upsert(&routes, "second", &route("second", "SHOP.example", "web")).await.unwrap_err();
    assert_eq!(drover::hub::code(&error), Some("already_exists"), "{error:#}");
    client.upsert(&routes, "other", &route("other", "other.example", "wbe")).await.unwrap();
    let reason = eventually(PATIENCE, async || {
        let routes = client.get::<RouteList>("/v2/routes").await.unwrap().items;
        routes.into_iter().find(|route| route.name == "other")?.reason.filter(|reason| reason.contains("wbe"))
    })
    .await;
    assert_eq!(reason, "the app web has no Service wbe; it has web");
    shop.system.end().await;
}
