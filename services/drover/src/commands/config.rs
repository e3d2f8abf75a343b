//! `drover config explain`: each setting of a service, its value, the source of the value, and the meaning.
//!
//! Uses the services' own parsers, so the answer is always what the service itself would read.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::{Args, Command, Subcommand, ValueEnum};
use drover_service::config::{self, Explained};
use drover_service::environment::without_empty;

use super::up::UpArgs;
use crate::globals::Format;
use crate::output;

/// `drover config …`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print each setting with its value, the source of the value (flag, environment, file, default) and its meaning.
    #[command(after_help = "Examples:\n  drover config explain\n  drover config explain orchestrator --config /etc/drover.toml")]
    Explain {
        /// Program whose settings are explained.
        #[arg(value_enum, default_value_t = Program::Up)]
        program: Program,
        /// TOML file that the program would read.
        #[arg(long, env = "DROVER_CONFIG", value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// Programs that have settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    Up,
    ClusterManager,
    Orchestrator,
    Placement,
    Migration,
    ResourceSynchronizer,
    Gateway,
}

impl Program {
    fn command(self) -> Command {
        match self {
            Self::Up => without_empty(UpArgs::augment_args(Command::new("up"))),
            Self::ClusterManager => config::command::<drover_cluster_manager::Config>("cluster-manager"),
            Self::Orchestrator => config::command::<drover_orchestrator::Config>("orchestrator"),
            Self::Placement => config::command::<drover_placement::Config>("placement"),
            Self::Migration => config::command::<drover_migration::Config>("migration"),
            Self::ResourceSynchronizer => config::command::<drover_resource_synchronizer::Config>("resource-synchronizer"),
            Self::Gateway => config::command::<drover_gateway::Config>("gateway"),
        }
    }
}

/// Prints each setting with its value, source and meaning.
///
/// # Errors
/// The file cannot be read, is not TOML or has an unknown key, or a value is invalid.
pub fn run(command: ConfigCommand, format: Format) -> Result<()> {
    let ConfigCommand::Explain { program, config } = command;
    let explained = explain(program, config)?;
    output::print(format, &explained, |_| {
        let row = |setting: &Explained| {
            let source = format!("{:?}", setting.source).to_lowercase();
            let value = setting.value.clone().unwrap_or_else(|| "-".into());
            let first = setting.help.lines().next().unwrap_or_default().to_owned();
            vec![setting.name.clone(), value, source, setting.env.clone().unwrap_or_default(), first]
        };
        (vec!["SETTING", "VALUE", "FROM", "ENVIRONMENT", "MEANING"], explained.iter().map(row).collect())
    })
}

fn explain(program: Program, file: Option<PathBuf>) -> Result<Vec<Explained>> {
    let mut args: Vec<OsString> = vec!["drover".into()];
    args.extend(file.into_iter().flat_map(|file| [OsString::from("--config"), file.into()]));
    // A required setting without a value is shown without one.
    let command = program.command().mut_args(|arg| arg.required(false));
    let (command, from_file) = config::with_file(command, &args)?;
    let matches = command.clone().try_get_matches_from(&args).map_err(|error| anyhow!("{}", error.render().to_string().trim_end()))?;
    Ok(config::explain(&command, &matches, &from_file))
}

#[cfg(test)]
mod tests {
    use drover_service::config::Source;

    use super::*;

    #[test]
    fn explain_gives_a_meaning_for_every_setting_of_every_program() {
        for program in Program::value_variants() {
            let explained = explain(*program, None).unwrap();
            assert!(explained.iter().any(|setting| setting.name == "listen"), "{program:?}");
            let mute: Vec<&str> = explained.iter().filter(|setting| setting.help.is_empty()).map(|setting| setting.name.as_str()).collect();
            assert!(mute.is_empty(), "{program:?}: no meaning is given of {mute:?}");
        }
    }

    #[test]
    fn explain_reads_the_file_and_refuses_unknown_keys() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("drover.toml");
        std::fs::write(&file, "ready-seconds = 7\n").unwrap();
        let explained = explain(Program::Orchestrator, Some(file.clone())).unwrap();
        let ready = explained.iter().find(|setting| setting.name == "ready-seconds").unwrap();
        assert_eq!((ready.value.as_deref(), ready.source), (Some("7"), Source::File));
        std::fs::write(&file, "listen = \"127.0.0.1:8\"\n").unwrap();
        let explained = explain(Program::Up, Some(file.clone())).unwrap();
        let listen = explained.iter().find(|setting| setting.name == "listen").unwrap();
        assert_eq!((listen.value.as_deref(), listen.source), (Some("127.0.0.1:8"), Source::File));
        std::fs::write(&file, "redy-seconds = 7\n").unwrap();
        assert!(explain(Program::Orchestrator, Some(file)).unwrap_err().to_string().contains("redy-seconds"));
    }
}
