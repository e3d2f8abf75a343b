//! The agent against a real API server with simulated pods and metrics-server, where `DROVER_CONTRACT_KUBECONFIG` names one.
#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

mod callers;
mod crd;
mod down;
mod fallback;
mod faults;
mod follow;
mod hpa;
mod off;
mod prometheus;
mod support;
mod transfer;
mod two;
