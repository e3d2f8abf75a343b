//! The measurements of one placement, those of the paper and our own.

use crate::ddpg::entropy;
use crate::policy::Placed;
use drover_scheduling::groups::{Instance, Terms, used};

/// A model of the response time; the paper's measurement is not available. Each visit of a service takes processor-sharing time on its
/// node (service time / (1 - CPU utilisation by requests)), each call between nodes takes a hop, and the calls of one request follow each
/// other.
#[derive(Clone, Copy, Debug)]
pub struct ResponseModel {
    /// Milliseconds that a visit takes on an idle node.
    pub service: f64,
    /// Milliseconds that a call between two nodes takes, both ways.
    pub hop: f64,
    /// Upper limit of the utilisation in the formula, below 1.
    pub fullest: f64,
}

impl Default for ResponseModel {
    fn default() -> Self {
        Self { service: 0.5, hop: 1.0, fullest: 0.98 }
    }
}

impl ResponseModel {
    /// Milliseconds of one request (one iteration of the load test). Containers without a place count as zero.
    pub fn of(&self, instance: &Instance, at: &[Option<usize>]) -> f64 {
        let utilisation: Vec<f64> = used(instance, at).iter().zip(instance.places()).map(|(u, p)| u[0] / p.capacity[0]).collect();
        let mut time = 0.0;
        for (c, place) in at.iter().enumerate() {
            let Some(p) = place else { continue };
            // The calls of a container are halved, because each call is one visit and belongs to two containers.
            let visits: f64 = instance.near(c as u32).iter().map(|(_, w)| w / 2.0).sum();
            time += visits * self.service / (1.0 - utilisation[*p].min(self.fullest));
        }
        time + self.hop * Terms::of(instance, at).calls
    }
}

/// The measurements of one placement.
#[derive(Clone, Debug)]
pub struct MeasuredPlacement {
    /// Name of the instance.
    pub case: String,
    /// Name of the policy.
    pub policy: String,
    /// Seed of the policy; `None` if it makes no random choices.
    pub seed: Option<u64>,
    /// The objective, without unit; less is better.
    pub value: f64,
    /// The parts of the objective.
    pub terms: Terms,
    /// Number of containers without a place.
    pub unplaced: usize,
    /// CPU time that the policy took, in seconds.
    pub seconds: f64,
    /// Entropy of the chosen places in nats.
    pub entropy: f64,
    /// Share of all containers on the small, medium and large third of the places.
    pub classes: [f64; 3],
    /// Response time in milliseconds by [`ResponseModel`].
    pub response: f64,
}

impl MeasuredPlacement {
    /// Measures a placement that took `seconds` of CPU time.
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
