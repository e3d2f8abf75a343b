//! Tests of the memory guard: on a real containerd with real cgroups and the real OOM killer where the machine has them (root, Debian's
//! containerd and runc: `deploy/setup.sh real`), and on a fake runtime where errors have to happen on demand.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;
mod crash;
mod errors;
mod event_gate;
mod heads;
mod kubelet;
mod leases;
mod nri_gate;
mod oom;
mod support;
mod trees;
