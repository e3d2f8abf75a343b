//! The simulator from outside, in one program. What measures the process itself is in `tests/many.rs`, a program of its own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod contract;
mod faults;
mod kubectl;
