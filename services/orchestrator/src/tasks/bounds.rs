//! Divides bounds that count for all members of an app among its copies: a pass every few seconds.

use std::time::Duration;

use drover_service::TaskHandle;

use super::every::every;
use crate::app::App;

/// Time between two passes.
const PERIOD: Duration = Duration::from_secs(5);

/// Makes a pass every [`PERIOD`]; never returns.
pub async fn run(app: App, task: TaskHandle) {
    let pass = || async { app.divide_bounds().await };
    every(PERIOD, task, "bounds over all clusters could not be divided", pass).await;
}
