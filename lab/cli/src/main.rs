//! `drover-lab`: see [`drover_lab`].

use std::process::ExitCode;

use drover::usage;
use drover_lab::cli;

/// The same allocator as in `drover`, because some benchmarks run services in this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(usage::parse()).unwrap_or_else(|error| {
        drover::output::print_error(&error);
        ExitCode::FAILURE
    })
}
