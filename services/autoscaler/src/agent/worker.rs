//! Scales the workload of one policy for as long as this agent acts.
//!
//! A worker starts with nothing but the policy's status (and changes that the worker before could not write into it), so a restart and a
//! change of the acting agent are the same: nothing is scaled down for one stabilisation window.

use std::sync::Arc;
use std::time::Duration;

use drover_autoscaling::qlearning::QTable;
use drover_autoscaling::{Carried, DecisionRecord, Mode, Observation, Policy, PolicyKind, PolicyState, Reason, ScalingState, decide};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::Context;
use super::inbox::Key;
use super::learner::ShadowComparison;
use super::observe::{Observed, Observer, ObserverMemory};
use super::report::{HEARTBEAT, StatusReporter};
use super::tables::LearnedTables;
use super::target::{CallError, Target};
use crate::path;
use crate::policy::{Plan, ScalingPolicy, WatchedPolicy};
use crate::status::TableStatus;

/// Number of periods after which what was learned is saved.
const KEEP_EVERY: u32 = 20;
/// Wait before a status that could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// The worker of one policy.
pub struct Worker {
    context: Arc<Context>,
    key: Key,
    watched: watch::Receiver<Arc<WatchedPolicy>>,
    report: StatusReporter,
    state: Option<ScalingState>,
    memory: ObserverMemory,
    /// Nothing is scaled down before this time.
    settling_until: Option<f64>,
    /// Replicas at the last observation; shows what others changed while this agent only recommends.
    seen: Option<i32>,
    tables: Option<LearnedTables>,
    comparison: Option<ShadowComparison>,
    fell_back: bool,
    unsaved: u32,
    /// What the agent of another cluster remembered, until it is used.
    carried: Option<Carried>,
}

impl Worker {
    /// Creates a worker. `watched` is the policy, now and after each change; `status` is the status that an agent wrote last.
    pub fn new(context: Arc<Context>, key: Key, watched: watch::Receiver<Arc<WatchedPolicy>>, status: Value) -> Self {
        let report = StatusReporter::new(context.clone(), key.clone(), watched.borrow().metadata.uid.as_ref(), status);
        let fell_back = report.had_fallen_back(&watched.borrow());
        let carried = if report.has_decided() { None } else { watched.borrow().carried() };
        Self {
            context,
            key,
            watched,
            report,
            state: None,
            memory: ObserverMemory::default(),
            settling_until: None,
            seen: None,
            tables: None,
            comparison: None,
            fell_back,
            unsaved: 0,
            carried,
        }
    }

    /// Works until the policy's sender is dropped.
    pub async fn run(mut self) {
        let mut first = true;
        loop {
            let watched = self.watched.borrow_and_update().clone();
            let plan = Plan::of(&watched.spec);
            let go_on = match plan {
                Ok(plan) if plan.mode() != Mode::Off => {
                    self.report.accepted(&watched).await;
                    self.decide_until_changed(&watched, &plan, first).await
                }
                Ok(_) => {
                    self.report.off(&watched);
                    self.wait(&watched).await
                }
                Err(why) => {
                    self.report.refused(&watched, why).await;
                    self.wait(&watched).await
                }
            };
            if !go_on {
                break;
            }
            first = false;
            if self.fell_back || !self.watched.borrow().same_tables(&watched) {
                // The learner is tried again, or somebody put another Q-table in place.
                (self.state, self.tables, self.comparison) = (None, None, None);
            }
            self.fell_back = false;
        }
        self.keep().await;
        self.context.inbox.close(&self.key, self.watched.borrow().metadata.uid.as_ref());
        self.context.forget(&self.key);
    }

    /// Writes the status and waits until the policy changes. False: the policy is gone.
    async fn wait(&mut self, watched: &WatchedPolicy) -> bool {
        self.context.forget(&self.key);
        loop {
            self.report.publish(watched, HEARTBEAT, || None).await;
            tokio::select! {
                changed = self.watched.changed() => return changed.is_ok(),
                () = tokio::time::sleep(AGAIN), if self.report.unpublished() => {}
            }
        }
    }

