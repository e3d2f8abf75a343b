//! `drover experiment autoscaling --real`: the paper's case b on a real kubelet, beside case c.
//!
//! Case b learns in one pass over the first quarter of the trace in the cluster, case c in one pass over the same load in the simulator. Then
//! the agent scales both online over the rest, at the same time and under the same load. The pods serve a tenth of what the paper's pods
//! serve, and the trace is played faster. While it learns, a learner tries more than the agent does online, so the command itself decides
//! in the pass of case b.

mod kit;
mod meter;
mod report;

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drover_autoscaler::path::demo::replay::{ReadyPods, due};
use drover_autoscaler::policy::Plan as PolicyPlan;
use drover_autoscaling::Reading;
use drover_autoscaling::qlearning::{Capacity, Choice, QLearningObservation, QLearningSpec, QLearningState, QTable, step};
use drover_lab_autoscaling::experiment::Plan;
use drover_lab_autoscaling::sim::{Arrivals, Driver, Schedule, SimSpec, Totals, Trace, drive, train};
use indicatif::{ProgressBar, ProgressStyle};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};
use tokio_util::task::AbortOnDropHandle;

use self::kit::{Kit, READY};
use self::meter::{Measured, Meter};
use self::report::{Lived, Real};
use super::{AutoscalingArgs, main_trace};
use crate::bench::machine;
use crate::bench::stack::folder;
use crate::bench::world::until;
use crate::experiment::finish;
use drover::globals::Format;

/// Maximum number of pods, as in the paper.
const MOST: i32 = 4;
/// Seconds between decisions.
const PERIOD: usize = 1;
/// Time after which a request expires.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Cost of an expired request in pod-seconds; a tenth in the paper, whose pods serve about ten times as many requests.
const PENALTY: f64 = 1.0;
/// Numbers of pods whose capacity is measured, with so many requests waiting at each pod, after a time and for a time.
const POINTS: [i32; 3] = [1, 2, MOST];
const WAITING: usize = 4;
const WARM: Duration = Duration::from_secs(5);
const DURING: Duration = Duration::from_secs(15);
/// Simulations of the same load, each with a seed of its own.
const SIMULATIONS: u64 = 20;

/// Measures, and delivers the report.
///
/// # Errors
/// The machine lacks something, a part cannot be started, or a file cannot be written.
pub async fn measure(args: &AutoscalingArgs, format: Format) -> Result<ExitCode> {
    let lacks = kit::lacking();
    ensure!(
        lacks.is_empty(),
        "--real runs a real kubelet, and this machine lacks {}; without --real the same cases run in a simulator",
        lacks.join(", ")
    );
    let (name, trace) = main_trace(args)?;
    let (has, needs) = (trace.rates().len(), Plan::default().end);
    ensure!(
        has >= needs,
        "the trace {name} has {has} s, and --real needs {needs}: make it with `drover data import nasa`, or leave out --data"
    );
    let (described, load) = (machine::describe().await?, machine::load());
    let folder = folder()?;
    let kit = Kit::start(folder.path()).await?;
    let real = carry_out(&kit, args, &trace).await?;
    drop(kit);
    let mut report = report::report(&real);
    report.tables.insert(0, described);
    report.findings.insert(
        0,
        format!(
            "{name}, {} times as fast: {} s in the cluster; one kubelet, a decision every {PERIOD} s; seed {}; load of the machine {load} before",
            args.speed,
            real.rates.len(),
            args.common.seed
        ),
    );
    finish(&report, &args.common, format)
}

/// One of the cases in the cluster.
struct App {
    name: &'static str,
    deployments: Api<Deployment>,
    pods: ReadyPods,
    meter: Arc<Meter>,
    _measuring: AbortOnDropHandle<()>,
}

impl App {
    async fn start(kit: &Kit, name: &'static str) -> Result<Self> {
        kit.apply(&kit::app(name)).await?;
        let deployments: Api<Deployment> = Api::namespaced(kit.client.clone(), "default");
        let (pods, meter) = (ReadyPods::of(std::slice::from_ref(&kit.client), "default", name)?, Meter::new(name));
        let measuring = {
            let (meter, deployments, pods, cgroup) = (meter.clone(), deployments.clone(), pods.clone(), kit.cgroup.clone());
            tokio::spawn(async move { meter.measure(&deployments, &pods, |uid| kit::usage_of(&cgroup, uid)).await })
        };
        Ok(Self { name, deployments, pods, meter, _measuring: AbortOnDropHandle::new(measuring) })
    }

    async fn scale(&self, pods: i32) -> Result<()> {
        let scale = Patch::Merge(json!({"spec": {"replicas": pods}}));
        self.deployments.patch_scale(self.name, &PatchParams::default(), &scale).await.context("the app cannot be scaled")?;
        Ok(())
    }

