//! Room is made by moving others, and nobody's service stops.

use std::time::Duration;

use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{Witness, World, failed, moves, scenario, succeeded};
use drover_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::filling::ones;

const A_OR_C: [&str; 2] = ["onprem/private-a", "aws/public-c"];
const ONLY_A: [&str; 1] = ["onprem/private-a"];

async fn room_is_made_as_the_dry_run_said(world: &World) {
    succeeded(&Group::of("movable", ones("m", 4)).on(&A_OR_C).movable(5).deploy(&world.client).await.unwrap());
    let witness = Witness::start(world, &["m-1", "m-2", "m-3", "m-4"]).await;
    // Two CPUs on one node: both apps of a node must go.
    let newcomer = Group::new("newcomer", App::new("newcomer", 2000)).on(&ONLY_A);
    newcomer.approve(&world.client).await.unwrap();
    let dry = world.client.post(&format!("{}/instantiate?dryRun=All", newcomer.path()), None).await.unwrap();
    let plans: Vec<Value> = world.client.get::<Value>("/v2/plans").await.unwrap()["items"].as_array().cloned().unwrap();
    assert!(plans.is_empty(), "a dry run writes nothing: {plans:?}");
    let mut said: Vec<String> = waves(&dry.body).iter().map(|m| format!("movable/{}>{}", text(&m["app"]), text(&m["to"]))).collect();
    said.sort();
    assert_eq!(said.len(), 2, "{}", dry.body);

    let id = newcomer.verb(&world.client, "instantiate").await.unwrap();
    let operation = ended(&world.client, &id).await.unwrap();
    succeeded(&operation);
    assert_eq!(moves(&world.client, &operation).await, said);
    world.serves_on("newcomer", "private-a").await;
    for app in ["m-1", "m-2", "m-3", "m-4"] {
        let wanted = if said.iter().any(|s| s.contains(app)) { "public-c" } else { "private-a" };
        world.serves_on(app, wanted).await;
        assert_eq!(world.home(app).await, wanted);
    }
    for (app, lowest) in witness.lowest() {
        assert!(lowest >= 1, "{app} had a moment without a ready replica");
    }
}
scenario!(room_is_made_as_the_dry_run_said);

async fn preferred_insists(world: &World) {
    succeeded(&Group::of("movable", ones("m", 8)).movable(5).deploy(&world.client).await.unwrap());
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).preferred();
    let operation = newcomer.deploy(&world.client).await.unwrap();
    succeeded(&operation);
    assert_eq!(moves(&world.client, &operation).await.len(), 1);
    assert!(world.home("newcomer").await.starts_with("private-"));
}
scenario!(preferred_insists);

async fn preferred_overflows_without_a_plan(world: &World) {
    succeeded(&Group::of("pinned", ones("p", 8)).pinned().deploy(&world.client).await.unwrap());
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).preferred();
    succeeded(&newcomer.deploy(&world.client).await.unwrap());
    assert_eq!(world.home("newcomer").await, "public-c");
}
scenario!(preferred_overflows_without_a_plan);

/// A member takes Deployments but no pods.
async fn no_pods(world: &World, member: &str, limited: bool) {
    use k8s_openapi::api::core::v1::ResourceQuota;
    let quotas: kube::Api<ResourceQuota> = kube::Api::namespaced(world.member(member).client.clone(), "default");
    if !limited {
        let _ = quotas.delete("none", &Default::default()).await;
        return;
    }
    let quota = serde_json::from_value(json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})).unwrap();
    quotas.create(&Default::default(), &quota).await.unwrap();
    // The real quota controller has to count once before it refuses.
    eventually(Duration::from_secs(30), async || quotas.get("none").await.ok()?.status?.hard).await;
}

async fn next_destination_when_the_copy_never_serves(world: &World) {
    // private-b is full while the movable ones come, so they go to private-a; later it is their preferred destination.
    let filler = Group::of("filler", ones("f", 4)).on(&["onprem/private-b"]);
    succeeded(&filler.deploy(&world.client).await.unwrap());
    succeeded(&Group::of("movable", ones("m", 4)).movable(5).deploy(&world.client).await.unwrap());
    let id = filler.verb(&world.client, "terminate").await.unwrap();
    succeeded(&ended(&world.client, &id).await.unwrap());
    no_pods(world, "private-b", true).await;
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&ONLY_A);
    let operation = newcomer.deploy(&world.client).await;
    no_pods(world, "private-b", false).await;
    let operation = operation.unwrap();
    succeeded(&operation);
    let made = moves(&world.client, &operation).await;
    assert!(made.len() == 1 && made[0].ends_with(">aws+public-c"), "{made:?}");
    assert_eq!(world.member("private-b").deployed().await, Vec::<String>::new(), "the failed copy is gone");
}
scenario!(next_destination_when_the_copy_never_serves);

async fn undone_when_no_destination_serves(world: &World) {
    succeeded(&Group::of("movable", ones("m", 4)).on(&A_OR_C).movable(5).deploy(&world.client).await.unwrap());
    let witness = Witness::start(world, &["m-1", "m-2", "m-3", "m-4"]).await;
    no_pods(world, "public-c", true).await;
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&ONLY_A);
    let operation = newcomer.deploy(&world.client).await;
    no_pods(world, "public-c", false).await;
    failed(&operation.unwrap(), "destination_not_ready");
    assert_eq!(world.member("public-c").deployed().await, Vec::<String>::new());
    for app in ["m-1", "m-2", "m-3", "m-4"] {
        assert_eq!(world.home(app).await, "private-a");
    }
    assert_eq!(world.home("newcomer").await, "");
    assert!(witness.lowest().values().all(|low| *low >= 1));
}
scenario!(undone_when_no_destination_serves);

