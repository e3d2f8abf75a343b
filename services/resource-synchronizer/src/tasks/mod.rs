//! What goes on beside requests.

mod members;

pub use members::follow_members;
