//! What the users of a policy see: its status, Events and metrics.

use std::sync::Arc;
use std::time::Duration;

use drover_autoscaling::{Carried, DecisionRecord, Mode, Reason, Steps};
use http::{Request, header};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};
use kube::{Resource, ResourceExt};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::inbox::Key;
use super::learner::Costs;
use super::target::{CallError, within};
use super::{Context, Decided};
use crate::policy::{Plan, ScalingPolicy, WatchedPolicy};
use crate::status::{ConditionType, ScalingPolicyStatus, TableStatus};
use crate::wire::Standing;

/// A status without changes is written this often, to show that an agent is at work.
pub const HEARTBEAT: Duration = Duration::from_secs(60);
/// Label of what Drover applied for a copy of an app, with the copy's id.
const BINDING: &str = "drover.io/binding";
/// Reason of the condition `Learning` after the threshold policy replaced the learner.
const FELL_BACK: &str = "FellBack";

/// Reports on one policy.
pub struct StatusReporter {
    context: Arc<Context>,
    key: Key,
    /// Without the last decision once this agent made one: the full record is large, and kept only once (in `last`).
    status: ScalingPolicyStatus,
    last: Option<Arc<DecisionRecord>>,
    published: Option<(ScalingPolicyStatus, Instant)>,
}

impl StatusReporter {
    /// Continues from an existing status of the policy with this uid.
    pub fn new(context: Arc<Context>, key: Key, uid: Option<&String>, status: Value) -> Self {
        let mut status: ScalingPolicyStatus = serde_json::from_value(status).unwrap_or_default();
        if let Some(changes) = uid.and_then(|uid| context.unwritten().get(uid).cloned()) {
            status.recall(changes);
        }
        Self { context, key, status, last: None, published: None }
    }

    /// Whether the learner was already replaced under this specification, so that a restart does not try it again.
    pub fn had_fallen_back(&self, watched: &WatchedPolicy) -> bool {
        self.status.observed_generation == watched.metadata.generation
            && self.status.condition(ConditionType::Learning).is_some_and(|condition| condition.reason == FELL_BACK)
    }

    /// Whether an agent has decided about this policy here before.
    pub fn has_decided(&self) -> bool {
        self.status.decided_at.is_some() || !self.status.history.is_empty()
    }

    /// Reports that the specification can be used.
    pub async fn accepted(&mut self, watched: &WatchedPolicy) {
        self.status.observed_generation = watched.metadata.generation;
        self.set(watched, ConditionType::Accepted, true, "Valid", "the specification can be used".to_owned()).await;
    }

    /// Reports that the specification cannot be used, and that nothing is scaled.
    pub async fn refused(&mut self, watched: &WatchedPolicy, why: String) {
        self.forget(watched);
        self.set(watched, ConditionType::Accepted, false, "Invalid", format!("{why}; nothing is scaled until this is corrected")).await;
    }

    /// Reports that the policy is switched off.
    pub fn off(&mut self, watched: &WatchedPolicy) {
        self.forget(watched);
        self.status.set(ConditionType::Accepted, true, "Off", "mode is off: nothing is decided");
    }

    /// Removes what was decided under an earlier specification.
    fn forget(&mut self, watched: &WatchedPolicy) {
        let history = std::mem::take(&mut self.status.history);
        let conditions = std::mem::take(&mut self.status.conditions);
        let observed_generation = watched.metadata.generation;
        self.status = ScalingPolicyStatus { observed_generation, history, ..Default::default() };
        self.last = None;
        self.status.conditions = conditions.into_iter().filter(|condition| condition.kind == ConditionType::Accepted.name()).collect();
    }

