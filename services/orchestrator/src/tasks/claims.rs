//! Lets claims follow the number of replicas that others have chosen: a pass every few seconds.

use std::time::Duration;

use drover_service::TaskHandle;

use super::every::every;
use crate::app::App;

/// Time between two passes.
const PERIOD: Duration = Duration::from_secs(5);

/// Makes a pass every [`PERIOD`]; never returns.
pub async fn run(app: App, task: TaskHandle) {
    let pass = || async { app.follow_scale().await };
    every(PERIOD, task, "claims could not follow what was scaled", pass).await;
}
