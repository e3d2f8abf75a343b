//! Background tasks. Level-triggered: each reads the current state when it is woken, by a signal or periodically.

mod metrics;
mod probe;
mod watch;
mod workers;

use drover_service::{Common, OnFailure};

pub use probe::{DEADLINE, Failure, identity, probe};

use crate::app::App;

/// Starts the background tasks.
pub fn spawn(app: &App, common: &Common) {
    let (app, of) = (app.clone(), common.clone());
    common.spawn("follow-registrations", OnFailure::Restart, move |task| workers::run(app.clone(), of.clone(), task));
}