    /// Sets the number of pods, and waits until so many are ready; the seconds that this took.
    async fn until_ready(&self, pods: i32) -> Result<f64> {
        let asked = Instant::now();
        self.scale(pods).await?;
        let wanted = usize::try_from(pods)?;
        until(READY, async || Ok((self.pods.ready() == wanted).then_some(()))).await.context("the pods do not become ready")?;
        Ok(asked.elapsed().as_secs_f64())
    }

    /// The load online; the agent scales meanwhile.
    async fn online(&self, rates: &[f64]) -> Lived {
        let counted = || [&self.meter.tally.arrived, &self.meter.tally.served, &self.meter.tally.expired].map(|one| one.load(Relaxed));
        let (began, before, first) = (Instant::now(), counted(), self.meter.read());
        self.pods.replay(rates, TIMEOUT, &self.meter.tally).await;
        let (after, last) = (counted(), self.meter.read());
        let [arrived, served, expired] = std::array::from_fn(|at| after[at] - before[at]);
        let pods = course(&first, &last, began);
        Lived { name: self.name, arrived, served, expired, pod_seconds: last.pod_seconds - first.pod_seconds, pods, saved: 0 }
    }
}

/// The number of pods at the beginning and after each change, with the second.
fn course(first: &Measured, last: &Measured, began: Instant) -> Vec<(f64, i32)> {
    let changes = last.changes.iter().skip(first.changes.len());
    let at = |(at, pods): &(Instant, i32)| (at.saturating_duration_since(began).as_secs_f64(), *pods);
    std::iter::once((0.0, first.replicas)).chain(changes.map(at)).collect()
}

async fn carry_out(kit: &Kit, args: &AutoscalingArgs, trace: &Trace) -> Result<Real> {
    let plan = Plan::default();
    let speed = usize::from(args.speed);
    let [training, end] = [plan.training, plan.end].map(|seconds| seconds / speed);
    let style = ProgressStyle::with_template("{bar:40} {msg}, {elapsed} so far, {eta} left")?;
    let measuring = POINTS.len() as u64 * (WARM + DURING).as_secs();
    let bar = ProgressBar::new(measuring + end as u64).with_style(style);
    let [b, c] = [App::start(kit, "case-b").await?, App::start(kit, "case-c").await?];
    let listener = TcpListener::bind((kit.here, 0)).await?;
    let prometheus = format!("http://{}", listener.local_addr()?);
    let _serving = AbortOnDropHandle::new(tokio::spawn(meter::serve(listener, vec![b.meter.clone(), c.meter.clone()])));

    let (points, delay) = shown(&bar, "measuring capacity", measured(&b)).await?;
    let capacity = Capacity::fit(&points)?;
    let rates = squeezed(trace, speed, end, capacity.of(MOST));
    let (pass, online) = rates.split_at(training);
    let sim = SimSpec { capacity, timeout: TIMEOUT.as_secs_f64(), delay, max_pods: MOST, penalty: PENALTY, ..SimSpec::default() };
    let learner = QLearningSpec {
        alpha: plan.alpha,
        gamma: plan.gamma,
        guards: false,
        penalty: PENALTY,
        capacity,
        seed: args.common.seed,
        ..QLearningSpec::default()
    };

    let (learned, decisions) = shown(&bar, "one pass in the cluster", learn(&b, pass, &learner, &plan.schedule)).await?;
    let simulated = train(&learner, &sim, &plan.schedule, PERIOD, [&even(pass, &sim)]);
    for (app, table) in [(&b, &learned), (&c, &simulated)] {
        app.until_ready(1).await?;
        kit.apply(&kit::table(app.name, table)?).await?;
        kit.apply(&kit::policy(app.name, &learner, &prometheus)).await?;
    }
    let decided = async || {
        let mut waiting = 2;
        for app in [&b, &c] {
            let status = kit.policies().get(app.name).await?.status.unwrap_or_default();
            waiting -= i32::from(status.desired_replicas.is_some());
        }
        Ok((waiting == 0).then_some(()))
    };
    until(READY, decided).await.context("the agent does not decide")?;
    let both = async { tokio::join!(b.online(online), c.online(online)) };
    let (mut one, mut other) = shown(&bar, "online", both).await;
    for lived in [&mut one, &mut other] {
        let status = kit.policies().get(lived.name).await?.status.unwrap_or_default();
        lived.saved = status.table.map_or(0, |table| table.version);
    }
    bar.finish_and_clear();

    let limits = PolicyPlan::of(&kit::policy(b.name, &learner, &prometheus)["spec"]).map_err(anyhow::Error::msg)?.limits;
    let load = even(online, &sim);
    let runs = (learner.seed..learner.seed + SIMULATIONS).map(|seed| {
        let learner = QLearningSpec { seed, ..learner.clone() };
        let table = train(&learner, &sim, &plan.schedule, PERIOD, [&even(pass, &sim)]);
        let policy = drover_autoscaling::Policy::QLearning(learner);
        drive(&sim, &load, &mut Driver::policy(policy, limits.clone(), &sim, PERIOD).with_table(table)).totals
    });
    let simulated: Vec<Totals> = runs.collect();
    let due = due(online).len();
    Ok(Real { points, capacity, delay, decisions, training, due, cases: [one, other], simulated, rates })
}

