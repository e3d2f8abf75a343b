//! Reading manifests, compared with what kubectl reads and with what a text may cost.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, though not functions with the attribute")]

mod budget;
mod kubectl;
mod objects;
mod yaml;
