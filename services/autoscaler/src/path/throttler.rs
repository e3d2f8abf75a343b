//! Limits concurrent requests per destination, with a bounded queue: Knative's breaker (one destination, the app) and throttler (many, the pods) in
//! one.
//!
//! A request is admitted at once if nobody waits and a destination has a free slot; else it waits if the queue has space; else it is refused.
//! Invariants: a destination never gets more requests than its capacity; no request waits while a slot is free; the queue is first come, first
//! served; a dropped future or permit leaves nothing behind.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// Capacity of a destination that takes any number of requests.
pub const UNLIMITED: usize = usize::MAX;
/// Up to this capacity the first destination with a free slot is used (Knative's policy for a low container concurrency).
const FIRST_AVAILABLE_UP_TO: usize = 3;

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{waiting} requests are waiting already")]
pub struct QueueFull {
    /// Length of the queue.
    pub waiting: usize,
}

/// Destinations and a queue.
pub struct Throttler {
    queue_limit: usize,
    state: Mutex<ThrottlerState>,
}

#[derive(Default)]
struct ThrottlerState {
    destinations: Vec<Destination>,
    /// Waiting requests by order of arrival.
    queue: BTreeMap<u64, oneshot::Sender<Permit>>,
    arrivals: u64,
    turn: usize,
}

struct Destination {
    address: SocketAddr,
    /// None: the destination was removed, and is kept until its last request is answered.
    capacity: Option<usize>,
    under_way: usize,
}

impl Destination {
    fn has_slot(&self) -> bool {
        self.capacity.is_some_and(|capacity| self.under_way < capacity)
    }
}

impl Throttler {
    /// Creates a throttler without destinations, so that every request waits.
    pub fn new(queue_limit: usize) -> Arc<Self> {
        Arc::new(Self { queue_limit, state: Mutex::default() })
    }

    /// Replaces the destinations and their capacities. Requests to destinations that are removed continue.
    pub fn set_destinations(self: &Arc<Self>, destinations: impl IntoIterator<Item = (SocketAddr, usize)>) {
        let mut state = self.state();
        for destination in &mut state.destinations {
            destination.capacity = None;
        }
        for (address, capacity) in destinations {
            match state.destinations.iter_mut().find(|destination| destination.address == address) {
                Some(destination) => destination.capacity = Some(capacity),
                None => state.destinations.push(Destination { address, capacity: Some(capacity), under_way: 0 }),
            }
        }
        state.destinations.retain(|destination| destination.capacity.is_some() || destination.under_way > 0);
        self.admit_waiting(state);
    }

    /// Returns a future of a permit, which is ready at once if a slot is free, and waits in the queue otherwise.
    ///
    /// # Errors
    /// If the queue is full.
    pub fn enter(self: &Arc<Self>) -> Result<Admission, QueueFull> {
        let mut state = self.state();
        if state.queue.is_empty()
            && let Some(destination) = state.choose()
        {
            let permit = self.permit(&mut state, destination);
            return Ok(Admission(AdmissionStage::Admitted(Some(permit))));
        }
        if state.queue.len() >= self.queue_limit {
            return Err(QueueFull { waiting: state.queue.len() });
        }
        let (sender, receiver) = oneshot::channel();
        let number = state.arrivals;
        state.arrivals += 1;
        state.queue.insert(number, sender);
        drop(state);
        Ok(Admission(AdmissionStage::Waiting(Waiting { throttler: self.clone(), number, receiver })))
    }