    /// Reports that the target could not be read, and that nothing is decided.
    pub async fn target_lost(&mut self, watched: &WatchedPolicy, plan: &Plan, trouble: &CallError) {
        let target = &plan.spec.scaling.target;
        let missing = matches!(trouble, CallError::Api(kube::Error::Api(status)) if status.code == 404);
        let reason = if missing { "NotFound" } else { "Unreadable" };
        let message = format!("{} {} cannot be read: {trouble}; nothing is decided", target.kind, target.name);
        self.status.desired_replicas = None;
        self.set(watched, ConditionType::TargetReady, false, reason, message).await;
    }

    /// Reports that a decision could not be carried out.
    pub async fn not_scaled(&self, watched: &WatchedPolicy, want: i32, trouble: &CallError) {
        self.event(watched, EventType::Warning, "NotScaled", format!("{want} replicas could not be set: {trouble}")).await;
    }

    /// Reports a decision; `done`: it was carried out.
    pub async fn decided(
        &mut self,
        watched: &WatchedPolicy,
        plan: &Plan,
        record: &DecisionRecord,
        ready: i32,
        trouble: Option<String>,
        done: bool,
    ) {
        self.context.metrics.decided(&self.key, record.current, record.want);
        let before = self.status.history.first().cloned();
        self.status.note(record, done);
        if done && let Some(uid) = &watched.metadata.uid {
            self.context.unwritten().insert(uid.clone(), self.status.history.clone());
        }
        let burst = match &record.steps {
            Steps::Kpa(steps) if record.want.is_some() => Some(steps.excess_burst_capacity),
            Steps::Kpa(_) | Steps::Threshold(_) | Steps::QLearning(_) => None,
        };
        self.status.excess_burst_capacity = burst;
        let shared = Arc::new(record.clone());
        let standing = Standing { want: record.want, ready, excess_burst_capacity: burst };
        let binding = watched.labels().get(BINDING).and_then(|id| id.parse().ok());
        self.context.publish_decision(&self.key, Decided { standing, record: shared.clone(), binding });
        (self.last, self.status.last_decision) = (Some(shared), None);
        let on = record.reason != Reason::ScalingDisabled;
        let message = if on { "the target can be read and has pods of its own" } else { &record.message };
        self.set(watched, ConditionType::TargetReady, on, if on { "Read" } else { "ScalingDisabled" }, message.to_owned()).await;
        match trouble {
            None => {
                _ = self
                    .set(watched, ConditionType::MetricsRead, true, "Read", "everything that the policy needs was read".to_owned())
                    .await
            }
            Some(why) => {
                let reason = if record.want.is_some() { "Partly" } else { "Missing" };
                self.set(watched, ConditionType::MetricsRead, false, reason, why).await;
            }
        }
        if done && let Some(want) = record.want {
            let message = format!("{} -> {want}: {} ({:?})", record.current, record.message, record.reason);
            self.event(watched, EventType::Normal, "Scaled", message).await;
        } else if plan.mode() == Mode::Recommend
            && record.changes()
            && self.status.history.first() != before.as_ref()
            && let Some(want) = record.want
        {
            self.event(watched, EventType::Normal, "Recommended", format!("{} -> {want}: {}", record.current, record.message)).await;
        }
    }

    /// Reports whether the learner decides; `costs` are the reason if it does not.
    pub async fn learning(&mut self, watched: &WatchedPolicy, holds: bool, costs: Option<Costs>) {
        let (reason, message) = match (holds, costs) {
            (true, _) => ("Deciding", "the learner decides".to_owned()),
            (false, Some(costs)) => (
                FELL_BACK,
                format!(
                    "the learner cost {:.0} pod-seconds, the threshold policy beside it {:.0}: the threshold policy decides until this policy is changed",
                    costs.learner, costs.shadow
                ),
            ),
            // Known from before a restart: the earlier message stays.
            (false, None) => return,
        };
        self.set(watched, ConditionType::Learning, holds, reason, message).await;
    }

