//! The memory guard, tried on what it is made for: a real containerd with real cgroups and the real OOM killer where the machine offers
//! them (root, Debian's containerd and runc: `deploy/setup.sh real`), and on a fake runtime where things have to go wrong on demand.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;
mod crash;
mod errors;
mod gate;
mod kubelet;
mod leases;
mod nri;
mod oom;
mod support;
mod trees;
