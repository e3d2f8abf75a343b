//! Handlers of what is no plain document. Documents are served by libs/resources.

pub mod clusters;
pub mod kv_pairs;
pub mod labels;
pub mod members;
