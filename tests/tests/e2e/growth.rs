//! Apps that somebody else scales beyond the room of their cluster: room is made for them there, or they move with the number of pods that runs.

use std::time::Duration;

use drover_api::operations::{Operation, OperationState};
use drover_e2e::apps::App;
use drover_e2e::emco::Group;
use drover_e2e::{System, Witness, moves, scenario, succeeded};
use drover_testkit::eventually;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::filling::ones;

const A_OR_C: [&str; 2] = ["onprem/private-a", "aws/public-c"];
const ONLY_A: [&str; 1] = ["onprem/private-a"];
const PATIENCE: Duration = Duration::from_secs(120);

/// Scales an app on private-a as a HorizontalPodAutoscaler does.
async fn scale(system: &System, app: &str, replicas: u32) {
    let params = PatchParams { field_manager: Some("kube-controller-manager".into()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    system.member("private-a").deployments().patch_scale(app, &params, &patch).await.unwrap();
}

/// Waits for an operation that Drover has begun by itself, and for its end.
async fn by_itself(system: &System, kind: &str, subject: &str) -> Operation {
    eventually(PATIENCE, async || {
        let list: Value = system.client.get("/v2/operations").await.ok()?;
        let found = list["items"].as_array()?.iter().find(|one| {
            one["kind"] == kind && one["subject"].as_str().is_some_and(|text| text.contains(subject)) && one["state"] == "succeeded"
        })?;
        serde_json::from_value(found.clone()).ok()
    })
    .await
}

/// Pods of an app that are claimed on a member.
async fn claimed(system: &System, app: &str, cluster: &str) -> u32 {
    let claims = system.claims().await.unwrap();
    let own = claims.iter().filter(|claim| claim.request.app == app && claim.member.cluster() == cluster);
    own.flat_map(|claim| &claim.request.demand.groups).map(|group| group.replicas).sum()
}

async fn app_that_outgrows_its_room_gets_more_where_it_is(system: &System) {
    let shop = Group::new("shop", App::new("shop", 500)).on(&ONLY_A).pinned();
    succeeded(&shop.deploy(&system.client).await.unwrap());
    succeeded(&Group::of("movable", ones("m", 3)).on(&A_OR_C).movable(5).deploy(&system.client).await.unwrap());
    for app in ["m-1", "m-2", "m-3"] {
        assert_eq!(system.home(app).await, "private-a");
    }
    let witness = Witness::start(system, &["shop", "m-1", "m-2", "m-3"]).await;
    // Half a CPU is free; three more pods need one and a half.
    scale(system, "shop", 4).await;
    let grown = by_itself(system, "grow", "/shop/").await;
    // One of them suffices, although pods start in the room before it is claimed: one in that which was free, the others when one has left.
    assert_eq!(moves(&system.client, &grown).await.len(), 1, "{grown:#?}");
    eventually(PATIENCE, async || (system.member("private-a").ready("shop").await == 4).then_some(())).await;
    assert_eq!((claimed(system, "shop", "private-a").await, system.home("shop").await.as_str()), (4, "private-a"));
    assert!(witness.lowest().values().all(|low| *low >= 1), "nothing stood still meanwhile");

    // The room follows down as well.
    scale(system, "shop", 1).await;
    eventually(PATIENCE, async || (claimed(system, "shop", "private-a").await == 1).then_some(())).await;
}
scenario!(app_that_outgrows_its_room_gets_more_where_it_is);

async fn app_that_outgrows_its_cluster_moves_with_the_pods_that_run(system: &System) {
    let shop = Group::new("shop", App::new("shop", 250)).on(&A_OR_C).movable(5);
    succeeded(&shop.deploy(&system.client).await.unwrap());
    succeeded(&Group::of("pinned", ones("p", 3)).on(&ONLY_A).pinned().deploy(&system.client).await.unwrap());
    assert_eq!(system.home("shop").await, "private-a");
    let witness = Witness::start(system, &["shop"]).await;
    // One CPU is left beside the pinned apps: room for four pods.
    scale(system, "shop", 7).await;
    // The claim of the new copy is for seven pods from the beginning.
    let first = eventually(PATIENCE, async || Some(claimed(system, "shop", "public-c").await).filter(|pods| *pods > 0)).await;
    assert_eq!(first, 7);
    eventually(PATIENCE, async || (system.serves("shop").await == "public-c").then_some(())).await;
    eventually(PATIENCE, async || (system.member("public-c").ready("shop").await == 7).then_some(())).await;
    assert_eq!(claimed(system, "shop", "public-c").await, 7);
    assert!(witness.lowest()["shop"] >= 1, "it was ready all the time");
    let plans: Value = system.client.get("/v2/plans").await.unwrap();
    let plan = plans["items"].as_array().unwrap().iter().find(|plan| plan["kind"]["relieve"] == "onprem+private-a").unwrap();
    assert_eq!(plan["reason"], "it has grown beyond the room there, and no plan makes more", "{plan:#}");
    let operations: Vec<Operation> =
        serde_json::from_value(system.client.get::<Value>("/v2/operations").await.unwrap()["items"].clone()).unwrap();
    let tried = operations.iter().find(|one| one.kind == "grow").expect("first it was tried to make room");
    assert_eq!(tried.state, OperationState::Failed, "{tried:#?}");
}
scenario!(app_that_outgrows_its_cluster_moves_with_the_pods_that_run);
