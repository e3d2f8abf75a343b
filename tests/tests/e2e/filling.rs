//! Where apps are placed while there is room, and what is reported when there is none.

use drover_e2e::apps::App;
use drover_e2e::emco::Group;
use drover_e2e::{System, failed, scenario, succeeded};

/// `n` apps of 1 CPU each with the names `<prefix>-1`, `<prefix>-2` and so on. Four of them fill a member.
pub fn ones(prefix: &str, n: usize) -> Vec<App> {
    (1..=n).map(|at| App::new(&format!("{prefix}-{at}"), 1000)).collect()
}

async fn preferred_provider_is_filled_first(system: &System) {
    succeeded(&Group::of("private", ones("p", 8)).deploy(&system.client).await.unwrap());
    for cluster in system.clusters().await {
        let wanted = if cluster.provider == "onprem" { 4 } else { 0 };
        assert_eq!(cluster.apps.len(), wanted, "{}: the private members are filled first", cluster.cluster);
    }
    let last = Group::new("last", App::new("last", 1000)).deploy(&system.client).await.unwrap();
    succeeded(&last);
    assert_eq!(last.plan, None, "overflow needs no plan");
    system.serves_on("last", "public-c").await;
}
scenario!(preferred_provider_is_filled_first);

async fn newcomer_with_room_needs_no_plan(system: &System) {
    succeeded(&Group::of("half", ones("h", 2)).on(&["onprem/private-a"]).deploy(&system.client).await.unwrap());
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&["onprem/private-a"]);
    let operation = newcomer.deploy(&system.client).await.unwrap();
    succeeded(&operation);
    assert_eq!(operation.plan, None);
    system.serves_on("newcomer", "private-a").await;
}
scenario!(newcomer_with_room_needs_no_plan);

async fn infeasible_newcomer_changes_nothing(system: &System) {
    succeeded(&Group::of("full", ones("f", 4)).on(&["onprem/private-a"]).pinned().deploy(&system.client).await.unwrap());
    let uids = async || {
        let list = system.member("private-a").deployments().list(&Default::default()).await.unwrap();
        list.items.into_iter().map(|d| d.metadata.uid).collect::<Vec<_>>()
    };
    let before = uids().await;
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&["onprem/private-a"]);
    let operation = newcomer.deploy(&system.client).await.unwrap();
    failed(&operation, "plan_infeasible");
    let reasons = operation.reasons.join("\n");
    for wanted in ["private-a", "f-1", "f-4"] {
        assert!(reasons.contains(wanted), "a reason names {wanted}: {reasons}");
    }
    assert_eq!(uids().await, before);
    assert_eq!(system.home("newcomer").await, "", "no claim is left");
    for member in system.members() {
        assert!(!member.deployed().await.contains(&"newcomer".to_owned()));
    }
}
scenario!(infeasible_newcomer_changes_nothing);

async fn app_with_a_volume_is_not_moved(system: &System) {
    if let Some(pv) = persistent_volume(system) {
        let volumes: kube::Api<k8s_openapi::api::core::v1::PersistentVolume> = kube::Api::all(system.member("private-a").client.clone());
        let _ = volumes.delete("data", &Default::default()).await;
        volumes.create(&Default::default(), &pv).await.unwrap();
    }
    let database = Group::new("db", App::new("database", 1000).with_volume()).on(&["onprem/private-a", "aws/public-c"]).movable(1);
    succeeded(&database.deploy(&system.client).await.unwrap());
    succeeded(&Group::of("full", ones("f", 3)).on(&["onprem/private-a"]).deploy(&system.client).await.unwrap());
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&["onprem/private-a"]);
    let operation = newcomer.deploy(&system.client).await.unwrap();
    failed(&operation, "plan_infeasible");
    let reasons = operation.reasons.join("\n");
    assert!(reasons.contains("database") && reasons.contains("volume"), "{reasons}");
    system.serves_on("database", "private-a").await;
}
scenario!(app_with_a_volume_is_not_moved);

/// Real members have no storage provisioner.
fn persistent_volume(system: &System) -> Option<k8s_openapi::api::core::v1::PersistentVolume> {
    system.sim().is_none().then(|| {
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
