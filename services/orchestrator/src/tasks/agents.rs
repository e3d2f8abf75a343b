//! Rolls agents out: a pass every few seconds.

use std::time::Duration;

use drover_service::TaskHandle;

use crate::app::App;

/// Time between two passes.
const PERIOD: Duration = Duration::from_secs(2);

/// Makes a pass every [`PERIOD`]; never returns.
pub async fn run(app: App, task: TaskHandle) {
    loop {
        tokio::time::sleep(PERIOD).await;
        task.active();
        if let Err(error) = app.roll_out_agents().await {
            tracing::debug!(error = %drover_service::problem::chain(&error), "agents could not be rolled out, will retry");
        }
    }
}
