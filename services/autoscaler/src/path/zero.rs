//! When the decided replicas of an app are written at the step to zero and from zero (the rules are in `kpa::zero`).
//!
//! Who is in the path is input ([`AppObservation`]). Invariant: the last pod is removed only after activators were in the path and
//! confirmed that they serve this app.

use drover_autoscaling::kpa::KpaSpec;
use drover_autoscaling::kpa::zero::{Activity, Situation, UNKNOWN, ZeroStep, activity, step};
use drover_autoscaling::{Limits, Seconds};

/// Seconds that a start may take (Knative's default).
const PROGRESS_DEADLINE: Seconds = 600.0;

/// What is known of an app at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppObservation {
    /// Time of the observation in seconds; the origin is always the same.
    pub at: Seconds,
    /// Pods decided; none: nothing could be decided.
    pub want: Option<i32>,
    /// Pods that are set now.
    pub replicas: i32,
    /// Ready pods.
    pub ready: i32,
    /// How long activators have been in the path; none: they are not.
    pub proxied_for: Option<Seconds>,
    /// Whether the activators serve this app.
    pub answers: bool,
}

/// What is remembered of one app.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppActivity {
    activity: Activity,
    since: Seconds,
    initialized: bool,
}

impl AppActivity {
    /// The first state. An app at zero was active once; an app with pods counts as active from now on, so that a restart does not remove its
    /// last pod too early.
    pub fn initial(observed: &AppObservation) -> Self {
        let activity = match (observed.replicas, observed.ready) {
            (0, 0) => Activity::Inactive,
            (_, 0) => Activity::Activating,
            _ => Activity::Active,
        };
        Self { activity, since: observed.at, initialized: observed.replicas == 0 }
    }

    /// The next step.
    pub fn step(&mut self, spec: &KpaSpec, limits: &Limits, observed: &AppObservation) -> ZeroStep {
        self.initialized |= observed.ready >= spec.initial_scale;
        let step = step(
            spec,
            &Situation {
                desired: observed.want.unwrap_or(UNKNOWN),
                min: limits.min_replicas,
                max: limits.max_replicas,
                initialized: self.initialized,
                enabled: limits.min_replicas == 0,
                activity: self.activity,
                activity_for: observed.at - self.since,
                proxied_for: observed.proxied_for,
                probe: Some(observed.answers),
                progress_deadline: PROGRESS_DEADLINE,
            },
        );
        let next = activity(step.want, observed.ready, limits.min_replicas, spec.initial_scale, self.initialized, self.activity);
        if next != self.activity {
            *self = Self { activity: next, since: observed.at, ..*self };
        }
        step
    }
}
