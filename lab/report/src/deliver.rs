//! The only place with I/O: prints a report and writes its files.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::{Report, Table};

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As text for people.
    Text,
    /// As one JSON object with `findings`, `tables`, `checks` and, if a paper is repeated, `statements`.
    Json,
}

impl Report {
    /// Prints the report to standard output, then writes it as JSON, one CSV file per table and one SVG file per chart into `out`, which is
    /// created if necessary. Printed first: a directory that cannot be written must not lose what took hours.
    ///
    /// # Errors
    /// When a file or standard output cannot be written. A reader that closed the pipe (`| head`) is no error.
    pub fn deliver(&self, out: Option<&Path>, format: Format) -> Result<()> {
        let text = match format {
            Format::Json => serde_json::to_string_pretty(self)?,
            Format::Text => self.text(),
        };
        print(&text)?;
        let Some(dir) = out else { return Ok(()) };
        let files = self.write(dir)?;
        if format == Format::Text { print(&format!("\n{files} files in {}", dir.display())) } else { Ok(()) }
    }

    /// The report as text: findings, tables, checks and how many of them hold, and what of the paper could not be repeated.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        if !self.findings.is_empty() {
            parts.push(self.findings.join("\n"));
        }
        parts.extend(self.tables.iter().map(|table| format!("{}\n{}", table.name, table.text())));
        if !self.checks.is_empty() {
            let mut table = Table::new("checks", ["", "check", "to reach", "got"]);
            for check in &self.checks {
                table.row([if check.ok { "✔" } else { "✘" }, &check.name, &check.reach, &check.got]);
            }
            parts.push(table.text());
            let short = self.checks.iter().filter(|check| !check.ok).count();
            parts.push(format!("{} of {} checks hold", self.checks.len() - short, self.checks.len()));
        }
        parts.extend(self.about_the_paper());
        parts.join("\n\n")
    }

    /// How many statements of the paper were repeated, and a table of those that were not.
    fn about_the_paper(&self) -> Vec<String> {
        if self.statements.is_empty() {
            return Vec::new();
        }
        let mut not = Table::new("", ["not repeated", "the paper says", "found here"]);
        for statement in self.statements.iter().filter(|statement| !statement.ok) {
            not.row([&statement.name, &statement.reach, &statement.got]);
        }
        let (all, repeated) = (self.statements.len(), self.statements.len() - not.rows.len());
        let count = format!("About the paper, not about this software: {repeated} of {all} statements could be repeated.");
        if not.rows.is_empty() { vec![count] } else { vec![count, not.text()] }
    }

    /// All statements of the paper as a table.
    fn statements(&self) -> Option<Table> {
        let mut table = Table::new("paper", ["statement", "expected", "found", "repeated"]);
        for one in &self.statements {
            table.row([&*one.name, &one.reach, &one.got, if one.ok { "yes" } else { "no" }]);
        }
        (!table.rows.is_empty()).then_some(table)
    }

    fn write(&self, dir: &Path) -> Result<usize> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let statements = self.statements();
        for table in self.tables.iter().chain(&statements) {
            let path = dir.join(format!("{}.csv", table.name));
            let write = || -> Result<(), csv::Error> {
                let mut csv = csv::Writer::from_path(&path)?;
                csv.write_record(&table.columns)?;
                table.rows.iter().try_for_each(|row| csv.write_record(row))?;
                Ok(csv.flush()?)
            };
            write().with_context(|| format!("cannot write {}", path.display()))?;
        }
        for chart in &self.charts {
            let path = dir.join(format!("{}.svg", chart.name));
            std::fs::write(&path, chart.svg(&self.conditions)?).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let path = dir.join(format!("{}.json", self.name));
        std::fs::write(&path, serde_json::to_string_pretty(self)?).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(self.tables.len() + usize::from(statements.is_some()) + self.charts.len() + 1)
    }
}

/// Prints a text with a line end. A reader that closed the pipe is no error.
fn print(text: &str) -> Result<()> {
    match writeln!(std::io::stdout().lock(), "{}", text.trim_end()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Chart, Check};

    fn report() -> Report {
        let mut report = Report::new("toy");
        report.finding("rl loses on bursts").under("2 × EPYC, load before: 0.1");
        let mut table = Table::new("costs", ["policy", "cost"]);
        table.row(["a, b", "7"]);
        report.tables.push(table);
        report.charts.push(Chart::lines("load", "Load", "time [s]", "requests [1/s]").series("load", vec![(0.0, 1.0)]));
        report.checks.push(Check::at_most("cost", 5.0, 7.0, ""));
        report
    }

    #[test]
    fn write_makes_a_csv_per_table_an_svg_per_chart_and_the_whole_report() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let out = dir.path().join("new/dir");
        assert_eq!(report().write(&out)?, 3);
        assert_eq!(std::fs::read_to_string(out.join("costs.csv"))?, "policy,cost\n\"a, b\",7\n");
        let svg = std::fs::read_to_string(out.join("load.svg"))?;
        assert!(svg.starts_with("<svg") && svg.contains("2 × EPYC, load before: 0.1"), "{svg}");
        let whole: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(out.join("toy.json"))?)?;
        assert_eq!((&whole["findings"][0], &whole["checks"][0]["ok"]), (&"rl loses on bursts".into(), &false.into()));
        Ok(())
    }

    #[test]
    fn text_begins_with_findings_and_marks_missed_checks() -> Result<()> {
        let text = report().text();
        assert!(text.starts_with("rl loses on bursts\n"), "{text}");
        assert!(text.contains("✘") && text.ends_with("0 of 1 checks hold"), "{text}");
        assert!(!report().ok());
        assert_eq!(serde_json::to_value(report())?["checks"][0]["got"], "7");
        Ok(())
    }

    #[test]
    fn text_ends_with_what_was_not_repeated_and_that_fails_nothing() -> Result<()> {
        let mut report = Report::new("toy");
        report.checks.push(Check::at_most("cost", 5.0, 4.0, ""));
        report.statements.push(Check::holds("rho 4 is best", "the largest of all", "rho 5", false));
        report.statements.push(Check::holds("binpack is worst", "0.3", "0.4", true));
        assert!(report.ok());
        let text = report.text();
        let [holds, count, name] = ["1 of 1 checks hold", "1 of 2 statements", "rho 4 is best"].map(|part| text.find(part));
        assert!(holds.is_some() && holds < count && count < name, "{text}");
        assert!(!text.contains("binpack is worst"), "{text}");
        let dir = tempfile::tempdir()?;
        assert_eq!(report.write(dir.path())?, 2);
        assert!(std::fs::read_to_string(dir.path().join("paper.csv"))?.contains("binpack is worst,0.3,0.4,yes"));
        report.statements.remove(0);
        assert!(report.text().ends_with("1 of 1 statements could be repeated."), "{}", report.text());
        assert_eq!(serde_json::to_value(report)?["statements"][0]["ok"], true);
        Ok(())
    }
}
