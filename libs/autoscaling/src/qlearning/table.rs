//! The Q-table: what is known, in a versioned format that travels between clusters.

use serde::{Deserialize, Serialize};

/// CPU buckets: tenths, and a last one for full.
pub const BUCKETS: usize = 11;
/// Changes of the number of pods.
pub const ACTIONS: [i32; 3] = [-1, 0, 1];
/// Version of [`QTable`]'s format.
pub const TABLE_VERSION: u32 = 1;
/// Pods a table may span: beyond it learning by single steps has lost its point.
const MOST_PODS: i32 = 10_000;

/// Bucket of a CPU share: tenths; 10 only for full. Measured CPU may be above the request.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the share is within 0..1")]
pub fn bucket(cpu: f64) -> usize {
    if cpu >= 1.0 - 1e-6 { BUCKETS - 1 } else { ((cpu.max(0.0) * 10.0 + 1e-9).floor() as usize).min(BUCKETS - 2) }
}

/// Expected value of each action in each state, in minus pod-seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QTable {
    /// [`TABLE_VERSION`].
    pub version: u32,
    /// Fewest pods.
    pub min_pods: i32,
    /// Most pods.
    pub max_pods: i32,
    /// [`BUCKETS`].
    pub buckets: usize,
    /// [`ACTIONS`].
    pub actions: Vec<i32>,
    /// Simulated passes it was trained over.
    #[serde(default)]
    pub passes: u32,
    /// Values by pods, bucket, action.
    values: Vec<f64>,
}

/// A table that cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this Q-table cannot be used: {0}; train one with `drover autoscale train`")]
pub struct TableError(pub String);

impl QTable {
    /// Knows nothing: all values 0, which costs being negative makes it try everything.
    pub fn new(min_pods: i32, max_pods: i32) -> Self {
        let min_pods = min_pods.clamp(1, MOST_PODS);
        let max_pods = max_pods.clamp(min_pods, MOST_PODS);
        let pods = usize::try_from(max_pods - min_pods + 1).unwrap_or(1);
        let values = vec![0.0; pods * BUCKETS * ACTIONS.len()];
        Self { version: TABLE_VERSION, min_pods, max_pods, buckets: BUCKETS, actions: ACTIONS.to_vec(), passes: 0, values }
    }

    /// Refuses a table of another version, other bounds or with values that are no numbers.
    pub fn check(&self, min_pods: i32, max_pods: i32) -> Result<(), TableError> {
        let shape = Self::new(min_pods, max_pods);
        let differs = |what: &str, has: String, needs: String| Err(TableError(format!("its {what} is {has}, needed is {needs}")));
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

    /// Index of the first action of a state.
    fn state(&self, pods: i32, bucket: usize) -> usize {
        let row = usize::try_from(pods.clamp(self.min_pods, self.max_pods) - self.min_pods).unwrap_or(0);
        (row * BUCKETS + bucket.min(BUCKETS - 1)) * ACTIONS.len()
    }

    /// Value of an action (an index into [`ACTIONS`]).
    pub fn value(&self, pods: i32, bucket: usize, action: usize) -> f64 {
        self.values[self.state(pods, bucket) + action]
    }

    /// The same, to be changed.
    pub(crate) fn value_mut(&mut self, pods: i32, bucket: usize, action: usize) -> &mut f64 {
        let state = self.state(pods, bucket);
        &mut self.values[state + action]
    }

    /// Whether an action (an index into [`ACTIONS`]) stays within the bounds.
    pub fn legal(&self, pods: i32, action: usize) -> bool {
        (self.min_pods..=self.max_pods).contains(&pods.saturating_add(ACTIONS[action]))
    }
}
