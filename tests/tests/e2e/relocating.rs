//! Room is made by moving other apps, which are ready all the time.

use std::time::Duration;

use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{System, Witness, failed, moves, scenario, succeeded};
use drover_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::filling::ones;

const A_OR_C: [&str; 2] = ["onprem/private-a", "aws/public-c"];
const ONLY_A: [&str; 1] = ["onprem/private-a"];

async fn relocation_does_what_the_dry_run_said(system: &System) {
    succeeded(&Group::of("movable", ones("m", 4)).on(&A_OR_C).movable(5).deploy(&system.client).await.unwrap());
    let witness = Witness::start(system, &["m-1", "m-2", "m-3", "m-4"]).await;
    // It needs two CPUs on one node, so both apps of a node must be moved.
    let newcomer = Group::new("newcomer", App::new("newcomer", 2000)).on(&ONLY_A);
    newcomer.approve(&system.client).await.unwrap();
    let dry = system.client.post(&format!("{}/instantiate?dryRun=All", newcomer.path()), None).await.unwrap();
    let plans: Vec<Value> = system.client.get::<Value>("/v2/plans").await.unwrap()["items"].as_array().cloned().unwrap();
    assert!(plans.is_empty(), "a dry run writes nothing: {plans:?}");
    let mut planned: Vec<String> = waves(&dry.body).iter().map(|m| format!("movable/{}>{}", text(&m["app"]), text(&m["to"]))).collect();
    planned.sort();
    assert_eq!(planned.len(), 2, "{}", dry.body);

    let id = newcomer.verb(&system.client, "instantiate").await.unwrap();
    let operation = ended(&system.client, &id).await.unwrap();
    succeeded(&operation);
    assert_eq!(moves(&system.client, &operation).await, planned);
    system.serves_on("newcomer", "private-a").await;
    for app in ["m-1", "m-2", "m-3", "m-4"] {
        let wanted = if planned.iter().any(|s| s.contains(app)) { "public-c" } else { "private-a" };
        system.serves_on(app, wanted).await;
        assert_eq!(system.home(app).await, wanted);
    }
    for (app, lowest) in witness.lowest() {
        assert!(lowest >= 1, "{app} had a moment without a ready replica");
    }
}
scenario!(relocation_does_what_the_dry_run_said);

async fn when_full_preferred_moves_others(system: &System) {
    succeeded(&Group::of("movable", ones("m", 8)).movable(5).deploy(&system.client).await.unwrap());
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).preferred();
    let operation = newcomer.deploy(&system.client).await.unwrap();
    succeeded(&operation);
    assert_eq!(moves(&system.client, &operation).await.len(), 1);
    assert!(system.home("newcomer").await.starts_with("private-"));
}
scenario!(when_full_preferred_moves_others);

async fn when_full_preferred_overflows_if_no_plan_is_possible(system: &System) {
    succeeded(&Group::of("pinned", ones("p", 8)).pinned().deploy(&system.client).await.unwrap());
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).preferred();
    succeeded(&newcomer.deploy(&system.client).await.unwrap());
    assert_eq!(system.home("newcomer").await, "public-c");
}
scenario!(when_full_preferred_overflows_if_no_plan_is_possible);

/// Makes a member accept Deployments but no pods, or ends that.
pub async fn no_pods(system: &System, member: &str, limited: bool) {
    use k8s_openapi::api::core::v1::ResourceQuota;
    let quotas: kube::Api<ResourceQuota> = kube::Api::namespaced(system.member(member).client.clone(), "default");
    if !limited {
        let _ = quotas.delete("none", &Default::default()).await;
        return;
    }
    let quota = serde_json::from_value(json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})).unwrap();
    quotas.create(&Default::default(), &quota).await.unwrap();
    // The quota takes effect when the quota controller has counted once.
    eventually(Duration::from_secs(120), async || quotas.get("none").await.ok()?.status?.hard).await;
}

