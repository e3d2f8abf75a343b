//! The binary of cluster-manager.

use std::process::ExitCode;

fn main() -> ExitCode {
    drover_service::run("cluster-manager", drover_cluster_manager::start)
}
