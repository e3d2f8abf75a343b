//! Tasks: level-triggered, without input, woken by signal and period.

mod metrics;
mod probe;
mod supervise;
mod watch;

use drover_service::Common;

use crate::app::App;

/// Starts them.
pub fn spawn(app: &App, common: &Common) {
    common.spawn(supervise::run(app.clone(), common.clone()));
}
