//! Where a test may have the agent killed: `AUTOSCALER_DIE_AT=point` in a debug build. In a release build nothing of this exists.

/// Dies here, at once and without a word, if the test says so.
#[cfg(debug_assertions)]
pub fn reached(point: &str) {
    if std::env::var("AUTOSCALER_DIE_AT").is_ok_and(|at| at == point) {
        std::process::abort();
    }
}

/// Nothing.
#[cfg(not(debug_assertions))]
#[inline]
pub fn reached(_: &str) {}
