//! The program of the memory guard: the agent, its dead man's switch (`watchdog`), and `thaw`. Single-threaded, to use little memory.

use std::process::ExitCode;

use clap::Parser;
use drover_memory_guard::agent;
use drover_memory_guard::config::{Cli, Command, Common};
use drover_memory_guard::runtime::Runtime;
use drover_memory_guard::watchdog::{self, StateFiles};
use tracing_subscriber::EnvFilter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("MEMGUARD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let result = match Cli::parse().command {
        Command::Run(run) => agent::run(*run).await,
        Command::Watchdog(common) => watchdog::watch(&StateFiles::of(&common.state), common.poll, runtime(&common)).await,
        Command::Thaw(common) => match watchdog::thaw(&StateFiles::of(&common.state), runtime(&common)).await {
            Ok(0) => Ok(()),
            Ok(left) => {
                Err(anyhow::anyhow!("{left} holds are not completely undone, because the runtime does not answer; run the command again"))
            }
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn runtime(common: &Common) -> Runtime {
    Runtime::at(&common.runtime, common.deadline)
}
