//! The agent with a real API server, simulated pods and metrics-server; skipped unless `DROVER_CONTRACT_KUBECONFIG` names a cluster.
#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

mod callers;
mod crd;
mod down;
mod fallback;
mod faults;
mod follow;
mod hpa;
mod lease;
mod moved;
mod off;
mod prometheus;
mod rights;
mod stale;
mod support;
mod tasks;
mod transfer;
mod two;
mod webhook;
mod webhook_undo;
