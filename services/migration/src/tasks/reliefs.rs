//! Looks now and then where apps suffer.

use std::time::Duration;

use drover_service::TaskHandle;

use crate::app::App;

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(5);

/// Looks every [`PERIOD`]. Never returns.
pub async fn run(app: App, task: TaskHandle) {
    loop {
        task.active();
        if let Err(error) = app.look_for_reliefs().await {
            tracing::warn!(%error, "it is not known where apps suffer; the next attempt is soon");
        }
        tokio::time::sleep(PERIOD).await;
    }
}
