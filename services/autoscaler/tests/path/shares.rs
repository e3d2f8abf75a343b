//! How activators divide pods among themselves.

use std::net::{IpAddr, SocketAddr};

use drover_autoscaler::path::activator::backends::share;

fn pods(n: u8) -> Vec<SocketAddr> {
    (0..n).map(|i| SocketAddr::from(([10, 0, 0, i], 8012))).collect()
}

#[test]
fn activators_share_every_pod_exactly_once() {
    for activators in 1..6u8 {
        let all: Vec<IpAddr> = (0..activators).map(|i| IpAddr::from([10, 1, 0, i])).collect();
        for n in 0..20u8 {
            let shares: Vec<Vec<SocketAddr>> = all.iter().map(|me| share(&pods(n), &all, *me)).collect();
            let mut dealt: Vec<SocketAddr> = shares.concat();
            dealt.sort();
            if n >= activators {
                assert_eq!(dealt, pods(n), "{n} pods, {activators} activators");
            } else {
                assert!(n == 0 || shares.iter().all(|share| share.len() == 1), "{n} pods, {activators} activators: {shares:?}");
            }
        }
    }
}

#[test]
fn unlisted_activator_uses_all_pods() {
    assert_eq!(share(&pods(3), &[IpAddr::from([10, 1, 0, 1])], IpAddr::from([10, 1, 0, 9])), pods(3));
}
