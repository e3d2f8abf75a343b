//! What the paper's text and its published code do with an application for which there is no room.
//!
//! Both look at one microservice after the other, and compare sums of a cluster; here a cluster has one node, so sums are exact. Candidates
//! and their order come from the product (`policy_test`); the difference is how many are taken, and where they go.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_scheduling::{Amounts, AppRequest, Claim, ClaimState, LedgerChange, MemberKey, Policy, binding_id, policy_test};
use uuid::Uuid;

use crate::draw::CLUSTERS;
use crate::fleet::{dig, key};
use crate::hub::{Hub, Planned};

/// Limits of a pod, in percent of its requests. The draw has none; the published code counts them as what a victim frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits(pub i64);

/// A pod that waits for room on a cluster: in Kubernetes its state is Pending.
#[derive(Clone, Debug)]
pub struct Pending {
    dig: drover_scheduling::DigRef,
    request: Arc<AppRequest>,
    member: MemberKey,
}

/// The text: candidates in the order of the policy until there is room, each to the most preferred other cluster that has room. The first of
/// the newcomer's clusters on which this is possible is used; the text does not say which one. If a candidate of the prefix has no
/// destination, there is no plan for the cluster.
pub fn paper_text(hub: &mut Hub<'_>, arrival: usize, apps: &[AppRequest], policy: &Policy) -> Planned {
    let mut trial = hub.clone();
    let mut moves = 0;
    for app in apps {
        if trial.place(arrival, std::slice::from_ref(app), false) {
            continue;
        }
        let made = allowed(&trial, app).into_iter().find_map(|wanted| prefix_with_destinations(&trial, arrival, app, &wanted, policy));
        let Some((next, moved)) = made else { return Planned::default() };
        (trial, moves) = (next, moves + moved);
        trial.observe();
    }
    *hub = trial;
    Planned { feasible: true, moves, cut_short: false }
}

/// The hub after the moves that make room for one microservice on `wanted`, and their number.
fn prefix_with_destinations<'d>(
    hub: &Hub<'d>,
    arrival: usize,
    app: &AppRequest,
    wanted: &MemberKey,
    policy: &Policy,
) -> Option<(Hub<'d>, usize)> {
    let mut hub = hub.clone();
    let operation = hub.operation();
    let mut room = free(&hub, wanted);
    let mut victims = Vec::new();
    for claim in candidates(&hub, arrival, wanted, policy) {
        if room.fits(&needs(app)) {
            break;
        }
        room.add(&needs(&claim.request), 1);
        victims.push(claim);
    }
    for victim in &victims {
        let moved = allowed(&hub, &victim.request).into_iter().filter(|to| to != wanted).any(|to| {
            let leave = LedgerChange::Leave { claim: victim.id, member: wanted.clone() };
            hub.transact(operation, vec![leave, take(operation, &victim.dig, &victim.request, &to)])
        });
        if !moved {
            return None;
        }
    }
    hub.release_leaving(operation);
    let newcomer = take(operation, &dig(arrival), &Arc::new(app.clone()), wanted);
    hub.transact(operation, vec![newcomer]).then_some((hub, victims.len()))
}

