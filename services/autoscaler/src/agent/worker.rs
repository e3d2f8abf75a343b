//! One policy, looked after for as long as this agent acts.
//!
//! A worker begins with nothing but the policy's status, so a restart and a change of the acting agent are the same: for one
//! stabilisation window nothing is scaled down.

use std::sync::Arc;
use std::time::Duration;

use drover_autoscaling::qlearning::QTable;
use drover_autoscaling::{DecisionRecord, Mode, Observation, Policy, PolicyKind, PolicyState, Reason, State, decide};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::Context;
use super::inbox::Key;
use super::learner::Rivalry;
use super::observe::{Look, Looker, Memory};
use super::report::Reporter;
use super::tables::Kept;
use super::target::{Target, Trouble};
use crate::path;
use crate::policy::{Plan, ScalingPolicy, Written};
use crate::status::TableStatus;

/// Periods learned from before what was learned is kept.
const KEEP_EVERY: u32 = 20;
/// A status that could not be written is tried again after this time.
const AGAIN: Duration = Duration::from_secs(10);

/// Looks after one policy.
pub struct Worker {
    context: Arc<Context>,
    key: Key,
    written: watch::Receiver<Arc<Written>>,
    report: Reporter,
    state: Option<State>,
    memory: Memory,
    /// Until then nothing is scaled down.
    settling_until: Option<f64>,
    /// Replicas seen last: what others did while this agent only recommends.
    seen: Option<i32>,
    tables: Option<Kept>,
    rivalry: Option<Rivalry>,
    relieved: bool,
    unkept: u32,
}

impl Worker {
    /// A worker for the policy that `written` shows, now and after each change; `status` is what this agent, or one before it, left.
    pub fn new(context: Arc<Context>, key: Key, written: watch::Receiver<Arc<Written>>, status: Value) -> Self {
        let report = Reporter::new(context.clone(), key.clone(), status);
        let relieved = report.was_relieved(&written.borrow());
        Self {
            context,
            key,
            written,
            report,
            state: None,
            memory: Memory::default(),
            settling_until: None,
            seen: None,
            tables: None,
            rivalry: None,
            relieved,
            unkept: 0,
        }
    }

    /// Looks after the policy until its sender is dropped.
    pub async fn run(mut self) {
        let mut first = true;
        loop {
            let written = self.written.borrow_and_update().clone();
            let plan = Plan::of(&written.spec);
            let go_on = match plan {
                Ok(plan) if plan.mode() != Mode::Off => {
                    self.report.accepted(&written).await;
                    self.pursue(&written, &plan, first).await
                }
                Ok(_) => {
                    self.report.off(&written);
                    self.wait(&written).await
                }
                Err(why) => {
                    self.report.refused(&written, why).await;
                    self.wait(&written).await
                }
            };
            if !go_on {
                break;
            }
            first = false;
            if self.relieved || !self.written.borrow().same_tables(&written) {
                // The learner gets another try, or somebody put another table in place.
                (self.state, self.tables, self.rivalry) = (None, None, None);
            }
            self.relieved = false;
        }
        self.keep().await;
        self.context.inbox.close(&self.key);
        self.context.forget(&self.key);
    }

    /// Nothing to do until the policy changes, but to get its status written.
    async fn wait(&mut self, written: &Written) -> bool {
        self.context.forget(&self.key);
        loop {
            self.report.publish(written).await;
            tokio::select! {
                changed = self.written.changed() => return changed.is_ok(),
                () = tokio::time::sleep(AGAIN), if self.report.unpublished() => {}
            }
        }
    }

