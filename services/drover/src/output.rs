//! Prints results to stdout, as tables for people or as JSON and YAML for programs, and errors to stderr.

use std::io::{IsTerminal, Write};

use anyhow::Result;
use comfy_table::{Table, presets};
use drover_api::scheduling::Amounts;
use serde::Serialize;

use crate::globals::Format;

/// The answer to a dry run, or to the wish for a plan, is that there is no room. The program ends with exit code 3.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoRoom(pub String);

type Rows = (Vec<&'static str>, Vec<Vec<String>>);

/// Prints `value` in the format asked for. `rows` makes the table, wide if it gets `true`, and is called only for tables.
///
/// # Errors
/// The value cannot be serialised, or stdout cannot be written.
pub fn print<T: Serialize>(format: Format, value: &T, rows: impl FnOnce(bool) -> Rows) -> Result<()> {
    write_stdout(&render(format, value, rows)?)
}

/// As [`print`], into a string.
///
/// # Errors
/// The value cannot be serialised.
pub fn render<T: Serialize>(format: Format, value: &T, rows: impl FnOnce(bool) -> Rows) -> Result<String> {
    Ok(match format {
        Format::Json => serde_json::to_string_pretty(&serde_json::to_value(value)?)?,
        Format::Yaml => serde_yaml::to_string(&serde_json::to_value(value)?)?,
        Format::Table | Format::Wide => {
            let (head, rows) = rows(format == Format::Wide);
            table(&head, &rows)
        }
    })
}

/// Writes to stdout. A closed pipe (`| head`) is no error.
///
/// # Errors
/// stdout cannot be written for another reason.
pub fn write_stdout(text: &str) -> Result<()> {
    match writeln!(std::io::stdout().lock(), "{}", text.trim_end()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Columns without borders, as kubectl prints them.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(head.to_vec());
    for row in rows {
        table.add_row(row.clone());
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// `600m / 512Mi`.
pub fn amounts(amounts: &Amounts) -> String {
    format!("{} / {}", cpu(amounts.cpu), memory(amounts.memory))
}

/// Milli-cores as Kubernetes writes them.
pub fn cpu(milli: i64) -> String {
    if milli % 1000 == 0 { format!("{}", milli / 1000) } else { format!("{milli}m") }
}

/// Bytes in Mi or Gi.
pub fn memory(bytes: i64) -> String {
    const MI: i64 = 1 << 20;
    const GI: i64 = 1 << 30;
    if bytes != 0 && bytes % GI == 0 { format!("{}Gi", bytes / GI) } else { format!("{}Mi", bytes / MI) }
}

/// `part` of `whole` in percent; `-` if `whole` is 0.
pub fn percent(part: i64, whole: i64) -> String {
    drover_api::words::percent(part, whole).map_or_else(|| "-".into(), |percent| format!("{percent} %"))
}

/// Prints an error with its causes and, for some error codes, what to do next.
pub fn print_error(error: &anyhow::Error) {
    let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
    eprintln!("error: {}", chain.join(": "));
    let code = if error.is::<NoRoom>() { Some("no_room") } else { crate::hub::code(error) };
    if let Some(hint) = code.and_then(hint) {
        eprintln!("  next: {hint}");
    }
}

fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "busy" => "watch or cancel that operation: `drover operation watch|cancel ID`",
        "unauthorized" => "give the token with --token-file or DROVER_TOKEN",
        "no_room" | "plan_infeasible" => "allow more clusters, let more apps move (--movable), or see `drover get clusters`",
        "world_changed" | "plan_not_proposed" => "ask for a new plan: `drover plan newcomer|drain …`",
        "has_children" | "claims_left" => "remove what is left on it first: `drover get apps`, `drover plan drain CLUSTER`",
        "kubeconfig_refused" => "inline it: `kubectl config view --raw --flatten --minify`",
        _ => return None,
    })
}

/// Whether stderr is a terminal, on which progress may redraw its line.
pub fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}
