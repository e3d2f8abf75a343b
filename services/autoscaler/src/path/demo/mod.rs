//! A small app of a known capacity and an open-loop load for it, used by the how-to, experiments and tests. Neither is part of the path.

pub mod app;
pub mod load;
pub mod replay;

use std::time::{SystemTime, UNIX_EPOCH};

/// The current time in seconds since 1970.
fn unix() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
