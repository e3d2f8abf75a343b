//! The demand of a copy whose workloads somebody else has scaled.

use drover_api::bindings::ScaledWorkload;
use drover_api::scheduling::{Demand, PodGroup};

/// The approved demand with as many replicas as run.
pub fn following(approved: &Demand, scaled: &[ScaledWorkload]) -> Demand {
    let replicas = |group: &PodGroup| {
        let found = scaled.iter().find(|workload| workload.workload() == group.workload)?;
        Some(u32::try_from(found.replicas).unwrap_or(0).max(1))
    };
    let mut demand = approved.clone();
    for group in demand.groups.iter_mut().filter(|group| !group.per_node) {
        if let Some(replicas) = replicas(group) {
            // As much more as before, in proportion.
            let surge = u64::from(group.surge) * u64::from(replicas);
            group.surge = u32::try_from(surge.div_ceil(u64::from(group.replicas.max(1)))).unwrap_or(u32::MAX).min(u32::MAX - replicas);
            group.replicas = replicas;
        }
    }
    demand
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(replicas: u32, surge: u32) -> Demand {
        let group = |workload: &str, per_node| PodGroup { workload: workload.into(), replicas, surge, per_node, ..PodGroup::default() };
        Demand {
            groups: vec![group("Deployment/web", false), group("Deployment/db", false), group("DaemonSet/web", true)],
            ..Demand::default()
        }
    }

    fn scaled(replicas: i32) -> Vec<ScaledWorkload> {
        vec![ScaledWorkload { kind: "Deployment".into(), name: "web".into(), replicas, by: "hpa".into() }]
    }

    #[test]
    fn following_changes_only_what_was_scaled() {
        let found = following(&demand(2, 1), &scaled(7));
        assert_eq!((found.groups[0].replicas, found.groups[0].surge), (7, 4));
        assert_eq!(found.groups[1..], demand(2, 1).groups[1..]);
        assert_eq!(following(&demand(2, 1), &[]), demand(2, 1));
    }

    #[test]
    fn workload_at_zero_keeps_room_for_one_pod() {
        for replicas in [0, -1, 1] {
            assert_eq!(following(&demand(4, 1), &scaled(replicas)).groups[0].replicas, 1);
        }
        assert_eq!(following(&demand(4, u32::MAX), &scaled(i32::MAX)).groups[0].replicas, i32::MAX as u32);
    }
}
