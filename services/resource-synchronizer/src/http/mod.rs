//! Handlers, a file per noun.

pub mod bindings;
pub mod bundles;
