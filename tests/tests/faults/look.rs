//! Checks that hold at any time, on the members themselves and on the claims that placement has committed.

use std::collections::BTreeMap;

use drover_api::scheduling::ClaimState;
use drover_e2e::System;
use drover_quantity::milli;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;

/// The millicores that a pod requests.
fn cpu(pod: &Pod) -> i64 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref()?.get("cpu"));
    requests.map(|amount| milli(&amount.0).expect("a quantity")).sum()
}

/// The millicores that the pods on each node of each member request.
pub async fn taken(system: &System) -> BTreeMap<(&'static str, String), i64> {
    let mut taken = BTreeMap::new();
    for member in system.members() {
        for pod in member.pods().list(&ListParams::default()).await.unwrap().items {
            if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
                *taken.entry((member.name, node)).or_default() += cpu(&pod);
            }
        }
    }
    taken
}

/// Asserts that the pods of no node request more than `cpu_m` millicores.
pub async fn no_node_is_over(system: &System, cpu_m: i64) {
    let taken = taken(system).await;
    assert!(taken.values().all(|taken| *taken <= cpu_m), "{taken:?}");
}

/// The two sums of the ledger for each member in millicores: present (held and leaving claims) and future (held and promised claims).
pub async fn sums(system: &System) -> anyhow::Result<BTreeMap<String, (i64, i64)>> {
    let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for claim in system.claims().await? {
        let groups = &claim.request.demand.groups;
        let takes: i64 = claim.pods.iter().map(|pods| i64::from(pods.count) * groups[pods.group].requests.cpu).sum();
        let (present, future) = sums.entry(claim.member.cluster().to_owned()).or_default();
        *present += if claim.state == ClaimState::Promised { 0 } else { takes };
        *future += if claim.state == ClaimState::Leaving { 0 } else { takes };
    }
    Ok(sums)
}
