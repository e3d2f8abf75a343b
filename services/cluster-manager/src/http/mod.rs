//! What is not a document, or not quite one.

pub mod clusters;
pub mod kv_pairs;
pub mod labels;
pub mod members;
