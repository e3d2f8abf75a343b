//! The binary of placement.

use std::process::ExitCode;

fn main() -> ExitCode {
    drover_service::run("placement", drover_placement::start)
}
