//! What `drover experiment groups` computes: instances with their best known values, measurements, training runs.
//! Plain data; clocks are given, reports are made by the caller.

mod cases;
mod learning;
mod measure;

pub use cases::{Best, Case, TIGHT_AT_MOST, large, scales, tight, uniform};
pub use learning::{Run, SCALES, Test, curve, run, training_set, validation_set};
pub use measure::{ResponseModel, Row};