    /// Decides in every period until the policy changes. False: the policy is gone.
    async fn decide_until_changed(&mut self, watched: &WatchedPolicy, plan: &Plan, first: bool) -> bool {
        let kpa = match &plan.policy {
            Policy::Kpa(spec) => Some(spec),
            Policy::Threshold(_) | Policy::QLearning(_) => None,
        };
        let poke = self.context.inbox.open(&self.key, watched.metadata.uid.as_ref(), kpa);
        self.go_on(plan);
        let period = Duration::from_secs_f64(plan.spec.scaling.period());
        // The first decisions of all policies are spread over the period, so that a restart causes no burst.
        let phase = if first { period.mul_f64(phase(&self.key)) } else { Duration::ZERO };
        let mut ticks = interval_at(Instant::now() + phase, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                changed = self.watched.changed() => return changed.is_ok(),
                _ = ticks.tick() => {}
                // Requests for a workload at zero replicas do not wait for the end of the period.
                () = poke.notified(), if self.seen == Some(0) => {}
            }
            self.run_period(watched, plan).await;
        }
    }

    /// Goes on with what the agent of another cluster remembered, if the app was moved here.
    fn go_on(&mut self, plan: &Plan) {
        let now = self.context.clock.now();
        let Some(carried) = self.carried.take().filter(|carried| carried.is_usable(now)).map(|carried| carried.shifted_to(now)) else {
            return;
        };
        if let Some(windows) = &carried.windows {
            self.context.inbox.refill(&self.key, now, windows);
        }
        self.state = Some(carried.state(&plan.policy, &plan.limits));
        tracing::info!(policy = ?self.key, "going on with what the agent of another cluster remembered");
    }

    /// One period: observe, decide, carry out, report.
    async fn run_period(&mut self, watched: &WatchedPolicy, plan: &Plan) {
        let context = self.context.clone();
        match context.kinds.read(&context.client, &self.key.0, &plan.spec.scaling.target).await {
            Ok(target) => self.decide(watched, plan, &target).await,
            Err(trouble) => {
                // A learner learns nothing from this period, because the result of its last action was not observed.
                self.context.metrics.failed(&self.key);
                self.report.target_lost(watched, plan, &trouble).await;
            }
        }
        // Windows of requests are short: what is remembered of them is to be no older than half of one when the app moves.
        let every = match &plan.policy {
            Policy::Kpa(spec) => HEARTBEAT.min(Duration::from_secs_f64(spec.stable_window / 2.0)),
            Policy::Threshold(_) | Policy::QLearning(_) => HEARTBEAT,
        };
        let (inbox, key, state, now) = (&context.inbox, &self.key, &self.state, context.clock.now());
        self.report.publish(watched, every, || Some(inbox.remembered(key, state.as_ref()?, now))).await;
    }

    async fn decide(&mut self, watched: &WatchedPolicy, plan: &Plan, target: &Target) {
        if plan.kind() == PolicyKind::QLearning && self.tables.is_none() && !self.load(watched, plan).await {
            return;
        }
        let policy = if self.fell_back { plan.shadow() } else { plan.policy.clone() };
        let context = self.context.clone();
        let observer = Observer { context: &context, key: &self.key, plan, target };
        let Observed { observation, trouble, ready } = observer.observe(&policy, &mut self.memory).await;
        let (at, current) = (observation.at(), target.replicas());
        let fits = self.state.take().filter(|state| state.fits(&policy));
        let mut state = fits.unwrap_or_else(|| ScalingState::new(&policy, &plan.limits, at, ready));
        if plan.mode() == Mode::Recommend
            && let Some(before) = self.seen
        {
            state.limits.applied(&plan.limits, at, before, current);
        }
        let (mut record, mut state) = decide(&policy, &plan.limits, state, &observation);
        let until = *self.settling_until.get_or_insert(at + plan.settling());
        hold_while_settling(&mut record, plan, until - at);
        self.update_path(plan, &mut record);

        let done = record.changes() && plan.mode() == Mode::Apply && self.carry_out(watched, plan, target, &mut record, &mut state).await;
        self.seen = Some(if done { record.want.unwrap_or(current) } else { current });
        if let PolicyState::QLearning(learner) = &mut state.policy {
            learner.carried_out(self.seen.unwrap_or(current));
        }
        self.report.decided(watched, plan, &record, ready, trouble, done).await;
        self.state = Some(state);
        if let (Policy::QLearning(_), Observation::QLearning(_)) = (&policy, &record.inputs) {
            self.learn(watched, plan, &record).await;
        }
    }

    /// Keeps the request path of a KPA target in line with the decision. The path in turn delays the removal of the last pod.
    fn update_path(&self, plan: &Plan, record: &mut DecisionRecord) {
        let Policy::Kpa(spec) = &plan.policy else { return };
        if record.reason == Reason::Pinned || self.context.leadership.remaining().is_none() {
            return;
        }
        let key = path::Key { namespace: self.key.0.clone(), policy: self.key.1.clone() };
        let apply = plan.mode() == Mode::Apply;
        let write = self.context.keeper.carry_out(&key, spec, &plan.limits, record, apply);
        let held = write.unwrap_or(record.current);
        if let Some(want) = record.want.filter(|want| *want != held) {
            record.want = Some(held);
            record.message = format!(
                "{}; {want} not applied: the last pod stays until activators are in the path and its grace period is over",
                record.message
            );
        }
    }

    async fn carry_out(
        &self,
        watched: &WatchedPolicy,
        plan: &Plan,
        target: &Target,
        record: &mut DecisionRecord,
        state: &mut ScalingState,
    ) -> bool {
        let Some(want) = record.want else { return false };
        let leadership = self.context.leadership.clone();
        match target.set_replicas(want, || leadership.remaining()).await {
            Ok(()) => {
                state.limits.applied(&plan.limits, record.at, record.current, want);
                self.context.metrics.scaled(&self.key);
                true
            }
            // The agent that acts now reports its own decision.
            Err(CallError::NotLeading) => false,
            Err(trouble) => {
                self.context.metrics.failed(&self.key);
                record.message = format!("{}; not applied: {trouble}", record.message);
                self.report.not_scaled(watched, want, &trouble).await;
                false
            }
        }
    }

    /// Loads the Q-table. False: there is no usable one, and nothing is scaled.
    async fn load(&mut self, watched: &WatchedPolicy, plan: &Plan) -> bool {
        let owner = owner(watched);
        match LearnedTables::load(&self.context.client, &self.key.0, &owner, plan).await {
            Ok((table, kept)) => {
                self.report.learning(watched, !self.fell_back, None).await;
                self.report.table(TableStatus { config_map: super::tables::name(&owner.name), version: kept.version });
                self.tables = Some(kept);
                self.take(table, plan);
                true
            }
            Err(why) => {
                self.context.metrics.failed(&self.key);
                self.report.table_unusable(watched, why).await;
                false
            }
        }
    }

    fn take(&mut self, table: QTable, plan: &Plan) {
        let fits = self.state.take().filter(|state| state.fits(&plan.policy));
        let mut state = fits.unwrap_or_else(|| ScalingState::new(&plan.policy, &plan.limits, self.context.clock.now(), 0));
        if let PolicyState::QLearning(learner) = &mut state.policy {
            (learner.table, learner.last) = (table, None);
        }
        self.state = Some(state);
    }

    /// Compares the costs of the learner and of the threshold policy beside it, and replaces a learner that costs too much. Saves what was learned
    /// every [`KEEP_EVERY`] periods.
    async fn learn(&mut self, watched: &WatchedPolicy, plan: &Plan, record: &DecisionRecord) {
        let (Policy::QLearning(spec), Observation::QLearning(seen)) = (&plan.policy, &record.inputs) else { return };
        let comparison = self.comparison.get_or_insert_with(|| ShadowComparison::new(record.current));
        if let Some(costs) = comparison.step(plan, spec, seen) {
            self.unsaved += 1;
            self.context.metrics.cost(&self.key, costs.learner, costs.shadow);
            // The measured cost is the learner's own only if its decisions are applied.
            if plan.mode() == Mode::Apply && costs.too_expensive(plan.spec.shadow.tolerance) {
                self.fell_back = true;
                self.report.learning(watched, false, Some(costs)).await;
                self.keep().await;
                self.comparison = None;
            }
        }
        if self.unsaved >= KEEP_EVERY {
            self.keep().await;
        }
    }

    async fn keep(&mut self) {
        let (Some(kept), Some(ScalingState { policy: PolicyState::QLearning(learner), .. })) = (&mut self.tables, &mut self.state) else {
            return;
        };
        if self.unsaved == 0 || self.context.leadership.remaining().is_none() {
            return;
        }
        match kept.keep(&learner.table).await {
            Ok(None) => self.unsaved = 0,
            Ok(Some(other)) => {
                tracing::info!(policy = ?self.key, version = kept.version, "another Q-table was put in place and is loaded");
                (learner.table, learner.last, self.unsaved) = (other, None, 0);
            }
            Err(why) => tracing::warn!(policy = ?self.key, why, "what was learned could not be saved; trying again"),
        }
        self.report.table(TableStatus { config_map: super::tables::name(&self.key.1), version: kept.version });
    }
}

/// Prevents scaling down until this agent has observed the workload for one stabilisation window. A pinned number is not changed.
fn hold_while_settling(record: &mut DecisionRecord, plan: &Plan, left: f64) {
    let floor = record.current.min(plan.limits.max_replicas);
    let Some(want) = record.want.filter(|want| left > 0.0 && *want < floor && record.reason != Reason::Pinned) else { return };
    record.want = Some(floor);
    record.reason = Reason::Settling;
    record.message = format!(
        "{}; {want} not applied: this agent has observed it for less than one stabilisation window, {left:.0} s to go",
        record.message
    );
}

fn owner(watched: &WatchedPolicy) -> OwnerReference {
    OwnerReference {
        api_version: ScalingPolicy::api_version(&()).into_owned(),
        kind: ScalingPolicy::kind(&()).into_owned(),
        name: watched.metadata.name.clone().unwrap_or_default(),
        uid: watched.metadata.uid.clone().unwrap_or_default(),
        ..Default::default()
    }
}

/// Share of the period before a policy's first decision, derived from its name.
fn phase(key: &Key) -> f64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    f64::from(u16::try_from(hasher.finish() % 1_000).unwrap_or(0)) / 1_000.0
}
