//! Runs the data path of routes.

use std::process::ExitCode;

fn main() -> ExitCode {
    drover_service::run("traffic", drover_traffic::start)
}
