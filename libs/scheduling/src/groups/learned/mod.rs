//! The learned policy: one small network scores the options of a unit, each by itself, and the best one is taken.
//!
//! ```text
//! Layout ──▶ Construction (next unit, options) ──▶ Outlook (features) ──▶ ScoreNet (scores) ──▶ the best option, until all is placed
//! several passes ──▶ the best one ──▶ repair (parts placed again) ──▶ Layout::refine
//! ```
//!
//! It knows nothing of the number or the order of the places and of the applications that it was trained on. It is trained in `lab/groups`;
//! [`LearnedModel::shipped`] is the trained default. Whoever uses it compares its placement with the greedy one and takes the better.

mod construct;
mod features;
mod lanes;
mod model;
mod net;
mod repair;

pub use construct::{ALL_PLACES, Construction, MAX_PASSES, Pass, best};
pub use features::{FEATURES, Outlook, Unit, UnitCalls, UnitKind, request};
pub use model::{LearnedLayout, LearnedModel, ModelError, Provenance, REFINEMENT, rank};
pub use net::ScoreNet;
