//! Moves apps off clusters where they suffer, if the policy of their project says so: a pass every few seconds.

use std::time::Duration;

use drover_service::TaskHandle;

use super::every::every;
use crate::app::App;

/// Time between two passes.
const PERIOD: Duration = Duration::from_secs(5);

/// Makes a pass every [`PERIOD`]; never returns.
pub async fn run(app: App, task: TaskHandle) {
    let pass = || async { app.relieve().await };
    every(PERIOD, task, "it is not known where apps suffer", pass).await;
}
