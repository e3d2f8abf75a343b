//! Waiting for a destination with a free slot. The length of the queue is limited by the throttler, the time here; a client that goes away
//! leaves the queue.

use std::sync::Arc;
use std::time::Duration;

use drover_proxy::body::RequestBody;

use super::refusal::Refusal;
use super::throttler::{Permit, Throttler};

/// Waits for a slot for a request, at most `patience`.
///
/// # Errors
/// If the queue is full, no slot became free in time, or the client went away.
pub async fn admit(throttler: &Arc<Throttler>, body: &RequestBody, patience: Duration) -> Result<Permit, Refusal> {
    let entering = throttler.enter().map_err(|full| Refusal::QueueFull(full.waiting))?;
    if !entering.waits() {
        return Ok(entering.await);
    }
    tokio::select! {
        permit = entering => Ok(permit),
        () = body.client_gone() => Err(Refusal::Gone),
        () = tokio::time::sleep(patience) => Err(Refusal::NoRoomInTime(patience.as_secs())),
    }
}
