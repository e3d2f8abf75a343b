//! The web page, made from the answers of the public REST API.
//!
//! [`view`] and [`apps`] turn answers into the values that the templates print; [`picture`] draws a plan as it is before and after;
//! [`action`] has the buttons, whose requests the browser sends to the REST API itself. All are pure.

mod action;
mod apps;
mod picture;
mod view;

pub use action::Action;
pub use apps::{AppPage, Apps, Facts, Filter};
pub use picture::draw;
pub use view::{DocsPage, ErrorPage, OperationPage, Overview, PlanPage};
