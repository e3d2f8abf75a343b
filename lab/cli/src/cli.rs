//! The commands, and what runs them. Help and usage say `drover`, which is what a person types.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use drover::cli::Globals;

use crate::autoscale::AutoscaleCommand;
use crate::bench::BenchArgs;
use crate::demo::DemoArgs;
use crate::dev::DevCommand;
use crate::experiment::ExperimentCommand;
use crate::{autoscale, bench, demo, dev, experiment, memguard};

/// The commands of drover that are not in the product: benchmarks, experiments, simulators, the demo.
#[derive(Debug, Parser)]
#[command(name = "drover-lab", bin_name = "drover", version, propagate_version = true)]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub globals: Globals,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The autoscaler: simulate, train offline.
    #[command(subcommand)]
    Autoscale(AutoscaleCommand),
    /// The memory guard of the nodes: simulate.
    #[command(subcommand)]
    Memguard(MemguardCommand),
    /// Clusters to try things on: simulated, or real control planes on this machine.
    #[command(subcommand)]
    Dev(DevCommand),
    /// Show a relocation from end to end on three clusters: an application that fits nowhere gets room because others move.
    Demo(DemoArgs),
    /// Run an algorithm over a paper's settings and compare the result with what was expected.
    #[command(subcommand)]
    Experiment(ExperimentCommand),
    /// Measure this build on this machine: throughput, latency, memory and CPU.
    Bench(BenchArgs),
}

/// `drover memguard …`, the command that simulates.
#[derive(Debug, Subcommand)]
pub enum MemguardCommand {
    /// Run jobs that allocate on simulated nodes, under one policy or all, and compare the outcomes.
    Simulate(Box<memguard::SimulateArgs>),
}

/// Runs the command.
///
/// # Errors
/// What it needs is missing, or it fails.
pub async fn run(cli: Cli) -> Result<ExitCode> {
    let format = cli.globals.output;
    match cli.command {
        Command::Autoscale(command) => autoscale::run(command, format).map(|()| ExitCode::SUCCESS),
        Command::Memguard(MemguardCommand::Simulate(args)) => memguard::run(&args, format),
        Command::Dev(command) => dev::run(command, format).await,
        Command::Demo(args) => demo::run(args).await,
        Command::Experiment(command) => experiment::run(command, format).await,
        Command::Bench(args) => bench::run(args, format).await,
    }
}
