//! The process of orchestrator.

use std::process::ExitCode;

fn main() -> ExitCode {
    drover_service::run("orchestrator", drover_orchestrator::start)
}
