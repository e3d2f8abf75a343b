//! Draws under every strategy, the exact optimum, and the experiments' figures.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, though not functions with the attribute")]

mod days;
mod optimum;
mod strategies;

use drover_lab_relocation::{Draw, NodeSize};

/// The number of random cases: `PROPTEST_CASES`, or `usual`.
fn cases(usual: u32) -> proptest::test_runner::Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual);
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}

/// Asserts that every place is allowed and no cluster holds more than it has.
fn assert_sound(draw: &Draw, size: NodeSize, places: &[Vec<Option<usize>>]) {
    let mut used = [(0, 0); 3];
    for (application, places) in draw.applications.iter().zip(places) {
        for (one, at) in application.microservices.iter().zip(places) {
            let Some(cluster) = *at else { continue };
            assert!(one.allowed.contains(cluster), "{one:?} on {cluster}");
            used[cluster] = (used[cluster].0 + one.cpu, used[cluster].1 + one.memory);
        }
    }
    assert!(used.iter().all(|(cpu, memory)| *cpu <= size.cpu && *memory <= size.memory), "{used:?} of {size:?}");
}
