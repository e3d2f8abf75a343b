//! Places that serve and a bounded line before them: Knative's breaker (one place, the app) and throttler (many places, the pods) in one.
//!
//! Who comes is let in at once if nobody waits and a place has room, waits in line if the line has room, and is refused otherwise.
//! Invariants: nobody is let into a full place; nobody waits while there is room; the line is first come, first served; whoever goes away
//! (a dropped future or lease) leaves no trace.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// A place that takes any number of requests.
pub const UNLIMITED: usize = usize::MAX;
/// Up to this many requests at once in a place, the first that has room is taken: a full pod answers faster than two half-empty ones scale.
const FIRST_AVAILABLE_UP_TO: usize = 3;

/// The line is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{waiting} requests are waiting already")]
pub struct Full {
    /// How long the line is.
    pub waiting: usize,
}

/// Places and a line.
pub struct Room {
    longest_line: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    places: Vec<Place>,
    /// By arrival.
    line: BTreeMap<u64, oneshot::Sender<Lease>>,
    arrivals: u64,
    turn: usize,
}

struct Place {
    address: SocketAddr,
    /// None: on its way out, kept until its last request is answered.
    capacity: Option<usize>,
    under_way: usize,
}

impl Place {
    fn has_room(&self) -> bool {
        self.capacity.is_some_and(|capacity| self.under_way < capacity)
    }
}

impl Room {
    /// Without places: everybody waits.
    pub fn new(longest_line: usize) -> Arc<Self> {
        Arc::new(Self { longest_line, state: Mutex::default() })
    }

    /// Says which places there are and how many requests each takes at once. Requests in places that are gone go on.
    pub fn furnish(self: &Arc<Self>, places: impl IntoIterator<Item = (SocketAddr, usize)>) {
        let mut state = self.state();
        for place in &mut state.places {
            place.capacity = None;
        }
        for (address, capacity) in places {
            match state.places.iter_mut().find(|place| place.address == address) {
                Some(place) => place.capacity = Some(capacity),
                None => state.places.push(Place { address, capacity: Some(capacity), under_way: 0 }),
            }
        }
        state.places.retain(|place| place.capacity.is_some() || place.under_way > 0);
        self.let_in(state);
    }

    /// A lease now, or a place in the line.
    ///
    /// # Errors
    /// The line is full.
    pub fn enter(self: &Arc<Self>) -> Result<Entering, Full> {
        let mut state = self.state();
        if state.line.is_empty()
            && let Some(place) = state.choose()
        {
            let lease = self.lease(&mut state, place);
            return Ok(Entering(Stage::In(Some(lease))));
        }
        if state.line.len() >= self.longest_line {
            return Err(Full { waiting: state.line.len() });
        }
        let (sender, receiver) = oneshot::channel();
        let number = state.arrivals;
        state.arrivals += 1;
        state.line.insert(number, sender);
        drop(state);
        Ok(Entering(Stage::Waits(Waiting { room: self.clone(), number, receiver })))
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.state().line.len()
    }

    /// How many are in any place.
    pub fn under_way(&self) -> usize {
        self.state().places.iter().map(|place| place.under_way).sum()
    }

    /// Places with any capacity.
    pub fn places(&self) -> usize {
        self.state().places.iter().filter(|place| place.capacity.is_some_and(|capacity| capacity > 0)).count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(self: &Arc<Self>, state: &mut State, place: usize) -> Lease {
        state.places[place].under_way += 1;
        Lease { room: self.clone(), address: state.places[place].address }
    }

    /// Lets the first of the line in while there is room.
    fn let_in(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut lost = Vec::new();
        while !state.line.is_empty()
            && let Some(place) = state.choose()
            && let Some((_, first)) = state.line.pop_first()
        {
            let lease = self.lease(&mut state, place);
            if let Err(lease) = first.send(lease) {
                lost.push(lease);
            }
        }
        drop(state); // dropping a lease locks it
        drop(lost);
    }

    fn release(self: &Arc<Self>, address: SocketAddr) {
        let mut state = self.state();
        if let Some(at) = state.places.iter().position(|place| place.address == address) {
            let place = &mut state.places[at];
            place.under_way -= 1;
            if place.capacity.is_none() && place.under_way == 0 {
                state.places.swap_remove(at);
            }
        }
        self.let_in(state);
    }
}

impl State {
    /// Where the next request goes (Knative `lb_policy.go`): any number at once: the emptier of two by chance; up to 3: the first with room;
    /// else in turn.
    fn choose(&mut self) -> Option<usize> {
        let free = |place: &&usize| self.places[**place].has_room();
        let all: Vec<usize> = (0..self.places.len()).collect();
        let mut with_room = all.iter().filter(free);
        let first = *with_room.next()?;
        let capacity = self.places[first].capacity.unwrap_or(0);
        if capacity <= FIRST_AVAILABLE_UP_TO {
            return Some(first);
        }
        let others: Vec<usize> = std::iter::once(first).chain(with_room.copied()).collect();
        if capacity == UNLIMITED {
            let (one, other) = (others[fastrand::usize(..others.len())], others[fastrand::usize(..others.len())]);
            return Some(if self.places[other].under_way < self.places[one].under_way { other } else { one });
        }
        self.turn = self.turn.wrapping_add(1);
        Some(others[self.turn % others.len()])
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        write!(f, "Room({} places, {} waiting)", state.places.len(), state.line.len())
    }
}

/// The right to use a place until it is dropped.
#[derive(Debug)]
pub struct Lease {
    room: Arc<Room>,
    address: SocketAddr,
}

impl Lease {
    /// The place.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.room.release(self.address);
    }
}

/// Becomes a lease; dropped before, it leaves the line.
#[derive(Debug)]
pub struct Entering(Stage);

#[derive(Debug)]
enum Stage {
    In(Option<Lease>),
    Waits(Waiting),
}

#[derive(Debug)]
struct Waiting {
    room: Arc<Room>,
    number: u64,
    receiver: oneshot::Receiver<Lease>,
}

impl Entering {
    /// Whether it is in line.
    pub fn waits(&self) -> bool {
        matches!(self.0, Stage::Waits(_))
    }
}

impl Future for Entering {
    type Output = Lease;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Lease> {
        let lease = match &mut self.0 {
            Stage::In(lease) => lease.take(),
            Stage::Waits(waiting) => match Pin::new(&mut waiting.receiver).poll(context) {
                Poll::Pending => return Poll::Pending,
                // The sender is in the line, which the room keeps, until it sends.
                Poll::Ready(lease) => lease.ok(),
            },
        };
        lease.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Granted meanwhile: the lease is dropped with the receiver and goes to the next.
        self.room.state().line.remove(&self.number);
    }
}
