//! Finishes EMCO's `migrate`: terminates a group when the group that replaces it is instantiated.

use std::time::Duration;

use drover_service::TaskHandle;

use crate::app::App;

/// Time between two passes.
const PERIOD: Duration = Duration::from_secs(1);

/// Makes a pass every [`PERIOD`]; never returns.
pub async fn run(app: App, task: TaskHandle) {
    let mut failing = false;
    loop {
        tokio::time::sleep(PERIOD).await;
        task.active();
        let outcome = app.hand_over().await;
        // A failure that goes on is a warning only once.
        if let Err(error) = &outcome
            && !failing
        {
            tracing::warn!(error = %drover_service::problem::chain(error), "groups that were replaced could not be terminated, will retry");
        }
        failing = outcome.is_err();
    }
}