async fn copy_that_never_gets_ready_goes_to_the_next_destination(system: &System) {
    // private-b is full when the movable apps are deployed, so they are placed on private-a; later it is their preferred destination.
    let filler = Group::of("filler", ones("f", 4)).on(&["onprem/private-b"]);
    succeeded(&filler.deploy(&system.client).await.unwrap());
    succeeded(&Group::of("movable", ones("m", 4)).movable(5).deploy(&system.client).await.unwrap());
    let id = filler.verb(&system.client, "terminate").await.unwrap();
    succeeded(&ended(&system.client, &id).await.unwrap());
    no_pods(system, "private-b", true).await;
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&ONLY_A);
    let operation = newcomer.deploy(&system.client).await;
    no_pods(system, "private-b", false).await;
    let operation = operation.unwrap();
    succeeded(&operation);
    let made = moves(&system.client, &operation).await;
    assert!(made.len() == 1 && made[0].ends_with(">aws+public-c"), "{made:?}");
    assert_eq!(system.member("private-b").deployed().await, Vec::<String>::new(), "the failed copy is gone");
}
scenario!(copy_that_never_gets_ready_goes_to_the_next_destination, &[drover_e2e::SOON_READY]);

async fn move_is_undone_when_no_destination_gets_ready(system: &System) {
    succeeded(&Group::of("movable", ones("m", 4)).on(&A_OR_C).movable(5).deploy(&system.client).await.unwrap());
    let witness = Witness::start(system, &["m-1", "m-2", "m-3", "m-4"]).await;
    no_pods(system, "public-c", true).await;
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&ONLY_A);
    let operation = newcomer.deploy(&system.client).await;
    no_pods(system, "public-c", false).await;
    failed(&operation.unwrap(), "destination_not_ready");
    assert_eq!(system.member("public-c").deployed().await, Vec::<String>::new());
    for app in ["m-1", "m-2", "m-3", "m-4"] {
        assert_eq!(system.home(app).await, "private-a");
    }
    assert_eq!(system.home("newcomer").await, "");
    assert!(witness.lowest().values().all(|low| *low >= 1));
}
scenario!(move_is_undone_when_no_destination_gets_ready, &[drover_e2e::SOON_READY]);

async fn move_is_undone_when_its_destination_becomes_unreachable(system: &System) {
    let movable = Group::of("movable", ones("m", 4)).on(&["onprem/private-b", "aws/public-c"]).movable(5);
    succeeded(&movable.deploy(&system.client).await.unwrap());
    no_pods(system, "public-c", true).await;
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&["onprem/private-b"]);
    newcomer.approve(&system.client).await.unwrap();
    let id = newcomer.verb(&system.client, "instantiate").await.unwrap();
    // The destination becomes unreachable when the copy exists there; without pods it does not get ready meanwhile.
    eventually(Duration::from_secs(120), async || (!system.member("public-c").deployed().await.is_empty()).then_some(())).await;
    system.cut_off("public-c", true).await;
    let operation = ended(&system.client, &id).await.unwrap();
    failed(&operation, "destination_not_ready");
    let unreachable = |reason: &String| reason.contains("does not answer") || reason.contains("unreachable");
    assert!(operation.reasons.iter().chain([&operation.message]).any(unreachable), "{operation:#?}");
    for app in ["m-1", "m-2", "m-3", "m-4"] {
        system.serves_except("public-c", app, "private-b").await;
    }
    system.cut_off("public-c", false).await;
    no_pods(system, "public-c", false).await;
    // The copy that was left there is deleted when the member is back.
    eventually(Duration::from_secs(120), async || system.member("public-c").deployed().await.is_empty().then_some(())).await;
}
scenario!(move_is_undone_when_its_destination_becomes_unreachable, &drover_e2e::SHORT);

async fn newcomer_plans_again_when_a_foreign_pod_takes_the_room(system: &System) {
    succeeded(&Group::of("movable", ones("m", 4)).on(&A_OR_C).movable(5).deploy(&system.client).await.unwrap());
    // A pending pod that is not Drover's takes any room that becomes free in the member.
    system.member("private-a").foreign_pod("foreign", 1000).await;
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&ONLY_A);
    let operation = newcomer.deploy(&system.client).await.unwrap();
    succeeded(&operation);
    assert_eq!(moves(&system.client, &operation).await.len(), 2, "one for the foreign pod, one for the newcomer");
    system.serves_on("newcomer", "private-a").await;
    eventually(Duration::from_secs(120), async || {
        let foreign = system.member("private-a").pods().get("foreign").await.unwrap();
        (foreign.status?.phase? == "Running").then_some(())
    })
    .await;
}
scenario!(newcomer_plans_again_when_a_foreign_pod_takes_the_room, &[("orchestrator", "--unschedulable-seconds=20")]);

