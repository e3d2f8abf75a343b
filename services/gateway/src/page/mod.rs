//! The web page: what a visitor sees, made from the same REST answers that everyone gets. Read-only.
//!
//! [`view`] turns answers into what the templates print (pure); [`picture`] draws a plan as before and after (pure).

mod picture;
mod view;

pub use picture::draw;
pub use view::{Explanation, Live, Overview, PlanPage};
