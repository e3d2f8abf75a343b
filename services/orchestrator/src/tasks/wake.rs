//! Hands wake-ups of steps to the engine.

use drover_workflow::Engine;
use tokio::sync::mpsc::UnboundedReceiver;

/// Wakes the workflows that are parked on each key of `keys`; ends with its senders.
pub async fn run(engine: Engine, mut keys: UnboundedReceiver<String>) {
    while let Some(key) = keys.recv().await {
        engine.wake(&key);
    }
}
