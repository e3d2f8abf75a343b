//! Waiting for a place: bounded in length by the room, in time here; whoever goes away leaves the line.

use std::sync::Arc;
use std::time::Duration;

use super::body::RequestBody;
use super::refusal::Refusal;
use super::room::{Lease, Room};

/// A place for a request, after a wait of at most `patience`.
///
/// # Errors
/// The line is full, nobody had room in time, or the client went away.
pub async fn admit(room: &Arc<Room>, body: &RequestBody, patience: Duration) -> Result<Lease, Refusal> {
    let entering = room.enter().map_err(|full| Refusal::QueueFull(full.waiting))?;
    if !entering.waits() {
        return Ok(entering.await);
    }
    tokio::select! {
        lease = entering => Ok(lease),
        () = body.client_gone() => Err(Refusal::Gone),
        () = tokio::time::sleep(patience) => Err(Refusal::NoRoomInTime(patience.as_secs())),
    }
}