    /// Number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.state().queue.len()
    }

    /// Number of admitted requests over all destinations.
    pub fn under_way(&self) -> usize {
        self.state().destinations.iter().map(|destination| destination.under_way).sum()
    }

    /// Number of destinations with a capacity above 0.
    pub fn destinations(&self) -> usize {
        self.state().destinations.iter().filter(|destination| destination.capacity.is_some_and(|capacity| capacity > 0)).count()
    }

    fn state(&self) -> MutexGuard<'_, ThrottlerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn permit(self: &Arc<Self>, state: &mut ThrottlerState, destination: usize) -> Permit {
        state.destinations[destination].under_way += 1;
        Permit { throttler: self.clone(), address: state.destinations[destination].address }
    }

    /// Admits waiting requests in order while slots are free.
    fn admit_waiting(self: &Arc<Self>, mut state: MutexGuard<'_, ThrottlerState>) {
        let mut unclaimed = Vec::new();
        while !state.queue.is_empty()
            && let Some(destination) = state.choose()
            && let Some((_, first)) = state.queue.pop_first()
        {
            let permit = self.permit(&mut state, destination);
            if let Err(permit) = first.send(permit) {
                unclaimed.push(permit);
            }
        }
        drop(state); // dropping a permit locks the state
        drop(unclaimed);
    }

    fn release(self: &Arc<Self>, address: SocketAddr) {
        let mut state = self.state();
        if let Some(at) = state.destinations.iter().position(|destination| destination.address == address) {
            let destination = &mut state.destinations[at];
            destination.under_way -= 1;
            if destination.capacity.is_none() && destination.under_way == 0 {
                state.destinations.swap_remove(at);
            }
        }
        self.admit_waiting(state);
    }
}

impl ThrottlerState {
    /// The destination of the next request (Knative `lb_policy.go`). Unlimited capacity: the less busy of two random ones; up to 3: the first with a
    /// free slot; else in turn.
    fn choose(&mut self) -> Option<usize> {
        let free = |destination: &&usize| self.destinations[**destination].has_slot();
        let all: Vec<usize> = (0..self.destinations.len()).collect();
        let mut with_slot = all.iter().filter(free);
        let first = *with_slot.next()?;
        let capacity = self.destinations[first].capacity.unwrap_or(0);
        if capacity <= FIRST_AVAILABLE_UP_TO {
            return Some(first);
        }
        let others: Vec<usize> = std::iter::once(first).chain(with_slot.copied()).collect();
        if capacity == UNLIMITED {
            let (one, other) = (others[fastrand::usize(..others.len())], others[fastrand::usize(..others.len())]);
            return Some(if self.destinations[other].under_way < self.destinations[one].under_way { other } else { one });
        }
        self.turn = self.turn.wrapping_add(1);
        Some(others[self.turn % others.len()])
    }
}

impl fmt::Debug for Throttler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        write!(f, "Throttler({} destinations, {} waiting)", state.destinations.len(), state.queue.len())
    }
}

/// The right to send one request to a destination; the slot is free again when it is dropped.
#[derive(Debug)]
pub struct Permit {
    throttler: Arc<Throttler>,
    address: SocketAddr,
}

impl Permit {
    /// The address of the destination.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.throttler.release(self.address);
    }
}

/// A future of a [`Permit`]. If it is dropped before, the request leaves the queue.
#[derive(Debug)]
pub struct Admission(AdmissionStage);

#[derive(Debug)]
enum AdmissionStage {
    Admitted(Option<Permit>),
    Waiting(Waiting),
}

#[derive(Debug)]
struct Waiting {
    throttler: Arc<Throttler>,
    number: u64,
    receiver: oneshot::Receiver<Permit>,
}

impl Admission {
    /// Whether the request waits in the queue.
    pub fn waits(&self) -> bool {
        matches!(self.0, AdmissionStage::Waiting(_))
    }
}

impl Future for Admission {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let permit = match &mut self.0 {
            AdmissionStage::Admitted(permit) => permit.take(),
            AdmissionStage::Waiting(waiting) => match Pin::new(&mut waiting.receiver).poll(context) {
                Poll::Pending => return Poll::Pending,
                // The sender stays in the queue, which the throttler keeps, until it sends.
                Poll::Ready(permit) => permit.ok(),
            },
        };
        permit.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // If a permit was sent meanwhile, it is dropped with the receiver, and its slot goes to the next request.
        self.throttler.state().queue.remove(&self.number);
    }
}
