//! Quantities in objects that are kept as JSON, in thousandths of their unit; libs/quantity reads them.

use drover_quantity::Quantity;
use serde::Deserialize;
use serde_json::Value;

pub use drover_quantity::show;

/// Thousandths; none when it is no quantity.
pub fn milli(text: &str) -> Option<i128> {
    drover_quantity::thousandths(text).ok()
}

/// Thousandths of a JSON value, numbers included; what is none counts as nothing.
pub fn of(value: &Value) -> i128 {
    Quantity::deserialize(value).ok().and_then(|quantity| quantity.thousandths().ok()).unwrap_or(0)
}
