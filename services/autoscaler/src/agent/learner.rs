//! Runs a threshold policy beside a learner without applying it: it computes what that policy would have cost under the same load. A learner
//! that costs more is replaced by the threshold policy.
//!
//! Both costs are `pod-seconds + penalty · expired requests`. The learner's cost is measured. The cost of the threshold policy is computed from
//! the measured load (served requests by CPU, plus expired ones) and the capacity curve; pods that it adds serve one period later.

use std::collections::VecDeque;

use drover_autoscaling::qlearning::{QLearningObservation, QLearningSpec};
use drover_autoscaling::threshold::{Phase, Pod, ReadyCondition, ThresholdObservation};
use drover_autoscaling::{Limits, Observation, Reading, ScalingState, decide};

use crate::policy::Plan;

/// The learner and the threshold policy beside it.
#[derive(Clone, Debug)]
pub struct ShadowComparison {
    shadow: Option<ScalingState>,
    /// Pods of the threshold policy: wanted, and serving.
    pods: (i32, i32),
    before: Option<f64>,
    costs: VecDeque<(f64, f64)>,
}

/// Both costs over the window, in pod-seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    pub learner: f64,
    pub shadow: f64,
    /// Whether there were enough periods to compare the costs.
    pub enough: bool,
}

impl Costs {
    /// Whether the learner costs more than the threshold policy by more than the share `tolerance`.
    pub fn too_expensive(&self, tolerance: f64) -> bool {
        self.enough && self.learner > self.shadow * (1.0 + tolerance)
    }
}

impl ShadowComparison {
    /// Starts with the current number of pods.
    pub fn new(pods: i32) -> Self {
        Self { shadow: None, pods: (pods, pods), before: None, costs: VecDeque::new() }
    }

    /// Adds the period that ended with this observation. None: a value was not read, and the period is not counted for either.
    pub fn step(&mut self, plan: &Plan, spec: &QLearningSpec, seen: &QLearningObservation) -> Option<Costs> {
        let before = self.before.replace(seen.at)?;
        let (cpu, expired, pod_seconds) = (seen.cpu.fresh()?, seen.expired.fresh()?, seen.pod_seconds.fresh()?);
        let seconds = seen.at - before;
        if seconds <= 0.0 {
            return None;
        }
        let load = cpu.clamp(0.0, 1.0) * spec.capacity.of(seen.pods) + expired / seconds;

        let (asked, serving) = self.pods;
        let capacity = spec.capacity.of(serving).max(f64::MIN_POSITIVE);
        let missed = (load - capacity).max(0.0) * seconds;
        let shadow = f64::from(asked) * seconds + spec.penalty * missed;
        self.costs.push_back((pod_seconds + spec.penalty * expired, shadow));
        while self.costs.len() > plan.spec.shadow.window as usize {
            self.costs.pop_front();
        }

        let want = self.decide(plan, seen.at, (load / capacity).min(1.0));
        self.pods = (want, want.min(asked));
        let (learner, shadow) = self.costs.iter().fold((0.0, 0.0), |sums, costs| (sums.0 + costs.0, sums.1 + costs.1));
        Some(Costs { learner, shadow, enough: self.costs.len() * 2 >= plan.spec.shadow.window as usize })
    }

    fn decide(&mut self, plan: &Plan, at: f64, cpu: f64) -> i32 {
        let policy = plan.shadow();
        let limits = Limits { pause: None, pin: None, ..plan.limits.clone() };
        let long_ago = Some(at - 1e6);
        #[expect(clippy::cast_possible_truncation, reason = "a share of 1000")]
        let pod = Pod {
            phase: Phase::Running,
            ready: Some(ReadyCondition { status: Some(true), since: long_ago }),
            start_time: long_ago,
            usage: [("cpu".to_owned(), (cpu * 1_000.0) as i64)].into(),
            requests: [("cpu".to_owned(), 1_000)].into(),
            ..Pod::default()
        };
        let pods = (0..self.pods.0).map(|index| Pod { name: index.to_string(), ..pod.clone() }).collect();
        let seen = ThresholdObservation { pods: Reading::Value(pods), ..ThresholdObservation::without_metrics(at, self.pods.0) };
        let state = self.shadow.take().unwrap_or_else(|| ScalingState::new(&policy, &limits, at, self.pods.0));
        let (record, mut state) = decide(&policy, &limits, state, &Observation::Threshold(seen));
        let want = record.want.unwrap_or(self.pods.0);
        state.limits.applied(&limits, at, self.pods.0, want);
        self.shadow = Some(state);
        want
    }
}

#[cfg(test)]
mod tests {
    use drover_autoscaling::Policy;
    use drover_autoscaling::Reading::{Absent, Value};
    use drover_autoscaling::qlearning::QLearningObservation;
    use serde_json::json;

    use super::ShadowComparison;
    use crate::policy::Plan;

    fn plan() -> Plan {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let spec = json!({"target": target, "policy": "qlearning", "maxReplicas": 4, "shadow": {"window": 20},
                          "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}});
        Plan::of(&spec).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Runs `pods` pods under `load` requests per second.
    fn run(pods: i32, load: f64) -> (super::Costs, Plan) {
        let plan = plan();
        let Policy::QLearning(spec) = &plan.policy else { panic!("another policy") };
        let mut comparison = ShadowComparison::new(pods);
        let capacity = spec.capacity.of(pods);
        let mut last = None;
        for period in 0..30 {
            let seen = QLearningObservation {
                at: f64::from(period) * 15.0,
                pods,
                cpu: Value((load / capacity).min(1.0)),
                expired: Value((load - capacity).max(0.0) * 15.0),
                pod_seconds: Value(f64::from(pods) * 15.0),
            };
            last = comparison.step(&plan, spec, &seen);
        }
        (last.unwrap_or_else(|| panic!("no costs")), plan)
    }

    #[test]
    fn learner_with_too_many_or_too_few_pods_is_too_expensive() {
        for (pods, load, expensive) in [(4, 50.0, true), (1, 600.0, true), (1, 150.0, false), (3, 500.0, false)] {
            let (costs, plan) = run(pods, load);
            assert!(costs.enough);
            assert_eq!(costs.too_expensive(plan.spec.shadow.tolerance), expensive, "{pods} pods, {load} requests per second: {costs:?}");
        }
    }

    #[test]
    fn step_skips_periods_with_missing_readings() {
        let plan = plan();
        let Policy::QLearning(spec) = &plan.policy else { panic!("another policy") };
        let mut comparison = ShadowComparison::new(4);
        for period in 0..30 {
            let expired = Absent("not reported".to_owned());
            let seen = QLearningObservation { at: f64::from(period), pods: 4, cpu: Value(0.0), expired, pod_seconds: Value(4.0) };
            assert_eq!(comparison.step(&plan, spec, &seen), None);
        }
    }
}
