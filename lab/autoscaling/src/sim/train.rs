//! Pre-training: passes over the first part of a trace in the simulator, with decreasing exploration.

use serde::{Deserialize, Serialize};

use super::{Arrivals, SimSpec, Simulation, Totals, drive};
use drover_autoscaling::qlearning::{Choice, QLearningSpec, QLearningState, QTable, step};

/// How exploration decreases: a share of decisions takes any legal action.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Schedule {
    /// Share at the first decision.
    pub epsilon: f64,
    /// Factor on the share after each decision.
    pub decay: f64,
    /// Minimum share.
    pub floor: f64,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { epsilon: 1.0, decay: 0.999, floor: 0.01 }
    }
}

impl Schedule {
    /// Share at a decision.
    pub fn at(&self, decision: u64) -> f64 {
        let passed = i32::try_from(decision).unwrap_or(i32::MAX);
        (self.epsilon * self.decay.powi(passed)).max(self.floor)
    }
}

/// Trains over `passes`, with one decision every `period` seconds. Each pass starts with a fresh workload and keeps the Q-table.
pub fn train<'a>(
    learner: &QLearningSpec,
    spec: &SimSpec,
    schedule: &Schedule,
    period: usize,
    passes: impl IntoIterator<Item = &'a Arrivals>,
) -> QTable {
    let mut state = QLearningState::from_table(QTable::new(spec.min_pods, spec.max_pods));
    for arrivals in passes {
        let mut simulation = Simulation::new(spec, arrivals.start());
        let mut since = Totals::default();
        state.last = None;
        for second in 0..arrivals.seconds() {
            since.add(&simulation.advance(arrivals.second(second)));
            if (second + 1) % period.max(1) != 0 {
                continue;
            }
            let seen = drive::qlearning(&simulation, &since);
            let choice = Choice::Anything(schedule.at(state.decisions));
            if let Some((want, _)) = step(learner, &mut state, &seen, choice) {
                simulation.scale(want);
            }
            since = Totals::default();
        }
        state.table.passes += 1;
    }
    state.table
}
