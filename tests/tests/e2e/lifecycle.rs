//! Updating and terminating a deployment.

use std::time::Duration;

use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{System, scenario, succeeded};
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
    eventually(Duration::from_secs(30), async || {
        let clusters = system.clusters().await;
        clusters.iter().all(|c| c.apps.is_empty() && c.total.requested.cpu == 0).then_some(())
    })
    .await;
    // The group can be deployed again.
    succeeded(&group.deploy(&system.client).await.unwrap());
}
scenario!(terminate_leaves_nothing);