async fn two_newcomers_for_one_room_never_overcommit(system: &System) {
    succeeded(&Group::of("movable", ones("m", 4)).on(&A_OR_C).movable(5).deploy(&system.client).await.unwrap());
    let one = Group::new("one", App::new("one", 2000)).on(&ONLY_A);
    let two = Group::new("two", App::new("two", 2000)).on(&ONLY_A);
    let (first, second) = tokio::join!(one.deploy(&system.client), two.deploy(&system.client));
    for operation in [first.unwrap(), second.unwrap()] {
        if operation.finished_at.is_some() && operation.code.is_some() {
            assert!(!operation.reasons.is_empty(), "a newcomer without a place gets reasons: {operation:#?}");
        }
    }
    let clusters = system.clusters().await;
    for node in clusters.iter().flat_map(|c| &c.nodes) {
        assert!(node.room.requested.cpu <= node.room.allocatable.cpu, "{node:?}");
    }
    let winners = [system.home("one").await, system.home("two").await];
    assert!(winners.contains(&"private-a".to_owned()), "at least one got its place: {winners:?}");
    for app in ["m-1", "m-2", "m-3", "m-4"] {
        let home = system.home(app).await;
        assert!(home == "private-a" || home == "public-c", "{app} is on one member: {home}");
        system.serves_on(app, &home).await;
    }
}
scenario!(two_newcomers_for_one_room_never_overcommit);

async fn drain_empties_a_member(system: &System) {
    succeeded(&Group::of("movable", ones("m", 3)).on(&A_OR_C).movable(5).deploy(&system.client).await.unwrap());
    let witness = Witness::start(system, &["m-1", "m-2", "m-3"]).await;
    let wish = json!({"kind": "drain", "clusterProvider": "onprem", "cluster": "private-a"});
    let plan = system.client.post("/v2/plans", Some(&wish)).await.unwrap().body;
    assert_eq!(waves(&plan).len(), 3, "{plan}");
    let path = format!("/v2/plans/{}/apply", text(&plan["id"]));
    let id = drover_e2e::emco::operation_id(&system.client, Method::POST, &path).await.unwrap();
    succeeded(&ended(&system.client, &id).await.unwrap());
    for app in ["m-1", "m-2", "m-3"] {
        system.serves_on(app, "public-c").await;
    }
    assert!(witness.lowest().values().all(|low| *low >= 1));
    assert!(system.member("private-a").deployed().await.is_empty());

    let refused = Group::of("pinned", ones("p", 1)).on(&ONLY_A).pinned().deploy(&system.client).await.unwrap();
    assert!(format!("{refused:?}").contains("is cordoned since"), "the drained cluster is closed: {refused:?}");
    system.client.delete("/v2/cluster-providers/onprem/clusters/private-a/cordon").await.unwrap();
    system.opened("private-a").await;
    succeeded(&Group::of("pinned", ones("p", 1)).on(&ONLY_A).pinned().deploy(&system.client).await.unwrap());
    let plan = system.client.post("/v2/plans", Some(&wish)).await.unwrap().body;
    assert_eq!(plan["state"], "infeasible", "{plan}");
    assert!(plan["infeasible"].to_string().contains("p-1"), "{plan}");
}
scenario!(drain_empties_a_member);

/// All moves of a plan, or of the plan in the answer to a dry run.
fn waves(value: &Value) -> Vec<Value> {
    let plan = if value["plan"]["plan"].is_object() { &value["plan"]["plan"] } else { &value["plan"] };
    plan["waves"].as_array().into_iter().flatten().flat_map(|w| w.as_array().cloned().unwrap_or_default()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
