//! The results as a table, printed at the end of a run and written to docs/operations/failure-modes.md. Rows of which a run has no case stay as
//! they are there.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use super::case::{self, Fault, Row};
use super::run::Outcome;

const BEGIN: &str = "<!-- kill matrix: made by `DROVER_ACCEPT=long make test-long` -->";
const END: &str = "<!-- end of the kill matrix -->";

/// For each cell of the table: how many of its cases succeeded, and how many there were.
type Cells = BTreeMap<(Row, Fault), (usize, usize)>;

/// The table, with a row for each step in the order of the code.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut cells = Cells::new();
    for (case, result) in outcomes {
        let (held, all) = cells.entry((case.row.clone(), case.fault)).or_default();
        (*held, *all) = (*held + usize::from(result.is_ok()), *all + 1);
    }
    let (faults, page) = (Fault::all(), page_text());
    let described = described(&page);
    let head: Vec<String> =
        ["workflow or service", "step or place", "way"].map(str::to_owned).into_iter().chain(faults.iter().map(Fault::to_string)).collect();
    let mut lines = vec![line(&head), line(&vec!["---".to_owned(); head.len()])];
    for row in rows() {
        let name = [row.kind.clone(), row.step.clone(), row.way.clone()];
        let known = cells.keys().any(|(of, _)| *of == row);
        let before = line(&name).trim_end_matches('|').to_owned();
        if let Some(before) = described.iter().find(|line| !known && line.starts_with(&before)) {
            lines.push((*before).to_owned());
            continue;
        }
        let held =
            faults.iter().map(|fault| cells.get(&(row.clone(), *fault)).map_or(String::new(), |(held, all)| format!("{held}/{all}")));
        lines.push(line(&name.into_iter().chain(held).collect::<Vec<_>>()));
    }
    lines.join("\n") + "\n"
}

fn line(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (case, _) in case::points() {
        if rows.last() != Some(&case.row) {
            rows.push(case.row);
        }
    }
    rows
}

/// Prints the table, even when test output is captured, and panics unless all cases succeeded.
pub fn conclude(outcomes: &[Outcome], took: std::time::Duration) {
    let wrong: Vec<String> = outcomes
        .iter()
        .filter_map(|(case, result)| Some(format!("{}, fault: {}: {}", case.point, case.fault, result.as_ref().err()?)))
        .collect();
    let text = format!("{}{} cases in {:.0} s, {} of them failed\n", table(outcomes), outcomes.len(), took.as_secs_f64(), wrong.len());
    std::io::stderr().write_all(text.as_bytes()).expect("stderr can be written");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Writes the matrix into the documentation if `DROVER_ACCEPT` (`short`, `long` or `growth`) names this run.
pub fn accept(outcomes: &[Outcome], run: &str) {
    if std::env::var("DROVER_ACCEPT").is_ok_and(|wanted| wanted == run) {
        let (text, [head, tail]) = (table(outcomes), around());
        std::fs::write(page(), format!("{head}{BEGIN}\n\n{text}\n{END}{tail}")).expect("the page can be written");
    }
}

/// Checks that the documentation has the same rows as the code.
pub fn documented() {
    let text = page_text();
    let described = described(&text);
    let stale = "docs/operations/failure-modes.md differs from the code; run DROVER_ACCEPT=long make test-long";
    for (row, at) in rows().into_iter().zip(0..) {
        let wanted = format!("| {} | {} | {} |", row.kind, row.step, row.way);
        assert!(described.get(at).is_some_and(|line| line.starts_with(&wanted)), "{stale}: {wanted}");
    }
}

/// The rows of the matrix in the text of the page.
fn described(text: &str) -> Vec<&str> {
    text.split(BEGIN).nth(1).unwrap_or_default().lines().filter(|line| line.starts_with("| ")).skip(2).collect()
}

fn page_text() -> String {
    std::fs::read_to_string(page()).expect("the page is part of the repository")
}

/// The text before and after the matrix.
fn around() -> [String; 2] {
    let text = page_text();
    let (head, rest) = text.split_once(BEGIN).expect("the page has the place for it");
    let (_, tail) = rest.split_once(END).expect("the page has its end");
    [head.to_owned(), tail.to_owned()]
}

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/operations/failure-modes.md")
}
