//! The project tree and its lifecycle; the only service that writes into others.

pub mod demand;
pub mod render;
