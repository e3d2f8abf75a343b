//! One placement, measured in all the ways the paper and we look at one.

use crate::ddpg::entropy;
use crate::policy::Placed;
use drover_scheduling::groups::Instance;
use drover_scheduling::groups::{Terms, used};

/// A response-time model, not the paper's measurement: each visit of a service takes processor-sharing time on its node
/// (service time / (1 - CPU utilisation by requests)), each call between nodes a hop; calls of one request follow each other.
#[derive(Clone, Copy, Debug)]
pub struct ResponseModel {
    /// Milliseconds a visit takes on an idle node.
    pub service: f64,
    /// Milliseconds a call takes from node to node and back.
    pub hop: f64,
    /// Utilisation above which a node is counted as this full.
    pub fullest: f64,
}

impl Default for ResponseModel {
    fn default() -> Self {
        Self { service: 0.5, hop: 1.0, fullest: 0.98 }
    }
}

impl ResponseModel {
    /// Milliseconds of one request (one iteration of the load test); containers without a place take none.
    pub fn of(&self, instance: &Instance, at: &[Option<usize>]) -> f64 {
        let utilisation: Vec<f64> = used(instance, at).iter().zip(instance.places()).map(|(u, p)| u[0] / p.capacity[0]).collect();
        let mut time = 0.0;
        for (c, place) in at.iter().enumerate() {
            let Some(p) = place else { continue };
            // Calls to and from a container, halved: each call is one visit, of one of its ends.
            let visits: f64 = instance.near(c as u32).iter().map(|(_, w)| w / 2.0).sum();
            time += visits * self.service / (1.0 - utilisation[*p].min(self.fullest));
        }
        time + self.hop * Terms::of(instance, at).calls
    }
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// The instance.
    pub case: String,
    /// The policy.
    pub policy: String,
    /// Its seed, where it has one.
    pub seed: Option<u64>,
    /// The objective.
    pub value: f64,
    /// Term by term.
    pub terms: Terms,
    /// Containers without a place.
    pub unplaced: usize,
    /// CPU seconds.
    pub seconds: f64,
    /// Entropy of the chosen places.
    pub entropy: f64,
    /// Share of all containers on the small, medium and large third of the places.
    pub classes: [f64; 3],
    /// Milliseconds by [`ResponseModel`].
    pub response: f64,
}

impl Row {
    /// Measures a placement.
    pub fn of(case: &str, policy: impl Into<String>, seed: Option<u64>, instance: &Instance, placed: &Placed, seconds: f64) -> Self {
        let places = instance.places().len();
        let mut classes = [0.0; 3];
        placed.at.iter().flatten().for_each(|p| classes[p * 3 / places] += 1.0 / placed.at.len() as f64);
        Self {
            case: case.to_owned(),
            policy: policy.into(),
            seed,
            value: placed.value,
            terms: placed.terms,
            unplaced: placed.unplaced.len(),
            seconds,
            entropy: entropy(instance, placed),
            classes,
            response: ResponseModel::default().of(instance, &placed.at),
        }
    }
}
