//! Settings that come from variables of the environment.

use clap::{Arg, Command};

/// The command without the variables that are empty: `DROVER_HELM=` means that DROVER_HELM is not set. For clap it would be a setting without a
/// value, and an error.
pub fn without_empty(command: Command) -> Command {
    let is_empty = |arg: &Arg| arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|arg| if is_empty(&arg) { arg.env(None::<&'static str>) } else { arg });
    command.mut_subcommands(without_empty)
}
