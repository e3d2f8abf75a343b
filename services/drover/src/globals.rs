//! The options of every command, of `drover-lab`'s too.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use url::Url;

/// Options of every command.
#[derive(Debug, Args)]
pub struct Globals {
    /// Address of Drover's gateway.
    #[arg(long, global = true, env = "DROVER_URL", default_value = "http://127.0.0.1:7070", value_name = "URL")]
    pub url: Url,
    /// File with the bearer token; DROVER_TOKEN may hold the token itself.
    #[arg(long, global = true, env = "DROVER_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// PEM file with the authority of the gateway's certificate, for an https address.
    #[arg(long, global = true, env = "DROVER_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Project.
    #[arg(long, short = 'p', global = true, env = "DROVER_PROJECT", default_value = "default", value_name = "NAME")]
    pub project: String,
    /// Output format.
    #[arg(long, short = 'o', global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people.
    Table,
    /// More columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}
