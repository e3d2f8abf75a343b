//! Lets claims follow the number of replicas that others have chosen: a pass every few seconds.

use std::time::Duration;

use drover_service::TaskHandle;

use crate::app::App;

/// Time between two passes.
const PERIOD: Duration = Duration::from_secs(5);

/// Makes a pass every [`PERIOD`]; never returns.
pub async fn run(app: App, task: TaskHandle) {
    loop {
        tokio::time::sleep(PERIOD).await;
        task.active();
        if let Err(error) = app.follow_scale().await {
            tracing::debug!(error = %drover_service::problem::chain(&error), "claims could not follow what was scaled, will retry");
        }
    }
}
