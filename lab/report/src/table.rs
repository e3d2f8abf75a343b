//! Tables, for a terminal and for CSV files.

use comfy_table::{CellAlignment, Table as Drawn, presets};
use serde::Serialize;

/// A named table whose cells are text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The CSV file is `<name>.csv`.
    pub name: String,
    /// Headings, with the unit in brackets where there is one.
    pub columns: Vec<String>,
    /// Each row has as many cells as there are columns.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new<C: Into<String>>(name: impl Into<String>, columns: impl IntoIterator<Item = C>) -> Self {
        Table { name: name.into(), columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Self {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        debug_assert_eq!(cells.len(), self.columns.len(), "a row of table {} has another number of cells", self.name);
        self.rows.push(cells);
        self
    }

    /// The table as aligned columns without borders, with columns of numbers aligned to the right.
    pub fn text(&self) -> String {
        let mut drawn = Drawn::new();
        drawn.load_style(presets::NOTHING).set_header(self.columns.clone());
        for row in &self.rows {
            drawn.add_row(row.clone());
        }
        for (at, column) in drawn.column_iter_mut().enumerate() {
            column.set_padding((0, 3));
            if !self.rows.is_empty() && self.rows.iter().all(|row| row.get(at).is_some_and(|cell| starts_as_number(cell))) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        drawn.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

fn starts_as_number(cell: &str) -> bool {
    cell.is_empty() || cell == "-" || cell.trim_start_matches(['-', '+', '−', '±']).starts_with(|c: char| c.is_ascii_digit())
}

/// Formats a number with about four significant digits and without trailing zeros.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let decimals = (3 - magnitude).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_keeps_four_significant_digits() {
        for (value, text) in [(0.07013, "0.07013"), (12.0, "12"), (9123.4, "9123"), (-58.04, "-58.04"), (0.0, "0"), (123456.7, "123457")] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn text_aligns_columns_of_numbers_to_the_right() {
        let mut table = Table::new("costs", ["policy", "cost"]);
        table.row(["hpa", "7"]).row(["rl", "1234"]);
        assert_eq!(table.text(), "policy   cost\nhpa         7\nrl       1234");
    }
}
