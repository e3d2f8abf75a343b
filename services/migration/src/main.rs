//! The program `drover-migration`.

use std::process::ExitCode;

fn main() -> ExitCode {
    drover_service::run("migration", drover_migration::start)
}