/// The published code: candidates in the order of the policy's first algorithm until their limits reach what the newcomer requests; what is
/// free is not counted. Each goes to its most preferred other cluster, whether it has room or not. The newcomer goes to its most preferred
/// cluster at once. Pods without room wait there, and start when there is room.
pub fn published(
    hub: &mut Hub<'_>,
    queue: &mut Vec<Pending>,
    arrival: usize,
    apps: &[AppRequest],
    policy: &Policy,
    limits: Limits,
) -> Planned {
    let first = Policy { algorithms: policy.algorithms.iter().take(1).cloned().collect(), ..policy.clone() };
    let (mut trial, mut waiting) = (hub.clone(), queue.clone());
    let mut moves = 0;
    for app in apps {
        if trial.place(arrival, std::slice::from_ref(app), false) {
            continue;
        }
        let operation = trial.operation();
        let Some(wanted) = allowed(&trial, app).into_iter().next() else { return Planned::default() };
        let mut freed = Amounts::default();
        let mut victims = Vec::new();
        for claim in candidates(&trial, arrival, &wanted, &first) {
            if freed.fits(&needs(app)) {
                break;
            }
            let requests = needs(&claim.request);
            freed.add(&Amounts { cpu: requests.cpu * limits.0 / 100, memory: requests.memory * limits.0 / 100, ..requests }, 1);
            victims.push(claim);
        }
        if !freed.fits(&needs(app)) {
            return Planned::default();
        }
        moves += victims.len();
        waiting.push(Pending { dig: dig(arrival), request: Arc::new(app.clone()), member: wanted.clone() });
        for victim in victims {
            trial.transact(operation, vec![LedgerChange::Release { claim: victim.id }]);
            let to = allowed(&trial, &victim.request).into_iter().find(|to| *to != wanted);
            waiting.extend(to.map(|member| Pending { dig: (*victim.dig).clone(), request: Arc::clone(&victim.request), member }));
        }
        trial.observe();
        start_what_fits(&mut trial, &mut waiting);
        trial.observe();
    }
    (*hub, *queue) = (trial, waiting);
    Planned { feasible: true, moves, cut_short: false }
}

/// Starts pods for which there is room, those that wait longest first.
fn start_what_fits(hub: &mut Hub<'_>, queue: &mut Vec<Pending>) {
    let operation = hub.operation();
    queue.retain(|pod| !hub.transact(operation, vec![take(operation, &pod.dig, &pod.request, &pod.member)]));
}

/// The apps on `member` that may move, in the order of the policy.
fn candidates(hub: &Hub<'_>, arrival: usize, member: &MemberKey, policy: &Policy) -> Vec<Arc<Claim>> {
    let ordered = policy_test(&hub.ledger, member, policy, hub.movability(), &BTreeMap::new());
    let may_move = ordered.into_iter().filter(|candidate| candidate.why_not.is_none() && candidate.dig.id != dig(arrival).id);
    may_move.filter_map(|candidate| hub.ledger.claim(&candidate.claim).cloned()).collect()
}

/// The clusters on which an app may run, the most preferred provider first, then the one with the most room left, then by name.
fn allowed(hub: &Hub<'_>, app: &AppRequest) -> Vec<MemberKey> {
    let label = |element: &drover_scheduling::Element| element.cluster_label.clone().unwrap_or_default();
    let labels: Vec<String> = app.terms.intent.any_of.iter().map(label).collect();
    let mut rooms: Vec<_> = (0..CLUSTERS.len())
        .filter(|cluster| labels.iter().any(|label| label.contains(CLUSTERS[*cluster])))
        .filter_map(|cluster| hub.ledger.room(&key(cluster)))
        .collect();
    let share = |room: &drover_scheduling::MemberRoom| room.share_with(&needs(app));
    rooms.sort_by(|a, b| a.priority().cmp(&b.priority()).then_with(|| share(a).total_cmp(&share(b))).then_with(|| a.key.cmp(&b.key)));
    rooms.into_iter().map(|room| room.key.clone()).collect()
}

/// What is free on the node of a cluster.
fn free(hub: &Hub<'_>, member: &MemberKey) -> Amounts {
    hub.ledger.room(member).and_then(|room| room.free().now.first().cloned()).unwrap_or_default()
}

/// The request of an app, which is one pod.
fn needs(app: &AppRequest) -> Amounts {
    app.demand.groups.first().map(|group| group.requests.clone()).unwrap_or_default()
}

fn take(operation: Uuid, dig: &drover_scheduling::DigRef, request: &Arc<AppRequest>, member: &MemberKey) -> LedgerChange {
    LedgerChange::Take {
        claim: binding_id(operation, &format!("{}/{}", dig.name, request.app), member),
        dig: dig.clone(),
        request: Arc::clone(request),
        member: member.clone(),
        state: Some(ClaimState::Held),
    }
}
