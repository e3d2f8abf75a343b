//! Command lines that clap refuses, here and in `drover-lab`: their line of usage does not list what the environment gives.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};
use drover_service::environment::without_empty;

/// Parses the command line of this process; prints help and errors and exits as clap does.
pub fn parse<C: CommandFactory + FromArgMatches>() -> C {
    let args: Vec<OsString> = std::env::args_os().collect();
    let matches = matches(&without_empty(C::command()), &args);
    C::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// What these arguments give; prints help and errors and exits as clap does.
pub fn matches(command: &Command, args: &[OsString]) -> ArgMatches {
    command.clone().try_get_matches_from(args).unwrap_or_else(|error| without_environment(error, command, args).exit())
}

/// The error without the options that the environment gives in its line of usage: clap lists them as if they had to be written.
fn without_environment(mut error: clap::Error, command: &Command, args: &[OsString]) -> clap::Error {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return error };
    let mut usage = usage.to_string();
    for (option, value) in with_variables(command, args).into_iter().filter_map(|arg| {
        let values = arg.get_value_names()?;
        Some((format!("--{}", arg.get_long()?), values.first()?))
    }) {
        if !args.iter().any(|arg| arg.to_string_lossy().starts_with(&option)) {
            usage = usage.replace(&format!(" {option} <{value}>"), "");
        }
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(usage.into()));
    error
}

/// The options of the command and of its subcommands that these arguments name, as far as a variable may give their values.
fn with_variables<'c>(command: &'c Command, args: &[OsString]) -> Vec<&'c Arg> {
    let mut found: Vec<&Arg> = command.get_arguments().filter(|arg| arg.get_env().is_some()).collect();
    let named = command.get_subcommands().filter(|sub| args.iter().any(|arg| arg.as_os_str() == sub.get_name()));
    found.extend(named.flat_map(|sub| with_variables(sub, args)));
    found
}
