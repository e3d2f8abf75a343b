//! Runs the gateway.

use std::process::ExitCode;

fn main() -> ExitCode {
    drover_service::run("gateway", drover_gateway::start)
}
