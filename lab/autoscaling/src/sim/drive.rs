//! Runs a policy on the simulation: the policy gets observations as from a real workload, and its decisions are carried out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Arrivals, SimSpec, Simulation, Totals};
use drover_autoscaling::kpa::{Collector, KpaObservation};
use drover_autoscaling::qlearning::{QLearningObservation, QLearningState, QTable};
use drover_autoscaling::threshold::{Pod, ReadyCondition, ThresholdObservation};
use drover_autoscaling::{Limits, Observation, Policy, PolicyState, Reading, STATE_VERSION, ScalingState, Seconds, decide};

/// What decides, and how often.
#[derive(Clone, Debug)]
pub struct Driver {
    policy: Option<Policy>,
    limits: Limits,
    state: Option<ScalingState>,
    collector: Option<Collector>,
    period: usize,
    fixed: i32,
}

impl Driver {
    /// A constant number of pods.
    pub fn fixed(pods: i32) -> Self {
        Self { policy: None, limits: Limits::default(), state: None, collector: None, period: 15, fixed: pods }
    }

    /// A policy within the simulation's bounds that decides every `period` seconds.
    pub fn policy(policy: Policy, limits: Limits, spec: &SimSpec, period: usize) -> Self {
        let limits = Limits { min_replicas: spec.min_pods, max_replicas: spec.max_pods, ..limits };
        let collector = if let Policy::Kpa(spec) = &policy { Some(Collector::new(spec)) } else { None };
        Self { policy: Some(policy), limits, state: None, collector, period: period.max(1), fixed: 0 }
    }

    /// The same driver, starting from a learned Q-table.
    pub fn with_table(mut self, table: QTable) -> Self {
        let policy = PolicyState::QLearning(Box::new(QLearningState::from_table(table)));
        self.state = Some(ScalingState { version: STATE_VERSION, policy, limits: Default::default() });
        self
    }

    /// The Q-table learned so far; none for other policies.
    pub fn table(&self) -> Option<&QTable> {
        match &self.state.as_ref()?.policy {
            PolicyState::QLearning(memory) => Some(&memory.table),
            PolicyState::Threshold | PolicyState::Kpa(_) => None,
        }
    }

    fn decide(&mut self, simulation: &Simulation, since: &Totals) -> i32 {
        let Some(policy) = &self.policy else { return self.fixed };
        let observation = match policy {
            Policy::Threshold(_) => Observation::Threshold(threshold(simulation, since, self.period as f64)),
            Policy::Kpa(_) => Observation::Kpa(kpa(simulation, self.collector.as_ref())),
            Policy::QLearning(_) => Observation::QLearning(qlearning(simulation, since)),
        };
        let (asked, ready) = simulation.pods();
        let state = self.state.take().unwrap_or_else(|| ScalingState::new(policy, &self.limits, simulation.now(), ready));
        let (record, mut state) = decide(policy, &self.limits, state, &observation);
        let want = record.want.unwrap_or(asked);
        state.limits.applied(&self.limits, simulation.now(), asked, want);
        self.state = Some(state);
        want
    }
}

/// One period of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// End of the period, in seconds of the trace.
    pub at: Seconds,
    /// Pods that were set.
    pub pods: i32,
    /// Pods that were ready at the end of the period.
    pub ready: i32,
    /// What happened in the period.
    pub totals: Totals,
}

/// A run: its totals and its periods.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Totals over the whole run.
    pub totals: Totals,
    /// The periods.
    pub course: Vec<Sample>,
}

/// Simulates the arrivals; the driver decides.
pub fn drive(spec: &SimSpec, arrivals: &Arrivals, driver: &mut Driver) -> Run {
    let initial = if driver.policy.is_none() { driver.fixed } else { spec.initial_pods };
    let mut simulation = Simulation::new(&SimSpec { initial_pods: initial, ..spec.clone() }, arrivals.start());
    let (mut totals, mut since, mut course) = (Totals::default(), Totals::default(), Vec::new());
    for second in 0..arrivals.seconds() {
        let passed = simulation.advance(arrivals.second(second));
        if let Some(collector) = &mut driver.collector {
            // The requests of a second are known when it is over.
            collector.record(simulation.now() - 1.0, passed.arrived);
        }
        since.add(&passed);
        if (second + 1) % driver.period == 0 {
            let (pods, ready) = simulation.pods();
            course.push(Sample { at: simulation.now(), pods, ready, totals: since });
            totals.add(&since);
            let want = driver.decide(&simulation, &since);
            simulation.scale(want);
            since = Totals::default();
        }
    }
    totals.add(&since);
    Run { totals, course }
}

/// The pods as the HPA controller would list them: starting pods are not ready, and metrics cover the last period.
fn threshold(simulation: &Simulation, since: &Totals, period: Seconds) -> ThresholdObservation {
    let (asked, _) = simulation.pods();
    let now = simulation.now();
    #[expect(clippy::cast_possible_truncation, reason = "thousandths of a share")]
    let used = (since.cpu() * 1_000.0).round() as i64;
    let pods = simulation.starts().iter().enumerate().map(|(index, &(start, ready))| {
        let serves = ready <= now;
        Pod {
            name: format!("pod-{index}"),
            ready: Some(ReadyCondition { status: Some(serves), since: Some(if serves { ready } else { start }) }),
            start_time: Some(start),
            metric_time: Some(now),
            metric_window: period,
            usage: if serves { BTreeMap::from([("cpu".to_owned(), used)]) } else { BTreeMap::new() },
            requests: BTreeMap::from([("cpu".to_owned(), 1_000)]),
            ..Pod::default()
        }
    });
    let pods = Reading::Value(pods.collect());
    ThresholdObservation { at: now, replicas: asked, status_replicas: Some(asked), pods, external: BTreeMap::new() }
}

fn kpa(simulation: &Simulation, collector: Option<&Collector>) -> KpaObservation {
    let (asked, ready) = simulation.pods();
    let none = || (Reading::Absent("nothing is measured".to_owned()), Reading::Absent("nothing is measured".to_owned()));
    let (stable, panic) = collector.map_or_else(none, |collector| collector.read(simulation.now() - 1.0));
    KpaObservation { at: simulation.now(), replicas: asked, ready: Reading::Value(ready), stable, panic }
}

/// What a learner observes after a period: `since` has the totals of that period.
pub(super) fn qlearning(simulation: &Simulation, since: &Totals) -> QLearningObservation {
    QLearningObservation {
        at: simulation.now(),
        pods: simulation.pods().0,
        cpu: Reading::Value(since.cpu()),
        expired: Reading::Value(since.expired),
        pod_seconds: Reading::Value(since.pod_seconds),
    }
}
