//! Deploying again and terminating.

use std::time::Duration;

use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{World, scenario, succeeded};
use drover_testkit::eventually;

async fn deploying_again_updates_in_place(world: &World) {
    let first = Group::of("shop", vec![App::new("cart", 500), App::new("old", 500)]);
    succeeded(&first.deploy(&world.client).await.unwrap());
    let home = world.home("cart").await;
    let uid = async || {
        let cart = world.member(&home).deployments().get("cart").await.unwrap();
        (cart.metadata.uid.unwrap(), cart.spec.unwrap().replicas.unwrap())
    };
    let (before, replicas) = uid().await;
    assert_eq!(replicas, 1);

    let second = Group::of("shop", vec![App::new("cart", 500).replicas(2)]);
    second.upload(&world.client).await.unwrap();
    let intents = format!("{}/generic-placement-intents/placement/app-intents/old", second.path());
    world.client.delete(&intents).await.unwrap();
    world.client.delete(&format!("{}/apps/old", second.composite())).await.unwrap();
    let id = second.verb(&world.client, "update").await.unwrap();
    succeeded(&ended(&world.client, &id).await.unwrap());

    assert_eq!(uid().await, (before, 2), "the same Deployment, changed");
    assert_eq!(world.home("cart").await, home, "an update never changes the member");
    assert_eq!(world.home("old").await, "");
    world.serves_on("old", "").await;
    let status: serde_json::Value = world.client.get(&format!("{}/status", second.path())).await.unwrap();
    assert_eq!(status["states"]["actions"].as_array().unwrap().last().unwrap()["revision"], 2, "{status}");
}
scenario!(deploying_again_updates_in_place);

async fn terminating_leaves_nothing(world: &World) {
    let group = Group::of("shop", vec![App::new("cart", 500), App::new("catalogue", 500)]);
    succeeded(&group.deploy(&world.client).await.unwrap());
    let id = group.verb(&world.client, "terminate").await.unwrap();
    succeeded(&ended(&world.client, &id).await.unwrap());
    for member in world.members() {
        assert_eq!(member.deployed().await, Vec::<String>::new());
        assert!(member.pods().list(&Default::default()).await.unwrap().items.is_empty());
    }
    // What placement knows of the members' pods comes a moment later.
    eventually(Duration::from_secs(30), async || {
        let clusters = world.clusters().await;
        clusters.iter().all(|c| c.apps.is_empty() && c.total.requested.cpu == 0).then_some(())
    })
    .await;
    // And it can come again.
    succeeded(&group.deploy(&world.client).await.unwrap());
}
scenario!(terminating_leaves_nothing);