async fn a_destination_that_dies_is_given_up(world: &World) {
    let slow = |at: usize| App::new(&format!("m-{at}"), 1000).annotated("kit/start-delay", "4s");
    let movable = Group::of("movable", (1..=4).map(slow).collect()).on(&["onprem/private-b", "aws/public-c"]).movable(5);
    succeeded(&movable.deploy(&world.client).await.unwrap());
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&["onprem/private-b"]);
    newcomer.approve(&world.client).await.unwrap();
    let id = newcomer.verb(&world.client, "instantiate").await.unwrap();
    // The copy exists at the destination and does not serve yet: now the destination dies.
    eventually(Duration::from_secs(60), async || (!world.member("public-c").deployed().await.is_empty()).then_some(())).await;
    world.cut_off("public-c", true).await;
    let operation = ended(&world.client, &id).await.unwrap();
    failed(&operation, "destination_not_ready");
    for app in ["m-1", "m-2", "m-3", "m-4"] {
        world.serves_except("public-c", app, "private-b").await;
    }
    world.cut_off("public-c", false).await;
    // What was left there is found and removed when it is back.
    eventually(Duration::from_secs(90), async || world.member("public-c").deployed().await.is_empty().then_some(())).await;
}
scenario!(a_destination_that_dies_is_given_up);

async fn the_freed_room_is_taken_by_somebody_else(world: &World) {
    succeeded(&Group::of("movable", ones("m", 4)).on(&A_OR_C).movable(5).deploy(&world.client).await.unwrap());
    // It waits in the member for any room that becomes free.
    world.member("private-a").foreign_pod("thief", 1000).await;
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&ONLY_A);
    let operation = newcomer.deploy(&world.client).await.unwrap();
    succeeded(&operation);
    assert_eq!(moves(&world.client, &operation).await.len(), 2, "one for the thief, one for the newcomer");
    world.serves_on("newcomer", "private-a").await;
    let thief = world.member("private-a").pods().get("thief").await.unwrap();
    assert_eq!(thief.status.unwrap().phase.as_deref(), Some("Running"), "the thief kept its room");
}
scenario!(the_freed_room_is_taken_by_somebody_else);

async fn two_newcomers_want_the_same_room(world: &World) {
    succeeded(&Group::of("movable", ones("m", 4)).on(&A_OR_C).movable(5).deploy(&world.client).await.unwrap());
    let one = Group::new("one", App::new("one", 2000)).on(&ONLY_A);
    let two = Group::new("two", App::new("two", 2000)).on(&ONLY_A);
    let (first, second) = tokio::join!(one.deploy(&world.client), two.deploy(&world.client));
    for operation in [first.unwrap(), second.unwrap()] {
        if operation.finished_at.is_some() && operation.code.is_some() {
            assert!(!operation.reasons.is_empty(), "a newcomer that loses is told why: {operation:#?}");
        }
    }
    let clusters = world.clusters().await;
    for node in clusters.iter().flat_map(|c| &c.nodes) {
        assert!(node.room.requested.cpu <= node.room.allocatable.cpu, "{node:?}");
    }
    let winners = [world.home("one").await, world.home("two").await];
    assert!(winners.contains(&"private-a".to_owned()), "at least one got its place: {winners:?}");
    for app in ["m-1", "m-2", "m-3", "m-4"] {
        let home = world.home(app).await;
        assert!(home == "private-a" || home == "public-c", "{app} is in one place: {home}");
        world.serves_on(app, &home).await;
    }
}
scenario!(two_newcomers_want_the_same_room);

async fn a_drain_empties_a_member(world: &World) {
    succeeded(&Group::of("movable", ones("m", 3)).on(&A_OR_C).movable(5).deploy(&world.client).await.unwrap());
    let witness = Witness::start(world, &["m-1", "m-2", "m-3"]).await;
    let wish = json!({"kind": "drain", "clusterProvider": "onprem", "cluster": "private-a"});
    let plan = world.client.post("/v2/plans", Some(&wish)).await.unwrap().body;
    assert_eq!(waves(&plan).len(), 3, "{plan}");
    let path = format!("/v2/plans/{}/apply", text(&plan["id"]));
    let id = drover_e2e::emco::operation_id(&world.client, Method::POST, &path).await.unwrap();
    succeeded(&ended(&world.client, &id).await.unwrap());
    for app in ["m-1", "m-2", "m-3"] {
        world.serves_on(app, "public-c").await;
    }
    assert!(witness.lowest().values().all(|low| *low >= 1));
    assert!(world.member("private-a").deployed().await.is_empty());

    succeeded(&Group::of("pinned", ones("p", 1)).on(&ONLY_A).pinned().deploy(&world.client).await.unwrap());
    let plan = world.client.post("/v2/plans", Some(&wish)).await.unwrap().body;
    assert_eq!(plan["state"], "infeasible", "{plan}");
    assert!(plan["infeasible"].to_string().contains("p-1"), "{plan}");
}
scenario!(a_drain_empties_a_member);

/// All moves of a plan or of what holds one.
fn waves(value: &Value) -> Vec<Value> {
    let plan = if value["plan"]["plan"].is_object() { &value["plan"]["plan"] } else { &value["plan"] };
    plan["waves"].as_array().into_iter().flatten().flat_map(|w| w.as_array().cloned().unwrap_or_default()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
