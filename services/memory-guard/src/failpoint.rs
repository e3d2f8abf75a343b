//! Where a test may have the agent killed: `MEMGUARD_DIE_AT=point` in a debug build. In a release build nothing of this exists.

/// The points, in the order in which a pause and its end pass them.
pub const POINTS: [&str; 8] =
    ["before_begin", "after_begin", "mid_hold", "after_hold", "before_release", "mid_release", "after_release", "after_end"];

/// Dies here, at once and without a word, if the test says so.
#[cfg(debug_assertions)]
pub fn hit(point: &str) {
    if std::env::var("MEMGUARD_DIE_AT").is_ok_and(|at| at == point) {
        tracing::warn!(point, "dying here, as told");
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Nothing.
#[cfg(not(debug_assertions))]
#[inline]
pub fn hit(_: &str) {}
