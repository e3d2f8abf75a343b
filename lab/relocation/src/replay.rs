//! A draw under a strategy: the applications arrive one after the other, and none departs.

use drover_scheduling::{AppRequest, Policy, WhenFull};

use crate::draw::{Draw, NodeSize};
use crate::fleet::{Occupancy, requests};
use crate::hub::{Hub, Planned, Preference, insists};
use crate::rivals::{Limits, paper_text, published};

/// What is done with an application for which there is no room.
#[derive(Clone, Debug)]
pub enum Strategy {
    /// It is rejected.
    Reject,
    /// Drover: the product's plan.
    Drover {
        policy: Policy,
        /// What its owner wants if the best provider is full.
        when_full: WhenFull,
        /// Limit on the steps of each plan.
        steps: u64,
    },
    /// The algorithm of the paper's text.
    PaperText(Policy),
    /// What the paper's published code does.
    Published(Policy, Limits),
}

/// What became of one arrival, at that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// All its microservices run.
    pub runs: bool,
    /// Number of microservices of others that were moved for it.
    pub moves: usize,
    /// A search for a plan was cut short by the limit on its steps.
    pub cut_short: bool,
}

/// A draw after all arrivals.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    pub arrivals: Vec<Arrival>,
    /// After each arrival.
    pub occupancy: Vec<Occupancy>,
    /// The cluster of each microservice of each application; `None` if it does not run.
    pub places: Vec<Vec<Option<usize>>>,
}

impl Replay {
    /// The applications that run at the end, as a whole.
    pub fn running(&self) -> Vec<usize> {
        (0..self.places.len()).filter(|arrival| self.runs(*arrival)).collect()
    }

    /// Number of applications that do not run at the end: rejected, or stopped by a move.
    pub fn rejected(&self) -> usize {
        self.places.len() - self.running().len()
    }

    /// Number of applications that ran once and do not at the end.
    pub fn stopped(&self) -> usize {
        self.arrivals.iter().enumerate().filter(|(at, arrival)| arrival.runs && !self.runs(*at)).count()
    }

    /// Number of moves.
    pub fn moves(&self) -> usize {
        self.arrivals.iter().map(|arrival| arrival.moves).sum()
    }

    fn runs(&self, arrival: usize) -> bool {
        self.places[arrival].iter().all(Option::is_some)
    }
}

/// Lets the applications of a draw arrive.
pub fn replay(draw: &Draw, size: NodeSize, preference: Preference, strategy: &Strategy) -> Replay {
    let when_full = match strategy {
        Strategy::Drover { when_full, .. } => *when_full,
        _ => WhenFull::Overflow,
    };
    let mut hub = Hub::new(draw, size, preference);
    let mut queue = Vec::new();
    let (mut arrivals, mut occupancy) = (Vec::new(), Vec::new());
    for (arrival, application) in draw.applications.iter().enumerate() {
        let apps = requests(application, when_full);
        let planned = if hub.place(arrival, &apps, false) {
            Planned::default()
        } else {
            match strategy {
                Strategy::Reject => Planned::default(),
                Strategy::Drover { policy, steps, .. } => drover(&mut hub, arrival, &apps, policy, *steps),
                Strategy::PaperText(policy) => paper_text(&mut hub, arrival, &apps, policy),
                Strategy::Published(policy, limits) => published(&mut hub, &mut queue, arrival, &apps, policy, *limits),
            }
        };
        hub.agree_to_moves(arrival, &apps);
        hub.observe();
        let runs = hub.places()[arrival].iter().all(Option::is_some);
        arrivals.push(Arrival { runs, moves: planned.moves, cut_short: planned.cut_short });
        occupancy.push(Occupancy::of(&hub.ledger));
    }
    Replay { arrivals, occupancy, places: hub.places() }
}

/// A plan; if there is none, an application that insists on its best provider goes to another.
fn drover(hub: &mut Hub<'_>, arrival: usize, apps: &[AppRequest], policy: &Policy, steps: u64) -> Planned {
    let planned = hub.make_room(arrival, apps, policy, steps);
    if !planned.feasible && insists(apps) {
        hub.place(arrival, apps, true);
    }
    planned
}
