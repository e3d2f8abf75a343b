//! Background tasks.

mod members;

pub use members::follow_members;
