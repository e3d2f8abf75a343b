//! The Q-table in a versioned format that can be moved between clusters.

use serde::{Deserialize, Serialize};

/// CPU buckets: one per tenth, and a last one for full CPU.
pub const BUCKETS: usize = 11;
/// Possible changes of the number of pods.
pub const ACTIONS: [i32; 3] = [-1, 0, 1];
/// Version of [`QTable`]'s format.
pub const TABLE_VERSION: u32 = 1;
/// The largest number of pods in a table. Changing by one pod per decision is too slow for more.
const MOST_PODS: i32 = 10_000;

/// Bucket of a CPU share: one per tenth, and the last one from 1 up. Measured CPU may be above the request.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the share is within 0..1")]
pub fn bucket(cpu: f64) -> usize {
    if cpu >= 1.0 - 1e-6 { BUCKETS - 1 } else { ((cpu.max(0.0) * 10.0 + 1e-9).floor() as usize).min(BUCKETS - 2) }
}

/// Expected value of each action in each state, in negative pod-seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QTable {
    /// [`TABLE_VERSION`].
    pub version: u32,
    /// Minimum number of pods.
    pub min_pods: i32,
    /// Maximum number of pods.
    pub max_pods: i32,
    /// [`BUCKETS`].
    pub buckets: usize,
    /// [`ACTIONS`].
    pub actions: Vec<i32>,
    /// Simulated passes that the table was trained with.
    #[serde(default)]
    pub passes: u32,
    /// Values by pods, then bucket, then action.
    values: Vec<f64>,
}

/// A table that cannot be used with this policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this Q-table cannot be used: {0}; train one with `drover autoscale train`")]
pub struct TableError(pub String);

impl QTable {
    /// A table without experience. All values are 0; since costs are negative, every action is tried.
    pub fn new(min_pods: i32, max_pods: i32) -> Self {
        let min_pods = min_pods.clamp(1, MOST_PODS);
        let max_pods = max_pods.clamp(min_pods, MOST_PODS);
        let pods = usize::try_from(max_pods - min_pods + 1).unwrap_or(1);
        let values = vec![0.0; pods * BUCKETS * ACTIONS.len()];
        Self { version: TABLE_VERSION, min_pods, max_pods, buckets: BUCKETS, actions: ACTIONS.to_vec(), passes: 0, values }
    }

    /// Checks version, bounds, shape and values.
    ///
    /// # Errors
    /// If the table has another version, other bounds or another shape, or a value that is not finite.
    pub fn check(&self, min_pods: i32, max_pods: i32) -> Result<(), TableError> {
        let shape = Self::new(min_pods, max_pods);
        let differs = |what: &str, has: String, needs: String| Err(TableError(format!("its {what} is {has}, but {needs} is needed")));
        if self.version != TABLE_VERSION {
            return differs("version", self.version.to_string(), TABLE_VERSION.to_string());
        }
        if (self.min_pods, self.max_pods) != (min_pods, max_pods) {
            return differs("range of pods", format!("{}..{}", self.min_pods, self.max_pods), format!("{min_pods}..{max_pods}"));
        }
        if (self.buckets, &self.actions) != (shape.buckets, &shape.actions) {
            return differs(
                "shape",
                format!("{} buckets, actions {:?}", self.buckets, self.actions),
                format!("{BUCKETS} buckets, actions {ACTIONS:?}"),
            );
        }
        if self.values.len() != shape.values.len() || !self.values.iter().all(|value| value.is_finite()) {
            return differs("values", format!("{} numbers", self.values.len()), format!("{} finite numbers", shape.values.len()));
        }
        Ok(())
    }

    /// Index of a state's first action in `values`.
    fn state(&self, pods: i32, bucket: usize) -> usize {
        let row = usize::try_from(pods.clamp(self.min_pods, self.max_pods) - self.min_pods).unwrap_or(0);
        (row * BUCKETS + bucket.min(BUCKETS - 1)) * ACTIONS.len()
    }

    /// Value of an action (an index into [`ACTIONS`]).
    pub fn value(&self, pods: i32, bucket: usize, action: usize) -> f64 {
        self.values[self.state(pods, bucket) + action]
    }

    /// Mutable value of an action.
    pub(crate) fn value_mut(&mut self, pods: i32, bucket: usize, action: usize) -> &mut f64 {
        let state = self.state(pods, bucket);
        &mut self.values[state + action]
    }

    /// Whether an action (an index into [`ACTIONS`]) stays within the bounds.
    pub fn legal(&self, pods: i32, action: usize) -> bool {
        (self.min_pods..=self.max_pods).contains(&pods.saturating_add(ACTIONS[action]))
    }
}
