//! What an experiment or a benchmark says: findings first, then tables, charts and checks.
//!
//! All of it is plain data; only [`Report::deliver`] touches files. It is no place for what is computed: that is the pure crates' work.

mod chart;
mod check;
mod deliver;
mod statistics;
mod table;

pub use chart::{Chart, Series, Shape};
pub use check::Check;
pub use deliver::Format;
pub use statistics::{Interval, percentile};
pub use table::Table;

use serde::Serialize;

/// The outcome of one experiment or benchmark.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Report {
    /// Its name, as typed on the command line.
    pub name: String,
    /// The first lines: who wins, who loses, on what.
    pub findings: Vec<String>,
    /// Printed in order, and one CSV each.
    pub tables: Vec<Table>,
    /// One SVG each.
    #[serde(skip)]
    pub charts: Vec<Chart>,
    /// What was to be reached and what was got.
    pub checks: Vec<Check>,
}

impl Report {
    /// An empty report.
    pub fn new(name: impl Into<String>) -> Self {
        Report { name: name.into(), ..Report::default() }
    }

    /// Adds a first line.
    pub fn finding(&mut self, line: impl Into<String>) -> &mut Self {
        self.findings.push(line.into());
        self
    }

    /// True when every check held.
    pub fn ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }
}
