//! Runs resource-synchronizer.

use std::process::ExitCode;

fn main() -> ExitCode {
    drover_service::run("resource-synchronizer", drover_resource_synchronizer::start)
}
