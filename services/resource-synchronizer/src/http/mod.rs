//! Handlers, one file per kind of document.

pub mod bindings;
