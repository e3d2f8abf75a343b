//! The experiments of the relocation paper on a fleet in memory.
//!
//! ```text
//! draw.rs     the paper's random applications             hub.rs       the product's decisions and plans, carried out at once
//! fleet.rs    its clusters, as the product sees them   rivals.rs     the paper's text, and its published code
//! replay.rs   a draw under a strategy                      optimum.rs   the most applications that can run, with a proof
//! packing.rs  whether microservices fit on the clusters   days/        applications that come and go, on members with prices
//! carry.rs    changes of the product's ledger
//! ```
//! Pure: no I/O and no clock; the same seed gives the same result. Where an app goes and what moves is decided by `libs/scheduling`, the
//! code of the product; nothing of it is written again here.

mod carry;
mod days;
mod draw;
pub mod experiment;
mod fleet;
mod hub;
mod optimum;
mod packing;
mod policy;
mod replay;
mod rivals;

pub use days::{App, DAY, Days, DaysPolicy, HEADER, Market, NODE, PROVIDERS, Provider, Trace, days};
pub use draw::{APPLICATIONS, Allowed, Application, CLUSTERS, Draw, Microservice, NodeSize, PRIVATE};
pub use fleet::{Occupancy, Share};
pub use hub::Preference;
pub use optimum::{Optimum, Rearranged, optimum, rearranged, together};
pub use packing::{Item, Packed, pack};
pub use policy::{paper_policy, scoring_policy};
pub use replay::{Arrival, Replay, Strategy, replay};
pub use rivals::Limits;
