//! In which formats reports are printed.

use anyhow::{Result, ensure};
use drover::globals::Format;

/// Refuses a format in which reports are not printed, before anything is measured.
///
/// # Errors
/// It is neither `table` nor `json`.
pub fn can_print(format: Format) -> Result<()> {
    let known = matches!(format, Format::Table | Format::Json);
    ensure!(known, "a report is printed as `-o table` or `-o json` only; --out DIR writes its tables as CSV files");
    Ok(())
}
