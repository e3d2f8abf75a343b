//! The data of `drover experiment groups`: instances with their best known values, measurements, training runs. Clocks are passed in, and
//! the caller makes the reports.

mod cases;
mod learned;
mod learning;
mod measure;

pub use cases::{BenchmarkCase, BestKnown, TIGHT_AT_MOST, large, scales, tight, uniform};
pub use learned::{LearnedCase, LearnedScore, learned_cases, learned_ratios, learned_score, refined};
pub use learning::{SCALES, ScaleEvaluation, TrainingRun, curve, run, training_set, validation_set};
pub use measure::{MeasuredPlacement, ResponseModel};
