//! The HPA's rules from before `behavior` existed, still in force where none is given.

use super::{LimitsState, Recommendation};
use crate::Seconds;

/// Growth in one step: twice the replicas, and 4 even from fewer.
pub(super) fn highest(current: i32) -> i32 {
    current.saturating_mul(2).max(4)
}

/// The largest proposal of the window, this one included.
pub(super) fn stabilize(state: &mut LimitsState, window: Seconds, now: Seconds, proposal: i32) -> i32 {
    let recommendations = state.recommendations.get_or_insert_default();
    recommendations.retain(|past| past.at >= now - window);
    let largest = recommendations.iter().map(|past| past.value).fold(proposal, i32::max);
    recommendations.push(Recommendation { at: now, value: proposal });
    largest
}
