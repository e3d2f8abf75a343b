//! The report of an experiment or a benchmark: findings first, then tables, charts and checks, and last what a paper says that could not be
//! repeated.
//!
//! All of it is plain data, and only [`Report::deliver`] does I/O. Nothing is computed here; that is the task of the pure crates.

mod chart;
mod check;
mod deliver;
mod statistics;
mod table;

pub use chart::{Chart, Series, Shape};
pub use check::Check;
pub use deliver::Format;
pub use statistics::{Interval, Slope, percentile};
pub use table::Table;

use serde::Serialize;

/// The results of one experiment or benchmark.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Report {
    /// The name of the experiment or benchmark on the command line.
    pub name: String,
    /// The first lines: the most important results, in sentences.
    pub findings: Vec<String>,
    /// Hardware, build, load and how much was measured: a finding says them, and a line below each chart. Empty: nothing stands below charts.
    #[serde(skip)]
    pub conditions: String,
    /// Each is printed, and written as a CSV file.
    pub tables: Vec<Table>,
    /// Each is written as an SVG file.
    #[serde(skip)]
    pub charts: Vec<Chart>,
    /// Targets with the measured results.
    pub checks: Vec<Check>,
    /// What a paper says, with what this run found. A difference is a finding about the paper and no fault of the software, so it fails
    /// nothing. Also written as `paper.csv`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<Check>,
}

impl Report {
    /// An empty report with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Report { name: name.into(), ..Report::default() }
    }

    /// Adds a finding.
    pub fn finding(&mut self, line: impl Into<String>) -> &mut Self {
        self.findings.push(line.into());
        self
    }

    /// Adds a finding that says under which conditions this was measured. It also stands below each chart.
    pub fn under(&mut self, conditions: impl Into<String>) -> &mut Self {
        self.conditions = conditions.into();
        self.finding(self.conditions.clone())
    }

    /// Whether every check holds.
    pub fn ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }
}
