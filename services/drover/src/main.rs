//! `drover`: see [`drover::cli`].

use std::process::ExitCode;

/// Work goes from thread to thread here, and glibc's allocator makes them wait for each other: a tenth of a decision's CPU.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    drover::main()
}
