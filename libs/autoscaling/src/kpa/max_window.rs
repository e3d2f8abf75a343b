//! The largest value of the last slots, kept as descending maxima (Knative `aggregation/max`); each write costs O(1) on average.

/// Records a value in a slot and returns the largest value of the last `size` slots, including this one.
/// Within one slot the larger value is kept.
pub fn record(window: &mut Vec<(i64, i32)>, size: i64, slot: i64, value: i32) -> i32 {
    let smaller = window.iter().rev().take_while(|&&(_, old)| old <= value).count();
    window.truncate(window.len() - smaller);
    let old = window.iter().take_while(|&&(at, _)| at <= slot - size).count();
    window.drain(..old);
    // A larger value of the same slot hides this one for as long as it would count.
    if window.last().is_none_or(|&(at, _)| at != slot) {
        window.push((slot, value));
    }
    window.first().map_or(value, |&(_, largest)| largest)
}
