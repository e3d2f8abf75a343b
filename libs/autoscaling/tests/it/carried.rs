//! What is remembered goes along with a move: the first minute there is what the next minute here would have been.

use drover_autoscaling::kpa::{Collector, KpaMetric, KpaObservation, KpaSpec};
use drover_autoscaling::threshold::ThresholdSpec;
use drover_autoscaling::{Behavior, Carried, Limits, Observation, Policy, PolicyKind, Reading, ScalingState, decide, limit_only};
use proptest::prelude::*;

/// A KPA policy with a workload that has as many pods as were decided.
struct Place {
    spec: KpaSpec,
    state: ScalingState,
    collector: Collector,
    pods: i32,
}

fn limits() -> Limits {
    let behavior: Behavior = serde_json::from_str(
        r#"{"scaleUp":{"policies":[{"type":"Pods","value":3,"periodSeconds":10}]},"scaleDown":{"stabilizationWindowSeconds":40}}"#,
    )
    .unwrap();
    Limits { min_replicas: 1, max_replicas: 50, behavior: Some(behavior), ..Limits::default() }
}

impl Place {
    fn new() -> Self {
        let spec = KpaSpec { target: Some(10.0), scale_down_delay: 20.0, ..KpaSpec::default() };
        let state = ScalingState::new(&Policy::Kpa(spec.clone()), &limits(), 0.0, 1);
        let collector = Collector::new(&spec);
        Self { spec, state, collector, pods: 1 }
    }

    /// One period of 2 s with this many requests at once. Returns the decision.
    fn period(&mut self, now: f64, load: u32) -> Option<i32> {
        for second in [now - 1.0, now] {
            self.collector.record(second, f64::from(load));
        }
        let (stable, panic) = self.collector.read(now);
        let seen = Observation::Kpa(KpaObservation { at: now, replicas: self.pods, ready: Reading::Value(self.pods), stable, panic });
        let (record, mut state) = decide(&Policy::Kpa(self.spec.clone()), &limits(), self.state.clone(), &seen);
        if let Some(want) = record.want.filter(|want| *want != self.pods) {
            state.limits.applied(&limits(), now, self.pods, want);
            self.pods = want;
        }
        self.state = state;
        record.want
    }

    /// The same place in another cluster, whose clock shows `there` when it shows `here` here.
    fn moved(&self, here: f64, there: f64) -> Self {
        let carried = Carried::of(&self.state, here, Some((KpaMetric::Concurrency, &self.collector)));
        let text = serde_json::to_string(&carried).unwrap();
        let carried = serde_json::from_str::<Carried>(&text).unwrap().shifted_to(there);
        let mut moved = Self { state: carried.state(&Policy::Kpa(self.spec.clone()), &limits()), ..Self::new() };
        moved.pods = self.pods;
        carried.windows.into_iter().flat_map(|windows| windows.values).for_each(|(at, value)| moved.collector.record(at, value));
        moved
    }
}

proptest! {
    /// For any load before and after: every decision of the first minute is that of a place that did not move.
    #[test]
    fn first_minute_there_is_the_next_minute_here(before in prop::collection::vec(0..200_u32, 1..60), after in prop::collection::vec(0..200_u32, 30), ahead in -150..150_i32) {
        let mut here = Place::new();
        let mut now = 1_000.0;
        for load in before {
            here.period(now, load);
            now += 2.0;
        }
        // Slots have two seconds, and a clock that is an odd second ahead begins them in between.
        let ahead = f64::from(ahead * 2);
        let mut there = here.moved(now, now + ahead);
        for load in after {
            now += 2.0;
            prop_assert_eq!(here.period(now, load), there.period(now + ahead, load));
        }
    }
}

#[test]
fn stabilisation_window_goes_along() {
    let limits = Limits { downscale_stabilization: 300.0, ..Limits::default() };
    let policy = Policy::Threshold(ThresholdSpec::default());
    let state = ScalingState::new(&policy, &limits, 0.0, 8);
    let (_, state) = limit_only(&limits, state, 1_000.0, 8, 8);
    let carried = Carried::of(&state, 1_010.0, None);
    assert!(carried.is_usable(1_500.0) && !carried.is_usable(2_000.0) && !carried.is_usable(100.0));
    let there = carried.shifted_to(50.0).state(&policy, &limits);
    let want = |at| limit_only(&limits, there.clone(), at, 8, 2).0.want;
    assert_eq!((want(60.0), want(330.0)), (Some(8), Some(8)), "the proposal of the other cluster still counts");
    assert_eq!(want(345.0), Some(2));
    let new = ScalingState::new(&policy, &limits, 50.0, 8);
    assert_eq!(limit_only(&limits, new, 60.0, 8, 2).0.want, Some(2), "without it nothing is remembered");
    assert_eq!(policy.kind(), PolicyKind::Threshold);
}
