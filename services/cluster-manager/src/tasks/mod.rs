//! Background tasks. Level-triggered: each reads the current state when it is woken, by a signal or periodically.

mod metrics;
mod probe;
mod supervise;
mod watch;

use drover_service::Common;

use crate::app::App;

/// Starts the background tasks.
pub fn spawn(app: &App, common: &Common) {
    common.spawn(supervise::run(app.clone(), common.clone()));
}
