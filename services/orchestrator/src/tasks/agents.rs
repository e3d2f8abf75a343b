//! Rolls agents out: a pass every few seconds.

use std::time::Duration;

use drover_service::TaskHandle;

use super::every::every;
use crate::app::App;

/// Time between two passes.
const PERIOD: Duration = Duration::from_secs(2);

/// Makes a pass every [`PERIOD`]; never returns.
pub async fn run(app: App, task: TaskHandle) {
    let pass = || async { app.roll_out_agents().await };
    every(PERIOD, task, "agents could not be rolled out", pass).await;
}
