//! Reads quantities of objects that are kept as JSON, by libs/quantity, in thousandths of their unit.

use drover_quantity::Quantity;
use serde::Deserialize;
use serde_json::Value;

pub use drover_quantity::show;

/// A quantity in thousandths; `None` if the text is not one.
pub fn milli(text: &str) -> Option<i128> {
    drover_quantity::thousandths(text).ok()
}

/// A JSON value in thousandths, whether text or number; 0 if it is not a quantity.
pub fn of(value: &Value) -> i128 {
    Quantity::deserialize(value).ok().and_then(|quantity| quantity.thousandths().ok()).unwrap_or(0)
}
