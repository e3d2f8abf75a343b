//! What a policy's users see: its status, Events and metrics.

use std::sync::Arc;
use std::time::Duration;

use drover_autoscaling::{DecisionRecord, Mode, Reason, Steps};
use http::{Request, header};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::events::{Event, EventType};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Context;
use super::inbox::Key;
use super::learner::Costs;
use super::target::{Trouble, within};
use crate::policy::{Plan, ScalingPolicy, Written};
use crate::status::{Kind, ScalingPolicyStatus, TableStatus};
use crate::wire::Standing;

/// A status that tells nothing new is written this often, so that one sees that somebody looks.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// Reason of the condition `Learning` after the learner was relieved.
const RELIEVED: &str = "FellBack";

/// Reports on one policy.
pub struct Reporter {
    context: Arc<Context>,
    key: Key,
    /// Without its last decision, once there is one of our own: a record in full is large, and kept once.
    status: ScalingPolicyStatus,
    last: Option<Arc<DecisionRecord>>,
    published: Option<(ScalingPolicyStatus, Instant)>,
}

impl Reporter {
    /// Goes on from the status that is there.
    pub fn new(context: Arc<Context>, key: Key, status: Value) -> Self {
        Self { context, key, status: serde_json::from_value(status).unwrap_or_default(), last: None, published: None }
    }

    /// Whether the learner was relieved under this very specification: a restart does not give it another try.
    pub fn was_relieved(&self, written: &Written) -> bool {
        self.status.observed_generation == written.metadata.generation
            && self.status.condition(Kind::Learning).is_some_and(|condition| condition.reason == RELIEVED)
    }

    /// The specification can be used.
    pub async fn accepted(&mut self, written: &Written) {
        self.status.observed_generation = written.metadata.generation;
        self.set(written, Kind::Accepted, true, "Valid", "the specification can be used".to_owned()).await;
    }

    /// The specification cannot be used: nothing is scaled.
    pub async fn refused(&mut self, written: &Written, why: String) {
        self.forget(written);
        self.set(written, Kind::Accepted, false, "Invalid", format!("{why}; nothing is scaled until this is right")).await;
    }

    /// The policy is switched off.
    pub fn off(&mut self, written: &Written) {
        self.forget(written);
        self.status.set(Kind::Accepted, true, "Off", "mode is off: nothing is decided");
    }

    /// What was decided under another specification says nothing about this one.
    fn forget(&mut self, written: &Written) {
        let history = std::mem::take(&mut self.status.history);
        let conditions = std::mem::take(&mut self.status.conditions);
        let observed_generation = written.metadata.generation;
        self.status = ScalingPolicyStatus { observed_generation, history, ..Default::default() };
        self.last = None;
        self.status.conditions = conditions.into_iter().filter(|condition| condition.kind == Kind::Accepted.word()).collect();
    }

    /// The target could not be read: nothing is decided.
    pub async fn target_lost(&mut self, written: &Written, plan: &Plan, trouble: &Trouble) {
        let target = &plan.spec.scaling.target;
        let missing = matches!(trouble, Trouble::Api(kube::Error::Api(status)) if status.code == 404);
        let reason = if missing { "NotFound" } else { "Unreadable" };
        let message = format!("{} {} cannot be read: {trouble}; nothing is decided", target.kind, target.name);
        self.status.desired_replicas = None;
        self.set(written, Kind::TargetReady, false, reason, message).await;
    }

    /// A decision could not be carried out.
    pub async fn not_scaled(&self, written: &Written, want: i32, trouble: &Trouble) {
        self.event(written, EventType::Warning, "NotScaled", format!("{want} replicas could not be asked for: {trouble}")).await;
    }

    /// A decision was made, and carried out if `done`.
    pub async fn decided(
        &mut self,
        written: &Written,
        plan: &Plan,
        record: &DecisionRecord,
        ready: i32,
        trouble: Option<String>,
        done: bool,
    ) {
        self.context.metrics.decided(&self.key, record.current, record.want);
        let before = self.status.history.first().cloned();
        self.status.note(record, done);
        let burst = match &record.steps {
            Steps::Kpa(steps) if record.want.is_some() => Some(steps.excess_burst_capacity),
            Steps::Kpa(_) | Steps::Threshold(_) | Steps::QLearning(_) => None,
        };
        self.status.excess_burst_capacity = burst;
        let shared = Arc::new(record.clone());
        self.context.show(&self.key, Standing { want: record.want, ready, excess_burst_capacity: burst }, shared.clone());
        (self.last, self.status.last_decision) = (Some(shared), None);
        let on = record.reason != Reason::ScalingDisabled;
        let message = if on { "the target can be read and has pods of its own" } else { &record.message };
        self.set(written, Kind::TargetReady, on, if on { "Read" } else { "ScalingDisabled" }, message.to_owned()).await;
        match trouble {
            None => _ = self.set(written, Kind::MetricsRead, true, "Read", "all that the policy needs was read".to_owned()).await,
            Some(why) => {
                let reason = if record.want.is_some() { "Partly" } else { "Missing" };
                self.set(written, Kind::MetricsRead, false, reason, why).await;
            }
        }
        if done && let Some(want) = record.want {
            let message = format!("{} -> {want}: {} ({:?})", record.current, record.message, record.reason);
            self.event(written, EventType::Normal, "Scaled", message).await;
        } else if plan.mode() == Mode::Recommend
            && record.changes()
            && self.status.history.first() != before.as_ref()
            && let Some(want) = record.want
        {
            self.event(written, EventType::Normal, "Recommended", format!("{} -> {want}: {}", record.current, record.message)).await;
        }
    }

