//! Points at which a test can kill the agent (`MEMGUARD_DIE_AT=point`) or block a thread of it (`MEMGUARD_STALL_AT`) in a debug build. A release build has no failpoints.

/// The failpoints, in the order in which a pause and its release pass them.
pub const POINTS: [&str; 8] =
    ["before_begin", "after_begin", "mid_hold", "after_hold", "before_release", "mid_release", "after_release", "after_end"];

/// Kills this process with SIGKILL if `MEMGUARD_DIE_AT` names this point.
#[cfg(debug_assertions)]
pub fn hit(point: &str) {
    if std::env::var("MEMGUARD_DIE_AT").is_ok_and(|at| at == point) {
        tracing::warn!(point, "killing this process at the failpoint that MEMGUARD_DIE_AT names");
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Blocks this thread for ever if `MEMGUARD_STALL_AT` names this point, as a write to a cgroup file may do for long.
#[cfg(debug_assertions)]
pub fn stall(point: &str) {
    while std::env::var("MEMGUARD_STALL_AT").is_ok_and(|at| at == point) {
        std::thread::park();
    }
}

/// Does nothing in a release build.
#[cfg(not(debug_assertions))]
#[inline]
pub fn stall(_: &str) {}

/// Does nothing in a release build.
#[cfg(not(debug_assertions))]
#[inline]
pub fn hit(_: &str) {}
