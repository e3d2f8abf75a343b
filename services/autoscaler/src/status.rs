//! The status of a `ScalingPolicy`: what was decided last and why, and what stands in the way.

use drover_autoscaling::DecisionRecord;
use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Decisions that changed something, kept in the status.
const HISTORY: usize = 10;

/// What was decided last and why, and what stands in the way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalingPolicyStatus {
    /// Generation of the specification that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Replicas asked for when it was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i32>,
    /// Replicas decided; none: everything stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// The decision in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The decision in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
    /// `kpa`: room for a burst; below 0 the activator belongs into the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess_burst_capacity: Option<i32>,
    /// `qlearning`: the learned table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableStatus>,
    /// What stands in the way, and what does not.
    pub conditions: Vec<Condition>,
    /// Changes, newest first.
    pub history: Vec<Change>,
    /// The last decision with all that it came from.
    #[schemars(schema_with = "anything")]
    pub last_decision: Option<Value>,
}

/// A change of the past.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// When.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Replicas before.
    pub from: i32,
    /// Replicas after.
    pub to: i32,
    /// Whether it was carried out, or only recommended.
    pub done: bool,
    /// In a word.
    pub reason: String,
    /// In a sentence.
    pub message: String,
}

/// Where the learned table is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TableStatus {
    /// ConfigMap that keeps its versions.
    pub config_map: String,
    /// The newest version kept.
    pub version: u64,
}

/// Something that stands in the way, or does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// One of [`Kind`]'s words.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True` or `False`.
    pub status: String,
    /// In a word.
    pub reason: String,
    /// In a sentence, with what to do.
    pub message: String,
    /// Since when the status is what it is.
    #[schemars(with = "String")]
    pub last_transition_time: Timestamp,
}

/// Conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The specification can be used.
    Accepted,
    /// The target can be read and scaled.
    TargetReady,
    /// What the policy needs was read.
    MetricsRead,
    /// The Q-table can be used, and decides.
    Learning,
}

impl Kind {
    /// As written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::TargetReady => "TargetReady",
            Self::MetricsRead => "MetricsRead",
            Self::Learning => "Learning",
        }
    }
}

impl ScalingPolicyStatus {
    /// A condition.
    pub fn condition(&self, kind: Kind) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind.word())
    }

    /// Sets a condition; true if it is another than before (its sentence apart).
    pub fn set(&mut self, kind: Kind, holds: bool, reason: &str, message: impl Into<String>) -> bool {
        let status = if holds { "True" } else { "False" };
        let before = self.condition(kind).cloned();
        let turned = before.as_ref().is_none_or(|before| before.status != status);
        let last_transition_time = before.as_ref().filter(|_| !turned).map_or_else(Timestamp::now, |before| before.last_transition_time);
        self.conditions.retain(|condition| condition.kind != kind.word());
        self.conditions.push(Condition {
            kind: kind.word().to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            last_transition_time,
        });
        before.is_none_or(|before| before.status != status || before.reason != reason)
    }

    /// Takes a decision down, but for the record in full ([`Self::last_decision`]): that is put in when the status is written.
    pub fn note(&mut self, record: &DecisionRecord, done: bool) {
        let now = Timestamp::now();
        let reason = format!("{:?}", record.reason);
        if let Some(to) = record.want.filter(|_| record.changes()) {
            let change = Change { at: now, from: record.current, to, done, reason: reason.clone(), message: record.message.clone() };
            // What is recommended over and over is one recommendation.
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

    /// Whether another status would tell a reader nothing new but the time.
    pub fn same_story(&self, other: &Self) -> bool {
        let plain = |status: &Self| {
            let mut status = status.clone();
            status.decided_at = None;
            status.last_decision = None;
            status.message = None;
            status
        };
        plain(self) == plain(other)
    }
}

fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true})
}
