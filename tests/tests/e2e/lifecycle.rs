//! Updating and terminating a deployment.

use std::time::Duration;

use drover_api::scheduling::ClaimState;
use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{System, Witness, moves, scenario, succeeded};
use drover_testkit::eventually;

async fn update_changes_the_deployment_in_place(system: &System) {
    let first = Group::of("shop", vec![App::new("cart", 500), App::new("old", 500)]);
    succeeded(&first.deploy(&system.client).await.unwrap());
    let home = system.home("cart").await;
    let uid = async || {
        let cart = system.member(&home).deployments().get("cart").await.unwrap();
        (cart.metadata.uid.unwrap(), cart.spec.unwrap().replicas.unwrap())
    };
    let (before, replicas) = uid().await;
    assert_eq!(replicas, 1);

    let second = Group::of("shop", vec![App::new("cart", 500).replicas(2)]);
    second.upload(&system.client).await.unwrap();
    let intents = format!("{}/generic-placement-intents/placement/app-intents/old", second.path());
    system.client.delete(&intents).await.unwrap();
    system.client.delete(&format!("{}/apps/old", second.composite())).await.unwrap();
    let id = second.verb(&system.client, "update").await.unwrap();
    succeeded(&ended(&system.client, &id).await.unwrap());

    assert_eq!(uid().await, (before, 2), "the same Deployment was changed");
    assert_eq!(system.home("cart").await, home, "an update changes the member only if the intent asks for it");
    assert_eq!(system.home("old").await, "");
    system.serves_on("old", "").await;
    let status: serde_json::Value = system.client.get(&format!("{}/status", second.path())).await.unwrap();
    assert_eq!(status["states"]["actions"].as_array().unwrap().last().unwrap()["revision"], 2, "{status}");
}
scenario!(update_changes_the_deployment_in_place);

/// The pods of `web` run on private-a, beside `victim`, and are replaced by pods of this size.
async fn moves_others_for_pods_of(cpu: u32, replaced_by: u32, system: &System) {
    let on = ["onprem/private-a", "aws/public-c"];
    succeeded(&Group::new("victim", App::new("victim", 1100).replicas(2)).on(&on).movable(5).deploy(&system.client).await.unwrap());
    let web = |cpu: u32, revision: &str| {
        let app = App::new("web", cpu).replicas(2).annotated("drover.test/revision", revision);
        Group::new("web", app).on(&on[..1])
    };
    succeeded(&web(cpu, "1").deploy(&system.client).await.unwrap());
    let witness = Witness::start(system, &["victim", "web"]).await;
    let update = web(replaced_by, "2");
    update.upload(&system.client).await.unwrap();
    let operation = ended(&system.client, &update.verb(&system.client, "update").await.unwrap()).await.unwrap();
    succeeded(&operation);
    assert_eq!(moves(&system.client, &operation).await, ["victim/victim>aws+public-c"]);
    assert_eq!(operation.children.len(), 1, "the first plan was carried out, with what it promises");
    system.serves_on("victim", "public-c").await;
    system.serves_on("web", "private-a").await;
    assert_eq!(system.member("private-a").ready("web").await, 2);
    for (app, lowest) in witness.lowest() {
        assert!(lowest >= 1, "{app} had a moment without a ready replica");
    }
    let claims = system.claims().await.unwrap();
    let of_web: Vec<_> = claims.iter().filter(|claim| claim.dig.name == "web").collect();
    assert!(
        matches!(&of_web[..], [claim] if !claim.surging && claim.state == ClaimState::Held),
        "what was promised is released: {of_web:?}"
    );
}

async fn update_whose_additional_pod_does_not_fit_moves_others(system: &System) {
    moves_others_for_pods_of(800, 800, system).await;
}
scenario!(update_whose_additional_pod_does_not_fit_moves_others);

async fn update_whose_larger_pods_do_not_fit_moves_others(system: &System) {
    moves_others_for_pods_of(400, 600, system).await;
}
scenario!(update_whose_larger_pods_do_not_fit_moves_others);

async fn terminate_leaves_nothing(system: &System) {
    let group = Group::of("shop", vec![App::new("cart", 500), App::new("catalogue", 500)]);
    succeeded(&group.deploy(&system.client).await.unwrap());
    let id = group.verb(&system.client, "terminate").await.unwrap();
    succeeded(&ended(&system.client, &id).await.unwrap());
    for member in system.members() {
        assert_eq!(member.deployed().await, Vec::<String>::new());
        assert!(member.pods().list(&Default::default()).await.unwrap().items.is_empty());
    }
    // Placement learns of the members' pods a little later.
    eventually(Duration::from_secs(120), async || {
        let clusters = system.clusters().await;
        clusters.iter().all(|c| c.apps.is_empty() && c.total.requested.cpu == 0).then_some(())
    })
    .await;
    // The group can be deployed again.
    succeeded(&group.deploy(&system.client).await.unwrap());
}
scenario!(terminate_leaves_nothing);
