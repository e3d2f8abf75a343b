//! What holds at any time, looked at from outside: in the members themselves, and in what placement has committed.

use std::collections::BTreeMap;

use drover_api::scheduling::ClaimState;
use drover_e2e::World;
use drover_quantity::milli;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;

/// Milli-cores that a pod requests.
fn cpu(pod: &Pod) -> i64 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref()?.get("cpu"));
    requests.map(|amount| milli(&amount.0).expect("a quantity")).sum()
}

/// Milli-cores requested on each node of each member, by the pods that are there.
pub async fn taken(world: &World) -> BTreeMap<(&'static str, String), i64> {
    let mut taken = BTreeMap::new();
    for member in world.members() {
        for pod in member.pods().list(&ListParams::default()).await.unwrap().items {
            if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
                *taken.entry((member.name, node)).or_default() += cpu(&pod);
            }
        }
    }
    taken
}

/// No node is asked for more than `cpu_m`.
pub async fn no_node_is_over(world: &World, cpu_m: i64) {
    let taken = taken(world).await;
    assert!(taken.values().all(|taken| *taken <= cpu_m), "{taken:?}");
}

/// The two sums of the ledger in milli-cores for each member, as claims have it: present (held, leaving), future (held, promised).
pub async fn sums(world: &World) -> anyhow::Result<BTreeMap<String, (i64, i64)>> {
    let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for claim in world.claims().await? {
        let groups = &claim.request.demand.groups;
        let takes: i64 = claim.pods.iter().map(|pods| i64::from(pods.count) * groups[pods.group].requests.cpu).sum();
        let (present, future) = sums.entry(claim.member.cluster().to_owned()).or_default();
        *present += if claim.state == ClaimState::Promised { 0 } else { takes };
        *future += if claim.state == ClaimState::Leaving { 0 } else { takes };
    }
    Ok(sums)
}