/// Requests per second that each number of pods serves, and the longest time until a pod served, in whole seconds; ends with one pod.
async fn measured(app: &App) -> Result<(Vec<(i32, f64)>, f64)> {
    let (mut points, mut delay) = (Vec::new(), 0.0_f64);
    app.until_ready(1).await?;
    for pods in POINTS {
        delay = delay.max(app.until_ready(pods).await?);
        points.push((pods, app.pods.capacity(WAITING, WARM, DURING).await));
    }
    app.until_ready(1).await?;
    Ok((points, delay.ceil()))
}

/// One pass over this load in the cluster: the learner decides with much exploration, as in the simulator. Returns its table, and how often
/// it decided.
async fn learn(app: &App, rates: &[f64], learner: &QLearningSpec, schedule: &Schedule) -> Result<(QTable, u64)> {
    let deciding = async {
        let mut state = QLearningState::from_table(QTable::new(1, MOST));
        let (began, period) = (Instant::now(), Duration::from_secs(PERIOD as u64));
        let (mut expired, mut pod_seconds) = (app.meter.expired(), app.meter.read().pod_seconds);
        let mut ticks = interval_at(began + period, period);
        // A decision that comes too late is left out: it would see the same readings as the one before.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let pass = Duration::from_secs(rates.len() as u64);
        while ticks.tick().await.duration_since(began) <= pass {
            let (now, total) = (app.meter.read(), app.meter.expired());
            let seen = QLearningObservation {
                at: began.elapsed().as_secs_f64(),
                pods: now.replicas,
                cpu: Reading::from(now.cpu),
                expired: Reading::Value(f64::from(total - expired)),
                pod_seconds: Reading::Value(now.pod_seconds - pod_seconds),
            };
            (expired, pod_seconds) = (total, now.pod_seconds);
            let choice = Choice::Anything(schedule.at(state.decisions));
            if let Some((want, _)) = step(learner, &mut state, &seen, choice)
                && want != now.replicas
            {
                app.scale(want).await?;
            }
        }
        state.table.passes += 1;
        anyhow::Ok((state.table, state.decisions))
    };
    let load = async {
        app.pods.replay(rates, TIMEOUT, &app.meter.tally).await;
        Ok(())
    };
    // An error while it scales ends the load too.
    Ok(tokio::try_join!(load, deciding)?.1)
}

/// The trace played `speed` times as fast, with this highest rate.
fn squeezed(trace: &Trace, speed: usize, seconds: usize, peak: f64) -> Vec<f64> {
    let means = trace.rates().chunks_exact(speed).map(|chunk| chunk.iter().sum::<f64>() / speed as f64);
    Trace::new(means.take(seconds).collect()).with_peak(peak).rates().to_vec()
}

fn even(rates: &[f64], sim: &SimSpec) -> Arrivals {
    Arrivals::even(&Trace::new(rates.to_vec()), sim, 0, rates.len())
}

/// Lets the bar go on while something is done.
async fn shown<T>(bar: &ProgressBar, what: &'static str, work: impl Future<Output = T>) -> T {
    bar.set_message(what);
    let mut work = pin!(work);
    let mut seconds = interval(Duration::from_secs(1));
    // The first tick comes at once.
    seconds.tick().await;
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = seconds.tick() => bar.inc(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squeezed_trace_keeps_shape_and_order() {
        let trace = Trace::new(vec![1.0, 3.0, 10.0, 30.0, 4.0, 4.0, 9.0]);
        assert_eq!(squeezed(&trace, 2, 3, 40.0), [4.0, 40.0, 8.0]);
        assert_eq!(squeezed(&trace, 2, 2, 40.0).len(), 2);
    }

    #[test]
    fn course_begins_with_the_pods_at_the_beginning_and_has_later_changes_only() {
        let began = Instant::now();
        let at = |second| began + Duration::from_secs(second);
        let first = Measured { cpu: None, replicas: 2, pod_seconds: 7.0, changes: vec![(at(0), 2)] };
        let last = Measured { replicas: 3, changes: vec![(at(0), 2), (at(5), 3)], ..first.clone() };
        assert_eq!(course(&first, &last, began), [(0.0, 2), (5.0, 3)]);
    }
}
