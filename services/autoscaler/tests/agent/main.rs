//! The agent against a real API server with simulated pods and metrics-server, where `DROVER_CONTRACT_KUBECONFIG` names one.
#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

mod callers;
mod crd;
mod faults;
mod follow;
mod hpa;
mod support;
mod transfer;
mod two;
