//! How long the memory of the node lasts as it goes now: a signal for whoever places work (the hub), not for the policies.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Activity, Guard, Moment, Observation, State};

/// Memory pressure of a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pressure {
    /// In use, bytes.
    pub used: u64,
    /// All there is, bytes.
    pub capacity: u64,
    /// Growth of all containers at present, bytes per second.
    pub growth: f64,
    /// When nothing will be left if all go on as now, each up to its limit, in milliseconds; none if that never happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exhausted_in_millis: Option<u64>,
    /// Containers that are held: paused, under a lease, or at the gate. Work that waits does not show in `growth`.
    pub held: usize,
}

/// The pressure now, or none if the memory of the node is not known. `state` is that of the latest [`Guard::step`].
pub fn pressure(guard: &Guard, state: &State, seen: &Observation, now: Moment) -> Option<Pressure> {
    let node = *seen.node.fresh(now, guard.safety.max_age)?;
    let mut growers = Vec::new();
    let mut held = 0;
    for container in &seen.containers {
        if container.activity != (Activity::Running { lease: None }) {
            held += 1;
            continue;
        }
        let (Some(track), Some(&memory)) = (state.tracks.get(&container.id), container.memory.fresh(now, guard.safety.max_age)) else {
            continue;
        };
        if track.growth > 0.0 {
            let need = container.limit.map_or(f64::INFINITY, |limit| limit.saturating_sub(memory) as f64);
            growers.push((track.growth, need));
        }
    }
    let growth = growers.iter().map(|(rate, _)| rate).sum();
    let exhausted_in_millis = time_to_take(node.capacity.saturating_sub(node.used) as f64, growers).map(|span| span.as_millis() as u64);
    Some(Pressure { used: node.used, capacity: node.capacity, growth, exhausted_in_millis, held })
}

/// When growers, each with a rate and what it may still take, have taken `free` together.
fn time_to_take(mut free: f64, mut growers: Vec<(f64, f64)>) -> Option<Duration> {
    growers.sort_by(|(a_rate, a_need), (b_rate, b_need)| (a_need / a_rate).total_cmp(&(b_need / b_rate)));
    let mut rate: f64 = growers.iter().map(|(rate, _)| rate).sum();
    let mut at = 0.0;
    for (own, need) in growers {
        // Until this one is at its limit all that are left grow together.
        let span = need / own - at;
        if free <= rate * span {
            return Duration::try_from_secs_f64(at + free / rate).ok();
        }
        free -= rate * span;
        at += span;
        rate -= own;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_take_together_until_each_is_at_its_limit() {
        let seconds = |free, growers: &[(f64, f64)]| time_to_take(free, growers.to_vec()).map(|span| span.as_secs_f64());
        assert_eq!(seconds(10.0, &[]), None);
        assert_eq!(seconds(10.0, &[(1.0, 5.0)]), None, "its limit comes first");
        assert_eq!(seconds(10.0, &[(1.0, f64::INFINITY)]), Some(10.0));
        // 3 per second for 2 s, then 1 per second for the other 4.
        assert_eq!(seconds(10.0, &[(1.0, f64::INFINITY), (2.0, 4.0)]), Some(6.0));
        assert_eq!(seconds(0.0, &[(1.0, 1.0)]), Some(0.0));
    }
}
