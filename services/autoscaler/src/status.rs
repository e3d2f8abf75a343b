//! The status of a `ScalingPolicy`: the last decision and its reason, and conditions that say what prevents scaling.

use std::cmp::Reverse;

use drover_autoscaling::DecisionRecord;
use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Number of changes kept in the status.
const HISTORY: usize = 10;

/// The last decision and its reason, and conditions that say what prevents scaling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalingPolicyStatus {
    /// Generation of the specification that this status belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Replicas that were set at the last decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i32>,
    /// Replicas decided; none: the replicas stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// Reason of the decision, as a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Reason of the decision, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the last decision was made.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
    /// `kpa`: burst capacity that is left; below 0 the activator must be in the request path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess_burst_capacity: Option<i32>,
    /// `qlearning`: the learned Q-table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableStatus>,
    /// What the agent remembers of the policy, which goes along when the app moves to another cluster.
    #[schemars(schema_with = "anything")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remembered: Option<Value>,
    /// What prevents scaling, and what does not.
    pub conditions: Vec<Condition>,
    /// Changes of the replicas, newest first.
    pub history: Vec<Change>,
    /// The last decision with all its inputs.
    #[schemars(schema_with = "anything")]
    pub last_decision: Option<Value>,
}

/// An earlier change of the replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Replicas before.
    pub from: i32,
    /// Replicas after.
    pub to: i32,
    /// Whether it was carried out, or only recommended.
    pub done: bool,
    /// Reason, as a code.
    pub reason: String,
    /// Reason, as a sentence.
    pub message: String,
}

/// Where the learned Q-table is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TableStatus {
    /// ConfigMap with its versions.
    pub config_map: String,
    /// The newest version.
    pub version: u64,
}

/// Something that may prevent scaling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// One of [`ConditionType`]'s names.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True` or `False`.
    pub status: String,
    /// Reason, as a code.
    pub reason: String,
    /// Reason, as a sentence that says what to do.
    pub message: String,
    /// When `status` last changed.
    #[schemars(with = "String")]
    pub last_transition_time: Timestamp,
}

/// Types of condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionType {
    /// The specification can be used.
    Accepted,
    /// The target can be read and scaled.
    TargetReady,
    /// Everything that the policy needs was read.
    MetricsRead,
    /// The Q-table can be used, and the learner decides.
    Learning,
}

impl ConditionType {
    /// The name as written in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::TargetReady => "TargetReady",
            Self::MetricsRead => "MetricsRead",
            Self::Learning => "Learning",
        }
    }
}

impl ScalingPolicyStatus {
    /// The condition of a type, if it has been set.
    pub fn condition(&self, kind: ConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind.name())
    }

    /// Sets a condition. Returns true if its status or reason changed; a new message does not count.
    pub fn set(&mut self, kind: ConditionType, holds: bool, reason: &str, message: impl Into<String>) -> bool {
        let status = if holds { "True" } else { "False" };
        let before = self.condition(kind).cloned();
        let turned = before.as_ref().is_none_or(|before| before.status != status);
        let last_transition_time = before.as_ref().filter(|_| !turned).map_or_else(Timestamp::now, |before| before.last_transition_time);
        self.conditions.retain(|condition| condition.kind != kind.name());
        self.conditions.push(Condition {
            kind: kind.name().to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            last_transition_time,
        });
        before.is_none_or(|before| before.status != status || before.reason != reason)
    }

    /// Records a decision, except for [`Self::last_decision`], which is added when the status is written.
    pub fn note(&mut self, record: &DecisionRecord, done: bool) {
        let now = Timestamp::now();
        let reason = format!("{:?}", record.reason);
        if let Some(to) = record.want.filter(|_| record.changes()) {
            let change = Change { at: now, from: record.current, to, done, reason: reason.clone(), message: record.message.clone() };
            // A recommendation that is repeated is recorded once.
            if !self.history.first().is_some_and(|last| (last.from, last.to, last.done) == (change.from, to, done) && !done) {
                self.history.insert(0, change);
                self.history.truncate(HISTORY);
            }
        }
        self.current_replicas = Some(record.current);
        self.desired_replicas = record.want;
        self.reason = Some(reason);
        self.message = Some(record.message.clone());
        self.decided_at = Some(now);
    }

    /// Adds those of `changes` that the history lacks because the status could not be written after them.
    pub fn recall(&mut self, changes: Vec<Change>) {
        for change in changes {
            if !self.history.contains(&change) {
                self.history.push(change);
            }
        }
        self.history.sort_by_key(|change| Reverse(change.at));
        self.history.truncate(HISTORY);
    }

    /// Whether the other status differs in nothing but times, message and the full record.
    pub fn same_story(&self, other: &Self) -> bool {
        let plain = |status: &Self| {
            let mut status = status.clone();
            status.decided_at = None;
            status.last_decision = None;
            status.remembered = None;
            status.message = None;
            status
        };
        plain(self) == plain(other)
    }
}

fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(second: i64) -> Change {
        let (reason, message) = ("DesiredWithinRange".to_owned(), "1 proposed".to_owned());
        Change { at: Timestamp::from_second(second).unwrap(), from: 4, to: 1, done: true, reason, message }
    }

    #[test]
    fn changes_that_were_not_written_take_their_places_in_the_history_once() {
        let mut status = ScalingPolicyStatus { history: vec![change(30), change(10)], ..Default::default() };
        status.recall(vec![change(20), change(30)]);
        assert_eq!(status.history, [change(30), change(20), change(10)]);
        status.recall((40..60).map(change).collect());
        assert_eq!(status.history, (50..60).rev().map(change).collect::<Vec<_>>());
    }
}