    /// Decides in every period until the policy changes. False: it is over.
    async fn pursue(&mut self, written: &Written, plan: &Plan, first: bool) -> bool {
        let kpa = match &plan.policy {
            Policy::Kpa(spec) => Some(spec),
            Policy::Threshold(_) | Policy::QLearning(_) => None,
        };
        let poke = self.context.inbox.open(&self.key, kpa);
        let period = Duration::from_secs_f64(plan.spec.scaling.period());
        // Spread over the period, so that a restart is no burst.
        let phase = if first { period.mul_f64(phase(&self.key)) } else { Duration::ZERO };
        let mut ticks = interval_at(Instant::now() + phase, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                changed = self.written.changed() => return changed.is_ok(),
                _ = ticks.tick() => {}
                // Requests for a workload at zero are not kept waiting for the period.
                () = poke.notified(), if self.seen == Some(0) => {}
            }
            self.turn(written, plan).await;
        }
    }

    /// One period: look, decide, carry out, say why.
    async fn turn(&mut self, written: &Written, plan: &Plan) {
        let context = self.context.clone();
        match context.kinds.read(&context.client, &self.key.0, &plan.spec.scaling.target).await {
            Ok(target) => self.decide(written, plan, &target).await,
            Err(trouble) => {
                // The period is lost to a learner: what came of its last action was not seen.
                self.context.metrics.failed(&self.key);
                self.report.target_lost(written, plan, &trouble).await;
            }
        }
        self.report.publish(written).await;
    }

    async fn decide(&mut self, written: &Written, plan: &Plan, target: &Target) {
        if plan.kind() == PolicyKind::QLearning && self.tables.is_none() && !self.load(written, plan).await {
            return;
        }
        let policy = if self.relieved { plan.shadow() } else { plan.policy.clone() };
        let context = self.context.clone();
        let looker = Looker { context: &context, key: &self.key, plan, target };
        let Look { observation, trouble, ready } = looker.look(&policy, &mut self.memory).await;
        let (at, current) = (observation.at(), target.replicas());
        let fits = self.state.take().filter(|state| state.fits(&policy));
        let mut state = fits.unwrap_or_else(|| State::new(&policy, &plan.limits, at, ready));
        if plan.mode() == Mode::Recommend
            && let Some(before) = self.seen
        {
            state.limits.applied(&plan.limits, at, before, current);
        }
        let (mut record, mut state) = decide(&policy, &plan.limits, state, &observation);
        let until = *self.settling_until.get_or_insert(at + plan.settling());
        settle(&mut record, plan, until - at);
        self.pave(plan, &mut record);

        let done = record.changes() && plan.mode() == Mode::Apply && self.carry_out(written, plan, target, &mut record, &mut state).await;
        self.seen = Some(if done { record.want.unwrap_or(current) } else { current });
        if let PolicyState::QLearning(learner) = &mut state.policy {
            learner.carried_out(self.seen.unwrap_or(current));
        }
        self.report.decided(written, plan, &record, ready, trouble, done).await;
        self.state = Some(state);
        if let (Policy::QLearning(_), Observation::QLearning(_)) = (&policy, &record.inputs) {
            self.learn(written, plan, &record).await;
        }
    }

    /// Who is in the path of a KPA target follows from its decision; and from the path, when its last pod goes.
    fn pave(&self, plan: &Plan, record: &mut DecisionRecord) {
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
            record.message =
                format!("{}; {want} not taken: the last pod stays until activators are in the path, and for its time", record.message);
        }
    }

    async fn carry_out(&self, written: &Written, plan: &Plan, target: &Target, record: &mut DecisionRecord, state: &mut State) -> bool {
        let Some(want) = record.want else { return false };
        let leadership = self.context.leadership.clone();
        match target.ask_for(want, || leadership.remaining()).await {
            Ok(()) => {
                state.limits.applied(&plan.limits, record.at, record.current, want);
                self.context.metrics.scaled(&self.key);
                true
            }
            // Whoever acts now says what it does.
            Err(Trouble::NotLeading) => false,
            Err(trouble) => {
                self.context.metrics.failed(&self.key);
                record.message = format!("{}; not carried out: {trouble}", record.message);
                self.report.not_scaled(written, want, &trouble).await;
                false
            }
        }
    }

    /// The table to start from, or to go on with. False: there is none that can be used, and nothing is scaled.
    async fn load(&mut self, written: &Written, plan: &Plan) -> bool {
        let owner = owner(written);
        match Kept::load(&self.context.client, &self.key.0, &owner, plan).await {
            Ok((table, kept)) => {
                self.report.learning(written, !self.relieved, None).await;
                self.report.table(TableStatus { config_map: super::tables::name(&owner.name), version: kept.version });
                self.tables = Some(kept);
                self.take(table, plan);
                true
            }
            Err(why) => {
                self.context.metrics.failed(&self.key);
                self.report.table_unusable(written, why).await;
                false
            }
        }
    }

    fn take(&mut self, table: QTable, plan: &Plan) {
        let fits = self.state.take().filter(|state| state.fits(&plan.policy));
        let mut state = fits.unwrap_or_else(|| State::new(&plan.policy, &plan.limits, self.context.clock.now(), 0));
        if let PolicyState::QLearning(learner) = &mut state.policy {
            (learner.table, learner.last) = (table, None);
        }
        self.state = Some(state);
    }

    /// What the learner and its shadow cost so far; a learner that costs too much is relieved. What was learned is kept now and then.
    async fn learn(&mut self, written: &Written, plan: &Plan, record: &DecisionRecord) {
        let (Policy::QLearning(spec), Observation::QLearning(seen)) = (&plan.policy, &record.inputs) else { return };
        let rivalry = self.rivalry.get_or_insert_with(|| Rivalry::new(record.current));
        if let Some(costs) = rivalry.step(plan, spec, seen) {
            self.unkept += 1;
            self.context.metrics.cost(&self.key, costs.learner, costs.shadow);
            // Only where the learner acts is what was measured its own.
            if plan.mode() == Mode::Apply && costs.too_dear(plan.spec.shadow.tolerance) {
                self.relieved = true;
                self.report.learning(written, false, Some(costs)).await;
                self.keep().await;
                self.rivalry = None;
            }
        }
        if self.unkept >= KEEP_EVERY {
            self.keep().await;
        }
    }

    async fn keep(&mut self) {
        let (Some(kept), Some(State { policy: PolicyState::QLearning(learner), .. })) = (&mut self.tables, &mut self.state) else { return };
        if self.unkept == 0 || self.context.leadership.remaining().is_none() {
            return;
        }
        match kept.keep(&learner.table).await {
            Ok(None) => self.unkept = 0,
            Ok(Some(other)) => {
                tracing::info!(policy = ?self.key, version = kept.version, "another table was put in place; it is taken over");
                (learner.table, learner.last, self.unkept) = (other, None, 0);
            }
            Err(why) => tracing::warn!(policy = ?self.key, why, "what was learned could not be kept; it is tried again"),
        }
        self.report.table(TableStatus { config_map: super::tables::name(&self.key.1), version: kept.version });
    }
}

/// Nothing is scaled down while this agent has not looked for one stabilisation window; what a person asked for is no such thing.
fn settle(record: &mut DecisionRecord, plan: &Plan, left: f64) {
    let floor = record.current.min(plan.limits.max_replicas);
    let Some(want) = record.want.filter(|want| left > 0.0 && *want < floor && record.reason != Reason::Pinned) else { return };
    record.want = Some(floor);
    record.reason = Reason::Settling;
    record.message =
        format!("{}; {want} not taken: this agent looks at it for less than one stabilisation window, {left:.0} s to go", record.message);
}

fn owner(written: &Written) -> OwnerReference {
    OwnerReference {
        api_version: ScalingPolicy::api_version(&()).into_owned(),
        kind: ScalingPolicy::kind(&()).into_owned(),
        name: written.metadata.name.clone().unwrap_or_default(),
        uid: written.metadata.uid.clone().unwrap_or_default(),
        ..Default::default()
    }
}

/// Share of the period after which a policy's first decision falls, from its name.
fn phase(key: &Key) -> f64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    f64::from(u16::try_from(hasher.finish() % 1_000).unwrap_or(0)) / 1_000.0
}
