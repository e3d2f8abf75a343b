//! A member that Drover cannot reach (`public-c`), whose link breaks while apps move. With `DROVER_LINKED=1` every scenario of this program has
//! such a member, so that it takes part in all tests of moving.

use std::time::Duration;

use drover_api::links::{LinkPhase, LinkState};
use drover_api::operations::Operation;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{Backend, System, Witness, moves, succeeded};
use drover_testkit::eventually;

const LINK: &str = "/v2/cluster-providers/aws/clusters/public-c/link";

/// Breaks the link, and lets the agent connect again after it has noticed.
async fn interrupt(system: &System) {
    let way = system.way_of_the_agent();
    let before = way.refused();
    way.cut();
    eventually(Duration::from_secs(30), async || (way.refused() > before).then_some(())).await;
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
    // Nothing is planned into a cluster that does not answer: the link breaks when the move has begun.
    let begun = async || {
        let operation: Operation = system.client.get(&format!("/v2/operations/{id}")).await.unwrap();
        (!operation.moves.is_empty()).then_some(())
    };
    eventually(Duration::from_secs(30), begun).await;
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
