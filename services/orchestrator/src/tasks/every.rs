//! The loop of tasks that make a pass now and then.

use std::error::Error;
use std::time::Duration;

use drover_service::TaskHandle;

/// Makes a pass every `period`; never returns. A pass that fails is logged as `failed`, and the next one tries again.
pub async fn every<E: Error + 'static, Fut>(period: Duration, task: TaskHandle, failed: &'static str, mut pass: impl FnMut() -> Fut)
where
    Fut: Future<Output = Result<(), E>>,
{
    loop {
        tokio::time::sleep(period).await;
        task.active();
        if let Err(error) = pass().await {
            tracing::debug!(error = %drover_service::problem::chain(&error), "{failed}, will retry");
        }
    }
}
