//! Files that the autoscaler's commands read, here and in `drover-lab`.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use drover_autoscaling::qlearning::QTable;

/// Reads a Q-table.
///
/// # Errors
/// The file cannot be read or is not a Q-table.
pub fn read_table(path: &Path) -> Result<QTable> {
    serde_json::from_str(&read(path)?).with_context(|| format!("{}: not a Q-table; make one with `drover autoscale train`", path.display()))
}

/// Reads a text file; one whose name ends in `.gz` is decompressed.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path) -> Result<String> {
    let why = || format!("cannot read {}", path.display());
    if path.extension().is_none_or(|extension| extension != "gz") {
        return std::fs::read_to_string(path).with_context(why);
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).with_context(why)?).read_to_string(&mut text).with_context(why)?;
    Ok(text)
}
