//! Offline decisions (`drover autoscale decide`): a configuration, then one JSON line in and one JSON line out per decision.
//!
//! The field names are a contract that outside checks rely on. Unknown fields are errors. There is no I/O: lines are passed as text.

mod config;
mod line;
mod primitive;

pub use config::{Config, KpaSection, PanicStart, QLearningSection, ThresholdSection};
pub use line::{KpaLine, LineDecision, LineSteps, PastChange, PastValue, PodLine, PodState, QLearningLine, Sample, ThresholdLine};
pub use primitive::{PRIMITIVES, primitive};

use crate::kpa::{Collector, KpaObservation, KpaState};
use crate::qlearning::{QLearningObservation, QLearningState, QTable};
use crate::{
    DecisionRecord, Limits, Observation, Policy, PolicyState, Reading, STATE_VERSION, ScalingState, SpecError, decide, limit_only,
};

/// A line or a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// It does not have the right structure.
    #[error("{0}")]
    Shape(String),
    /// A value cannot be used.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The Q-table cannot be used.
    #[error(transparent)]
    Table(#[from] crate::qlearning::TableError),
}

impl OfflineError {
    fn shape(error: impl std::fmt::Display) -> Self {
        Self::Shape(error.to_string())
    }
}

/// Decides line by line and keeps the state in between.
pub struct Decider {
    policy: Policy,
    limits: Limits,
    state: Option<ScalingState>,
    start: Option<(i32, Option<PanicStart>)>,
    table: Option<QTable>,
    collector: Option<Collector>,
    records: Option<DecisionRecord>,
}

impl Decider {
    /// A decider for a configuration; `table` is the content of the table file that the configuration names, if any.
    ///
    /// # Errors
    /// If the configuration cannot be used, or the table does not match its bounds.
    pub fn new(config: &Config, table: Option<QTable>) -> Result<Self, OfflineError> {
        let (policy, limits) = config.resolve()?;
        if let Some(table) = &table {
            table.check(limits.min_replicas, limits.max_replicas)?;
        }
        let (start, collector) = match (config, &policy) {
            (Config { kpa: Some(section), .. }, Policy::Kpa(spec)) => {
                (Some((section.initial_ready, section.panic)), Some(Collector::new(spec)))
            }
            _ => (None, None),
        };
        Ok(Self { policy, limits, state: None, start, table, collector, records: None })
    }

    /// Decides on one observation.
    ///
    /// # Errors
    /// If the line is not valid JSON of this policy's observation, or a value cannot be used.
    pub fn line(&mut self, text: &str) -> Result<LineDecision, OfflineError> {
        match self.policy {
            Policy::Threshold(_) => self.threshold(serde_json::from_str(text).map_err(OfflineError::shape)?),
            Policy::Kpa(_) => Ok(self.kpa(&serde_json::from_str(text).map_err(OfflineError::shape)?)),
            Policy::QLearning(_) => self.qlearning(&serde_json::from_str(text).map_err(OfflineError::shape)?),
        }
    }

    /// The full record of the last decision.
    pub fn last_record(&self) -> Option<&DecisionRecord> {
        self.records.as_ref()
    }

    fn threshold(&mut self, line: ThresholdLine) -> Result<LineDecision, OfflineError> {
        let mut state = self.state.take().unwrap_or_else(|| ScalingState::new(&self.policy, &self.limits, line.t, line.replicas));
        line.history(&mut state.limits);
        let (at, replicas) = (line.t, line.replicas);
        let (record, mut state) = match line.desired {
            Some(desired) => limit_only(&self.limits, state, at, replicas, desired),
            None => decide(&self.policy, &self.limits, state, &Observation::Threshold(line.observation()?)),
        };
        // The decision counts as carried out; the next line's replicas may differ from it.
        if let Some(want) = record.want {
            state.limits.applied(&self.limits, at, replicas, want);
        }
        Ok(self.answer(record, state))
    }

    fn kpa(&mut self, line: &KpaLine) -> LineDecision {
        let start = self.start;
        let state = self.state.take().unwrap_or_else(|| {
            let (ready, panic) = start.unwrap_or((1, None));
            let fresh = ScalingState::new(&self.policy, &self.limits, line.t, ready);
            match panic {
                Some(PanicStart { since, max_pods }) => ScalingState {
                    policy: PolicyState::Kpa(KpaState { panic_since: Some(since), max_panic_pods: max_pods, delayed: Vec::new() }),
                    ..fresh
                },
                None => fresh,
            }
        });
        let (stable, panic) = match (&line.samples, &mut self.collector) {
            (Some(samples), Some(collector)) => {
                for sample in samples {
                    collector.record(sample.t, sample.value);
                }
                collector.read(line.t)
            }
            _ => (line.stable.into(), line.panic.into()),
        };
        let ready = Reading::from(line.ready);
        let observation = Observation::Kpa(KpaObservation { at: line.t, replicas: line.ready.unwrap_or(-1), ready, stable, panic });
        let unreachable = match (&self.policy, line.reachable) {
            (Policy::Kpa(spec), Some(reachable)) => Some(Policy::Kpa(crate::kpa::KpaSpec { reachable, ..spec.clone() })),
            _ => None,
        };
        let (record, state) = decide(unreachable.as_ref().unwrap_or(&self.policy), &self.limits, state, &observation);
        self.answer(record, state)
    }

    fn qlearning(&mut self, line: &QLearningLine) -> Result<LineDecision, OfflineError> {
        let (limits, table) = (&self.limits, &self.table);
        if !(limits.min_replicas..=limits.max_replicas).contains(&line.pods) {
            let range = format!("must be minPods to maxPods, {} to {}", limits.min_replicas, limits.max_replicas);
            return Err(SpecError::new("pods", range).into());
        }
        let state = self.state.take().unwrap_or_else(|| {
            let memory = table.clone().map_or_else(|| QLearningState::new(limits), QLearningState::from_table);
            ScalingState { version: STATE_VERSION, policy: PolicyState::QLearning(Box::new(memory)), limits: Default::default() }
        });
        let observation = Observation::QLearning(QLearningObservation {
            at: line.t,
            pods: line.pods,
            cpu: line.cpu.into(),
            expired: line.expired.into(),
            pod_seconds: line.pod_seconds.into(),
        });
        let (record, state) = decide(&self.policy, limits, state, &observation);
        Ok(self.answer(record, state))
    }

    fn answer(&mut self, record: DecisionRecord, state: ScalingState) -> LineDecision {
        let decision = LineDecision::of(&record);
        self.state = Some(state);
        self.records = Some(record);
        decision
    }
}
