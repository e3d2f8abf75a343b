//! The web page, made from the answers of the public REST API. Read-only.
//!
//! [`view`] turns answers into the values that the templates print; [`picture`] draws a plan as it is before and after. Both are pure.

mod picture;
mod view;

pub use picture::draw;
pub use view::{Explanation, Live, Overview, PlanPage};
