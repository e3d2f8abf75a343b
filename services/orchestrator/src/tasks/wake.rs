//! Hands wake-ups of steps to the engine.

use std::sync::Arc;

use drover_service::TaskHandle;
use drover_workflow::Engine;
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;

/// Wakes the workflows that are parked on each key of `keys`; ends with its senders. Only one run at a time locks `keys`.
pub async fn run(engine: Engine, keys: Arc<Mutex<UnboundedReceiver<String>>>, task: TaskHandle) {
    let mut keys = keys.lock().await;
    while let Some(key) = keys.recv().await {
        task.active();
        engine.wake(&key);
    }
}
