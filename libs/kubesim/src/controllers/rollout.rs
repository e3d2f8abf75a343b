//! Moves the replicas of a Deployment from old ReplicaSets to the new one: within surge and unavailability, or all at once.

use serde_json::{Value, json};

use super::common::{Objects, generation, replicas, share};
use crate::key::Key;
use crate::object::number;
use crate::state::ClusterState;

fn recreates(deployment: &Value) -> bool {
    deployment["spec"]["strategy"]["type"] == "Recreate"
}

/// How many pods there may be beyond the wanted ones, and how many of the wanted ones may be unavailable.
pub fn limits(deployment: &Value) -> (i64, i64) {
    if recreates(deployment) {
        return (0, 0);
    }
    let (want, rolling) = (replicas(deployment), &deployment["spec"]["strategy"]["rollingUpdate"]);
    let (surge, unavailable) = (share(&rolling["maxSurge"], want, true), share(&rolling["maxUnavailable"], want, false));
    // With both zero, no rollout could make progress.
    if surge == 0 && unavailable == 0 { (0, 1.min(want)) } else { (surge, unavailable.min(want)) }
}

/// How many replicas the new set may have, given the replicas of all sets and its own.
pub fn room_for_new(deployment: &Value, total: i64, new: i64) -> i64 {
    let want = replicas(deployment);
    if recreates(deployment) {
        return want;
    }
    let room = want + limits(deployment).0 - total;
    new + room.clamp(0, (want - new).max(0))
}

/// Takes one step of the rollout.
pub fn advance(state: &mut ClusterState, deployment: &Value, new: &Objects, old: &Objects, paused: bool) {
    let want = replicas(deployment);
    let live_old: Vec<_> = old.iter().filter(|(_, set)| replicas(set) > 0).collect();
    let Some((new_key, new_set)) = new.first() else {
        // Recreate: old pods are deleted first. Paused without a new set: only the number of replicas is followed.
        match live_old.as_slice() {
            [(key, _)] if paused => scale(state, key, want),
            all if !paused => all.iter().for_each(|(key, _)| scale(state, key, 0)),
            _ => {}
        }
        return;
    };
    if live_old.is_empty() || paused {
        if live_old.is_empty() {
            scale(state, new_key, want);
        }
        return;
    }
    if recreates(deployment) {
        live_old.iter().for_each(|(key, _)| scale(state, key, 0));
        return;
    }
    let total: i64 = new.iter().chain(old).map(|(_, set)| replicas(set)).sum();
    let have = replicas(new_set);
    let next = if have > want { want } else { room_for_new(deployment, total, have) };
    scale(state, new_key, next);
    if next == have {
        shrink_old(state, deployment, new_set, &live_old, total);
    }
}

/// Shrinks old sets: first pods that are not available, then as many others as availability allows.
fn shrink_old(state: &mut ClusterState, deployment: &Value, new: &Value, old: &[&(Key, std::sync::Arc<Value>)], total: i64) {
    let available = |set: &Value| number(set, "/status/availableReplicas").unwrap_or(0);
    let least = replicas(deployment) - limits(deployment).1;
    let missing_in_new = replicas(new) - available(new);
    let mut may_go = total - least - missing_in_new;
    let mut spare = available(new) + old.iter().map(|(_, set)| available(set)).sum::<i64>() - least;
    for (key, set) in old {
        if may_go <= 0 {
            return;
        }
        let have = replicas(set);
        let unhealthy = (have - available(set)).clamp(0, may_go);
        let healthy = (have - unhealthy).min(may_go - unhealthy).min(spare.max(0)).max(0);
        scale(state, key, have - unhealthy - healthy);
        may_go -= unhealthy + healthy;
        spare -= healthy;
    }
}

fn scale(state: &mut ClusterState, key: &Key, to: i64) {
    let Some(set) = state.store.get(key).filter(|set| replicas(set) != to) else { return };
    let mut set = Value::clone(&set);
    set["spec"]["replicas"] = json!(to);
    let generation = generation(&set);
    set["metadata"]["generation"] = json!(generation + 1);
    state.put(key.clone(), set);
}
