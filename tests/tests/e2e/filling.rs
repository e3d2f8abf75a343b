//! Where apps go while there is room, and what is said when there is none.

use drover_e2e::apps::App;
use drover_e2e::emco::Group;
use drover_e2e::{World, failed, scenario, succeeded};

/// `n` apps of 1 CPU called `<prefix>-1…`: four fill a member.
pub fn ones(prefix: &str, n: usize) -> Vec<App> {
    (1..=n).map(|at| App::new(&format!("{prefix}-{at}"), 1000)).collect()
}

async fn preferred_first(world: &World) {
    succeeded(&Group::of("private", ones("p", 8)).deploy(&world.client).await.unwrap());
    for cluster in world.clusters().await {
        let wanted = if cluster.provider == "onprem" { 4 } else { 0 };
        assert_eq!(cluster.apps.len(), wanted, "{} before the private ones are full", cluster.cluster);
    }
    let last = Group::new("last", App::new("last", 1000)).deploy(&world.client).await.unwrap();
    succeeded(&last);
    assert_eq!(last.plan, None, "overflow needs no plan");
    world.serves_on("last", "public-c").await;
}
scenario!(preferred_first);

async fn newcomer_with_room(world: &World) {
    succeeded(&Group::of("half", ones("h", 2)).on(&["onprem/private-a"]).deploy(&world.client).await.unwrap());
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&["onprem/private-a"]);
    let operation = newcomer.deploy(&world.client).await.unwrap();
    succeeded(&operation);
    assert_eq!(operation.plan, None);
    world.serves_on("newcomer", "private-a").await;
}
scenario!(newcomer_with_room);

async fn no_plan_changes_nothing(world: &World) {
    succeeded(&Group::of("full", ones("f", 4)).on(&["onprem/private-a"]).pinned().deploy(&world.client).await.unwrap());
    let uids = async || {
        let list = world.member("private-a").deployments().list(&Default::default()).await.unwrap();
        list.items.into_iter().map(|d| d.metadata.uid).collect::<Vec<_>>()
    };
    let before = uids().await;
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&["onprem/private-a"]);
    let operation = newcomer.deploy(&world.client).await.unwrap();
    failed(&operation, "plan_infeasible");
    let reasons = operation.reasons.join("\n");
    for wanted in ["private-a", "f-1", "f-4"] {
        assert!(reasons.contains(wanted), "a reason names {wanted}: {reasons}");
    }
    assert_eq!(uids().await, before);
    assert_eq!(world.home("newcomer").await, "", "no claim is left");
    for member in world.members() {
        assert!(!member.deployed().await.contains(&"newcomer".to_owned()));
    }
}
scenario!(no_plan_changes_nothing);

async fn a_volume_stays_where_it_is(world: &World) {
    if let Some(pv) = persistent_volume(world) {
        let volumes: kube::Api<k8s_openapi::api::core::v1::PersistentVolume> = kube::Api::all(world.member("private-a").client.clone());
        let _ = volumes.delete("data", &Default::default()).await;
        volumes.create(&Default::default(), &pv).await.unwrap();
    }
    let database = Group::new("db", App::new("database", 1000).with_volume()).on(&["onprem/private-a", "aws/public-c"]).movable(1);
    succeeded(&database.deploy(&world.client).await.unwrap());
    succeeded(&Group::of("full", ones("f", 3)).on(&["onprem/private-a"]).deploy(&world.client).await.unwrap());
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&["onprem/private-a"]);
    let operation = newcomer.deploy(&world.client).await.unwrap();
    failed(&operation, "plan_infeasible");
    let reasons = operation.reasons.join("\n");
    assert!(reasons.contains("database") && reasons.contains("volume"), "{reasons}");
    world.serves_on("database", "private-a").await;
}
scenario!(a_volume_stays_where_it_is);

/// Real members have no storage provisioner.
fn persistent_volume(world: &World) -> Option<k8s_openapi::api::core::v1::PersistentVolume> {
    world.sim().is_none().then(|| {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "data"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"},
                "claimRef": {"namespace": "default", "name": "database"},
            },
        }))
        .expect("a volume")
    })
}
