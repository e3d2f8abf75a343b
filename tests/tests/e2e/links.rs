//! A member that Drover cannot reach (`public-c`), whose link breaks while apps move. With `DROVER_LINKED=1` every scenario of this program has
//! such a member, so that it takes part in all tests of moving.

use std::time::Duration;

use drover_api::links::{LinkPhase, LinkState};
use drover_api::operations::OperationState;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended, free_port};
use drover_e2e::linked::reach_pods;
use drover_e2e::{Backend, System, Witness, moves, succeeded};
use drover_testkit::eventually;
use serde_json::json;

const LINK: &str = "/v2/cluster-providers/aws/clusters/public-c/link";

/// Breaks the link, and lets the agent connect again after it has noticed.
async fn interrupt(system: &System) {
    let way = system.way_of_the_agent();
    let before = way.refused();
    way.cut();
    eventually(Duration::from_secs(120), async || (way.refused() > before).then_some(())).await;
    way.restore();
}

async fn app_moves_to_a_cluster_and_leaves_it_while_its_link_breaks(system: &System) {
    let a_or_c = ["onprem/private-a", "aws/public-c"];
    succeeded(&Group::new("victim", App::new("victim", 1200)).on(&a_or_c).movable(5).deploy(&system.client).await.unwrap());
    succeeded(&Group::new("other", App::new("other", 1200)).on(&a_or_c[..1]).deploy(&system.client).await.unwrap());
    let witness = Witness::start(system, &["victim"]).await;
    let newcomer = Group::new("newcomer", App::new("newcomer", 1500)).on(&a_or_c[..1]);
    newcomer.approve(&system.client).await.unwrap();
    let id = newcomer.verb(&system.client, "instantiate").await.unwrap();
    // A link that breaks before the new copy has been written fails the move, and nothing else is planned into a cluster without an answer.
    let begun = async || (!system.member("public-c").deployed().await.is_empty()).then_some(());
    eventually(Duration::from_secs(120), begun).await;
    interrupt(system).await;
    let operation = ended(&system.client, &id).await.unwrap();
    succeeded(&operation);
    assert_eq!(moves(&system.client, &operation).await, ["victim/victim>aws+public-c"]);
    system.serves_on("victim", "public-c").await;
    system.serves_on("newcomer", "private-a").await;
    for (app, lowest) in witness.lowest() {
        assert!(lowest >= 1, "{app} had a moment without a ready replica");
    }

    let terminated = newcomer.verb(&system.client, "terminate").await.unwrap();
    succeeded(&ended(&system.client, &terminated).await.unwrap());
    let state: LinkState = system.client.get(LINK).await.unwrap();
    assert_eq!((state.phase, state.connected), (LinkPhase::Accepted, true));
    // The link breaks while an app leaves the cluster.
    let id = Group::new("victim", App::new("victim", 1200)).verb(&system.client, "terminate").await.unwrap();
    interrupt(system).await;
    succeeded(&ended(&system.client, &id).await.unwrap());
    system.serves_on("victim", "").await;
}

/// Why no app with a route can be in the linked cluster, as long as no label says how its pods are reached.
const NO_WAY: &str = "its link carries only Drover's requests to its API server";

/// A route needs another way to the pods than the link: that is said before anything moves.
async fn route_is_not_served_through_a_link(system: &System) {
    let route = json!({"host": "shop.example", "port": free_port()});
    let only_c = Group::new("remote", App::new("remote", 300).serving(8080)).on(&["aws/public-c"]);
    let operation = only_c.deploy_with_route(&system.client, route).await.unwrap();
    assert_eq!(operation.state, OperationState::Failed, "{operation:#?}");
    assert!(serde_json::to_string(&operation).unwrap().contains(NO_WAY), "{operation:#?}");
    assert!(system.member("public-c").deployed().await.is_empty());

    // Nor is one moved there: the plan says so, and moves nothing.
    let route = json!({"host": "site.example", "port": free_port()});
    let site = Group::new("site", App::new("site", 1200).serving(8080)).on(&["onprem/private-a", "aws/public-c"]).movable(5);
    succeeded(&site.deploy_with_route(&system.client, route).await.unwrap());
    let order = json!({"kind": "drain", "clusterProvider": "onprem", "cluster": "private-a"});
    let plan = system.client.post("/v2/plans", Some(&order)).await.unwrap().body;
    assert!(plan["state"] != "proposed" && plan.to_string().contains(NO_WAY), "{plan:#}");
    reach_pods(system.member("public-c"), &system.client).await;
    let planned = async || {
        let plan = system.client.post("/v2/plans", Some(&order)).await.unwrap().body;
        (plan["state"] == "proposed").then_some(())
    };
    eventually(Duration::from_secs(120), planned).await;
    let id = site.verb(&system.client, "terminate").await.unwrap();
    succeeded(&ended(&system.client, &id).await.unwrap());
}

/// The health of the agent is part of what is told of the cluster.
async fn agent_is_shown(system: &System) {
    let clusters = system.clusters().await;
    let link = |name: &str| clusters.iter().find(|cluster| cluster.cluster == name).unwrap().link.clone();
    assert_eq!(link("private-a"), None);
    let shown = link("public-c").expect("it is linked");
    assert!(shown.connected_since.is_some() && shown.certificate_expires.is_some(), "{shown:?}");
    assert_eq!(shown.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn routes_need_another_way_than_the_link_and_its_agent_is_shown() {
    let system = System::linked(Backend::Simulated).await;
    agent_is_shown(&system).await;
    route_is_not_served_through_a_link(&system).await;
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn simulated() {
    let system = System::linked(Backend::Simulated).await;
    app_moves_to_a_cluster_and_leaves_it_while_its_link_breaks(&system).await;
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn real() {
    if Backend::real_is_built() {
        let system = System::linked(Backend::Real).await;
        app_moves_to_a_cluster_and_leaves_it_while_its_link_breaks(&system).await;
        system.end().await;
    }
}