    /// Reports that there is no usable Q-table, and that nothing is scaled.
    pub async fn table_unusable(&mut self, watched: &WatchedPolicy, why: String) {
        self.status.desired_replicas = None;
        self.set(watched, ConditionType::Learning, false, "TableUnusable", format!("{why}; nothing is scaled until this is corrected"))
            .await;
    }

    /// Reports where the learned Q-table is kept.
    pub fn table(&mut self, table: TableStatus) {
        self.status.table = (table.version > 0).then_some(table);
    }

    /// Sets a condition, and writes an Event if it changed.
    async fn set(&mut self, watched: &WatchedPolicy, kind: ConditionType, holds: bool, reason: &str, message: String) {
        let known = self.status.condition(kind).is_some();
        if self.status.set(kind, holds, reason, message.clone()) && (known || !holds) {
            let kind = if holds { EventType::Normal } else { EventType::Warning };
            self.event(watched, kind, reason, message).await;
        }
    }

    async fn event(&self, watched: &WatchedPolicy, kind: EventType, reason: &str, message: String) {
        if self.context.leadership.remaining().is_none() {
            return;
        }
        let (namespace, name) = (&self.key.0, &self.key.1);
        tracing::info!(policy = format!("{namespace}/{name}"), reason, "{message}");
        let policy = ObjectReference {
            api_version: Some(ScalingPolicy::api_version(&()).into_owned()),
            kind: Some(ScalingPolicy::kind(&()).into_owned()),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            uid: watched.metadata.uid.clone(),
            resource_version: watched.metadata.resource_version.clone(),
            ..Default::default()
        };
        let mut note = message;
        note.truncate(note.floor_char_boundary(1_000));
        let event = Event { type_: kind, reason: reason.to_owned(), note: Some(note), action: "Scale".to_owned(), secondary: None };
        if let Err(error) = within(self.context.recorder.publish(&event, &policy)).await {
            tracing::warn!(%error, "an Event could not be written");
        }
    }

    /// Whether the status differs from the one that was written last.
    pub fn unpublished(&self) -> bool {
        self.published.as_ref().is_none_or(|(published, _)| !published.same_story(&self.status))
    }

    /// Writes the status if it changed, or has not been written for as long as `every`, together with what is remembered then.
    pub async fn publish(&mut self, watched: &WatchedPolicy, every: Duration, remembered: impl FnOnce() -> Option<Carried>) {
        let due = self.published.as_ref().is_none_or(|(_, at)| at.elapsed() >= every);
        if !(due || self.unpublished()) || self.context.leadership.remaining().is_none() {
            return;
        }
        self.status.remembered = remembered().and_then(|carried| serde_json::to_value(carried).ok());
        match self.write(watched).await {
            Ok(()) => {
                self.published = Some((self.status.clone(), Instant::now()));
                self.context.unwritten().remove(watched.metadata.uid.as_deref().unwrap_or_default());
            }
            Err(trouble) => {
                self.published = None;
                tracing::debug!(policy = ?self.key, %trouble, "the status could not be written; trying again");
            }
        }
    }

    /// Writes the whole status at once, so that nothing of an older one remains, and only to the policy (uid) that was read.
    async fn write(&self, watched: &WatchedPolicy) -> Result<(), CallError> {
        let path = format!("{}/{}/status", ScalingPolicy::url_path(&(), Some(&self.key.0)), self.key.1);
        let mut status = self.status.clone();
        if let Some(last) = &self.last {
            status.last_decision = serde_json::to_value(last).ok();
        }
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": watched.metadata.uid},
            {"op": "add", "path": "/status", "value": status},
        ]);
        let body = serde_json::to_vec(&patch).map_err(|error| CallError::Unusable(error.to_string()))?;
        let request = Request::patch(path).header(header::CONTENT_TYPE, "application/json-patch+json").body(body);
        let request = request.map_err(|error| CallError::Unusable(error.to_string()))?;
        within(self.context.client.request::<IgnoredAny>(request)).await.map(|_| ())
    }
}
