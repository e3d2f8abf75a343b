//! `drover`: see [`drover::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    drover::main()
}