    /// Whether the learner decides; `costs`: why not.
    pub async fn learning(&mut self, written: &Written, holds: bool, costs: Option<Costs>) {
        let (reason, message) = match (holds, costs) {
            (true, _) => ("Deciding", "the learner decides".to_owned()),
            (false, Some(costs)) => (
                RELIEVED,
                format!(
                    "the learner cost {:.0} pod-seconds, the threshold policy beside it {:.0}: it decides until this policy is changed",
                    costs.learner, costs.shadow
                ),
            ),
            // Known from before a restart: the sentence of then stays.
            (false, None) => return,
        };
        self.set(written, Kind::Learning, holds, reason, message).await;
    }

    /// There is no table that could be used: nothing is scaled.
    pub async fn table_unusable(&mut self, written: &Written, why: String) {
        self.status.desired_replicas = None;
        self.set(written, Kind::Learning, false, "TableUnusable", format!("{why}; nothing is scaled until this is right")).await;
    }

    /// Where the learned table is.
    pub fn table(&mut self, table: TableStatus) {
        self.status.table = (table.version > 0).then_some(table);
    }

    /// Sets a condition; one that turned is an Event, too.
    async fn set(&mut self, written: &Written, kind: Kind, holds: bool, reason: &str, message: String) {
        let known = self.status.condition(kind).is_some();
        if self.status.set(kind, holds, reason, message.clone()) && (known || !holds) {
            let kind = if holds { EventType::Normal } else { EventType::Warning };
            self.event(written, kind, reason, message).await;
        }
    }

    async fn event(&self, written: &Written, kind: EventType, reason: &str, message: String) {
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
            uid: written.metadata.uid.clone(),
            resource_version: written.metadata.resource_version.clone(),
            ..Default::default()
        };
        let mut note = message;
        note.truncate(note.floor_char_boundary(1_000));
        let event = Event { type_: kind, reason: reason.to_owned(), note: Some(note), action: "Scale".to_owned(), secondary: None };
        if let Err(error) = within(self.context.recorder.publish(&event, &policy)).await {
            tracing::warn!(%error, "an Event could not be written");
        }
    }

    /// Whether the status is not as the API server has it.
    pub fn unpublished(&self) -> bool {
        self.published.as_ref().is_none_or(|(published, _)| !published.same_story(&self.status))
    }

    /// Writes the status if it tells something new, or has not been written for a while.
    pub async fn publish(&mut self, written: &Written) {
        let due = self.published.as_ref().is_none_or(|(_, at)| at.elapsed() >= HEARTBEAT);
        if !(due || self.unpublished()) || self.context.leadership.remaining().is_none() {
            return;
        }
        match self.write(written).await {
            Ok(()) => self.published = Some((self.status.clone(), Instant::now())),
            Err(trouble) => {
                self.published = None;
                tracing::debug!(policy = ?self.key, %trouble, "the status could not be written; it is tried again");
            }
        }
    }

    /// The whole status at once, so that nothing of an older one remains; only of the policy that was read.
    async fn write(&self, written: &Written) -> Result<(), Trouble> {
        let path = format!("{}/{}/status", ScalingPolicy::url_path(&(), Some(&self.key.0)), self.key.1);
        let mut status = self.status.clone();
        if let Some(last) = &self.last {
            status.last_decision = serde_json::to_value(last).ok();
        }
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": written.metadata.uid},
            {"op": "add", "path": "/status", "value": status},
        ]);
        let body = serde_json::to_vec(&patch).map_err(|error| Trouble::Unusable(error.to_string()))?;
        let request = Request::patch(path).header(header::CONTENT_TYPE, "application/json-patch+json").body(body);
        let request = request.map_err(|error| Trouble::Unusable(error.to_string()))?;
        within(self.context.client.request::<IgnoredAny>(request)).await.map(|_| ())
    }
}
