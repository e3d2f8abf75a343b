//! `drover`: see [`drover::cli`].

use std::process::ExitCode;

/// Memory is often freed by another thread than the one that allocated it. Threads wait for each other in glibc's allocator then, which
/// took a tenth of the CPU time of a placement decision.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    drover::main()
}
