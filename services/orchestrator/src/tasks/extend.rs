//! Brings apps that run on every cluster of a selection to clusters that were added to it.

use std::time::Duration;

use drover_service::TaskHandle;

use crate::app::App;
use crate::app::everywhere::Tried;

/// Time between two passes.
const PERIOD: Duration = Duration::from_secs(5);

/// Makes a pass every [`PERIOD`]; never returns.
pub async fn run(app: App, task: TaskHandle) {
    let mut tried = Tried::default();
    loop {
        tokio::time::sleep(PERIOD).await;
        task.active();
        if let Err(error) = app.extend(&mut tried).await {
            tracing::debug!(error = %drover_service::problem::chain(&error), "apps could not be brought to new clusters, will retry");
        }
    }
}
