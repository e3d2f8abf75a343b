//! Ports for programs that open them later.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// The first port that is given, and how many there are: below those that the kernel chooses by itself (from 32768 on, see
/// `ip_local_port_range`) and those of Services (from 30000 on).
const PORTS: (u32, u32) = (12_000, 18_000);

/// A port that nobody listens on. The kernel does not give it to another connection or listener before the caller's program opens it, and
/// this process does not give it twice; only another test program might.
///
/// # Panics
/// No port can be opened.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Programs that run at the same time begin at different ports.
    let begin = std::process::id().wrapping_mul(7_919);
    for _ in 0..PORTS.1 {
        let at = begin.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % PORTS.1;
        let port = u16::try_from(PORTS.0 + at).expect("it is below 65536");
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return port;
        }
    }
    panic!("none of {} ports from {} on can be opened", PORTS.1, PORTS.0);
}
