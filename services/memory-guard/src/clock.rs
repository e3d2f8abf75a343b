//! The node's clock: `CLOCK_BOOTTIME`, which never goes back and keeps running while the machine sleeps. Wall-clock time is only
//! displayed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use drover_memguard::Moment;
use nix::time::{ClockId, clock_gettime};

/// The present moment.
pub fn now() -> Moment {
    // The clock exists on every Linux that has cgroups. If it could not be read, zero would only make every reading look outdated.
    let elapsed = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
    Moment(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// The moment that corresponds to a wall-clock time in nanoseconds since 1970, as the runtime reports it; never later than now.
pub fn of_wall(nanos: i64) -> Moment {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let then = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
    now() - wall.saturating_sub(then)
}

/// The wall-clock time that corresponds to a moment.
pub fn to_wall(moment: Moment) -> SystemTime {
    SystemTime::now() - now().since(moment)
}

/// Identity of this boot; empty if it cannot be read. What was held before a reboot is not held any more.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}
