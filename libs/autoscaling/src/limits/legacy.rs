//! The HPA's rules from before `behavior` existed; they apply where no `behavior` is given.

use super::{LimitsState, Recommendation};
use crate::Seconds;

/// The most replicas that one step may reach: twice as many, or 4 if that is more.
pub(super) fn highest(current: i32) -> i32 {
    current.saturating_mul(2).max(4)
}

/// The largest proposal within the window, including this one.
pub(super) fn stabilize(state: &mut LimitsState, window: Seconds, now: Seconds, proposal: i32) -> i32 {
    let recommendations = state.recommendations.get_or_insert_default();
    recommendations.retain(|past| past.at >= now - window);
    let largest = recommendations.iter().map(|past| past.value).fold(proposal, i32::max);
    recommendations.push(Recommendation { at: now, value: proposal });
    largest
}
