//! The process. It runs on one thread, which keeps its memory small.

use std::process::ExitCode;

use clap::Parser;
use drover_autoscaler::agent;
use drover_autoscaler::config::{Cli, Command};
use drover_autoscaler::path::{activator, demo, queue_proxy};
use tracing_subscriber::EnvFilter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // A failing watch is logged once by the code that follows it; kube_runtime would log every attempt.
    let filter = EnvFilter::try_from_env("AUTOSCALER_LOG").unwrap_or_else(|_| EnvFilter::new("info,kube_runtime::watcher=error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let result = match Cli::parse().command {
        Command::Agent(settings) => agent::run(*settings).await,
        Command::QueueProxy(settings) => queue_proxy::run(settings).await,
        Command::Activator(settings) => activator::run(settings).await,
        Command::DemoApp(settings) => demo::app::run(settings).await,
        Command::DemoLoad(settings) => demo::load::run(settings).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
