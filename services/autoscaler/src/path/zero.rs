//! The last pod of an app, and the first: when replicas that were decided are written (spec 1.7; the rules are `kpa::zero`).
//!
//! Not here: who is in the path; that is asked for ([`Around`]). Invariant: the last pod goes only when activators have been in the path, and
//! have answered for this app.

use drover_autoscaling::kpa::KpaSpec;
use drover_autoscaling::kpa::zero::{Activity, Situation, Step, UNKNOWN, activity, step};
use drover_autoscaling::{Limits, Seconds};

/// Seconds that a start may take (Knative's default).
const PROGRESS_DEADLINE: Seconds = 600.0;

/// What is around an app at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Around {
    /// Now, in seconds of the same origin each time.
    pub at: Seconds,
    /// Pods decided; none: nothing could be decided.
    pub want: Option<i32>,
    /// Pods asked for now.
    pub replicas: i32,
    /// Pods that are ready.
    pub ready: i32,
    /// For how long activators have been in the path; none: they are not.
    pub proxied_for: Option<Seconds>,
    /// Whether they answer for this app.
    pub answers: bool,
}

/// What is remembered of one app.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Life {
    activity: Activity,
    since: Seconds,
    initialized: bool,
}

impl Life {
    /// As found. What is at zero was alive once; an app with pods counts as active from now on, so that a restart takes no last pod early.
    pub fn found(around: &Around) -> Self {
        let activity = match (around.replicas, around.ready) {
            (0, 0) => Activity::Inactive,
            (_, 0) => Activity::Activating,
            _ => Activity::Active,
        };
        Self { activity, since: around.at, initialized: around.replicas == 0 }
    }

    /// The next step.
    pub fn step(&mut self, spec: &KpaSpec, limits: &Limits, around: &Around) -> Step {
        self.initialized |= around.ready >= spec.initial_scale;
        let step = step(
            spec,
            &Situation {
                desired: around.want.unwrap_or(UNKNOWN),
                min: limits.min_replicas,
                max: limits.max_replicas,
                initialized: self.initialized,
                enabled: limits.min_replicas == 0,
                activity: self.activity,
                activity_for: around.at - self.since,
                proxied_for: around.proxied_for,
                probe: Some(around.answers),
                progress_deadline: PROGRESS_DEADLINE,
            },
        );
        let next = activity(step.want, around.ready, limits.min_replicas, spec.initial_scale, self.initialized, self.activity);
        if next != self.activity {
            *self = Self { activity: next, since: around.at, ..*self };
        }
        step
    }
}
