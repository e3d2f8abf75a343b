//! `drover-lab`: see [`drover_lab`].

use std::process::ExitCode;

use clap::Parser;
use drover_lab::cli;

/// As in `drover`: some measures run services in this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    cli::run(cli::Cli::parse()).await.unwrap_or_else(|error| {
        drover::output::print_error(&error);
        ExitCode::FAILURE
    })
}
