//! The commands. Help and usage say `drover`, which is what people type.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use drover::globals::Globals;
use tokio::runtime::Runtime;

use crate::autoscale::AutoscaleCommand;
use crate::bench::BenchArgs;
use crate::data::DataCommand;
use crate::demo::DemoArgs;
use crate::dev::DevCommand;
use crate::experiment::ExperimentCommand;
use crate::{autoscale, bench, data, demo, dev, experiment, groups, memguard};

/// The commands of drover that are not part of the product: benchmarks, experiments, simulators, the demo.
#[derive(Debug, Parser)]
#[command(name = "drover-lab", bin_name = "drover", version, propagate_version = true)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub globals: Globals,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Autoscaler: simulate, train offline.
    #[command(subcommand)]
    Autoscale(AutoscaleCommand),
    /// Memory guard of the nodes: simulate.
    #[command(subcommand)]
    Memguard(MemguardCommand),
    /// Group placement: what each policy would make of the clusters.
    #[command(subcommand)]
    Groups(GroupsCommand),
    /// Traces for experiments: import published originals.
    #[command(subcommand)]
    Data(DataCommand),
    /// Start clusters for trials: simulated ones, or real control planes on this machine.
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

/// `drover groups …`.
#[derive(Debug, Subcommand)]
pub enum GroupsCommand {
    /// Place an application's call graph by one policy or several on the clusters as they are, and compare. Nothing is moved.
    Place(Box<groups::PlaceArgs>),
}

/// Runs the command.
///
/// # Errors
/// Something that the command needs is missing, or the command fails.
pub fn run(cli: Cli) -> Result<ExitCode> {
    let format = cli.globals.output;
    match cli.command {
        Command::Autoscale(command) => autoscale::run(command, format).map(|()| ExitCode::SUCCESS),
        Command::Memguard(MemguardCommand::Simulate(args)) => memguard::run(&args, format),
        Command::Groups(GroupsCommand::Place(args)) => {
            Runtime::new()?.block_on(groups::place(cli.globals, *args)).map(|()| ExitCode::SUCCESS)
        }
        Command::Data(command) => data::run(&command).map(|()| ExitCode::SUCCESS),
        Command::Dev(command) => Runtime::new()?.block_on(dev::run(command, format)),
        Command::Demo(args) => Runtime::new()?.block_on(demo::run(args)),
        Command::Experiment(command) => experiment::run(command, format),
        Command::Bench(args) => bench::run(args, format),
    }
}
