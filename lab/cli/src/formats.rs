//! In which formats reports are printed.

use anyhow::{Result, bail};
use drover::globals::Format;

/// How a report is printed with this format. Long commands ask before they begin.
///
/// # Errors
/// Reports are not printed in it.
pub fn printed(format: Format) -> Result<drover_report::Format> {
    match format {
        Format::Table => Ok(drover_report::Format::Text),
        Format::Json => Ok(drover_report::Format::Json),
        Format::Wide | Format::Yaml => {
            bail!("a report is printed as `-o table` or `-o json` only; --out DIR writes its tables as CSV files")
        }
    }
}
