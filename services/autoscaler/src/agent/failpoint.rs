//! Points at which a test can kill the agent: `AUTOSCALER_DIE_AT=point` in a debug build. A release build does nothing here.

/// Aborts the process if the test asked for this point.
#[cfg(debug_assertions)]
pub fn reached(point: &str) {
    if std::env::var("AUTOSCALER_DIE_AT").is_ok_and(|at| at == point) {
        std::process::abort();
    }
}

/// Does nothing in a release build.
#[cfg(not(debug_assertions))]
#[inline]
pub fn reached(_: &str) {}
