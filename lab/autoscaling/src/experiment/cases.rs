//! The cases: the paper's cases a to e with the guards off; in addition a tuned HPA, the best fixed number, KPA, and the learner with guards.

use super::{Comparison, Outcome, Plan, mean};
use crate::sim::{Arrivals, Driver, SimSpec, Trace, drive, train};
use drover_autoscaling::kpa::{KpaMetric, KpaSpec};
use drover_autoscaling::qlearning::{QLearningSpec, QTable};
use drover_autoscaling::threshold::{MetricSpec, ThresholdSpec};
use drover_autoscaling::{Limits, Policy};

/// Offset of the seeds for training, so that they differ from the seeds of the comparison.
const TRAINING_SEEDS: u64 = 1_000_000;
/// Stabilisation windows in seconds: none, and the HPA controller's default.
const STABILISATIONS: [f64; 2] = [0.0, 300.0];
/// Step between HPA targets in the first search.
const COARSE: i32 = 5;

/// Compares all ways of scaling on one trace; `progress` is called before each case.
pub fn compare(plan: &Plan, trace: &Trace, progress: &mut dyn FnMut(&str)) -> Comparison {
    let real = SimSpec { capacity_factor: plan.simulated.capacity_factor * plan.real_factor, ..plan.simulated.clone() };
    progress("arrivals");
    let seeds = plan.first_seed..plan.first_seed + plan.seeds;
    let online: Vec<_> = seeds.map(|seed| Arrivals::poisson(trace, &real, plan.training, plan.end, seed)).collect();
    let all = All { plan, trace, real, online };
    let mut outcomes = Vec::new();
    for (name, label, passes) in [
        ("a", "no pre-training", None),
        ("c", "1 simulated pass", Some(1)),
        ("d", "10 simulated passes", Some(10)),
        ("e", "20 simulated passes", Some(20)),
    ] {
        progress(label);
        let learner = |seed| QLearningSpec { alpha: plan.alpha, gamma: plan.gamma, guards: false, seed, ..all.learner() };
        outcomes.push(
            all.learned(name, label, learner, |learner| passes.map_or_else(|| all.untrained(), |passes| all.simulated(learner, passes))),
        );
    }
    progress("1 real pass");
    let learner = |seed| QLearningSpec { alpha: plan.alpha, gamma: plan.gamma, guards: false, seed, ..all.learner() };
    outcomes.insert(1, all.learned("b", "1 real pass", learner, |learner| all.really(learner)));

    let (hpa, tuning) = all.tuned_hpa(progress);
    outcomes.push(hpa);
    progress("fixed numbers");
    outcomes.push(all.best_fixed());
    progress("KPA");
    outcomes.push(all.kpa());
    progress("guarded learner");
    let guarded = plan.guarded;
    let learner =
        |seed| QLearningSpec { alpha: guarded.alpha, gamma: guarded.gamma, noise_decay: guarded.noise_decay, seed, ..all.learner() };
    let label = format!("{} simulated passes, guards on", guarded.passes);
    outcomes.push(all.learned("guarded", &label, learner, |learner| all.simulated(learner, guarded.passes)));
    Comparison { outcomes, tuning }
}

struct All<'a> {
    plan: &'a Plan,
    trace: &'a Trace,
    real: SimSpec,
    online: Vec<Arrivals>,
}

impl All<'_> {
    fn learner(&self) -> QLearningSpec {
        QLearningSpec { penalty: self.real.penalty, capacity: self.real.capacity, ..QLearningSpec::default() }
    }

    fn untrained(&self) -> QTable {
        QTable::new(self.real.min_pods, self.real.max_pods)
    }

    fn simulated(&self, learner: &QLearningSpec, passes: usize) -> QTable {
        let pass = Arrivals::even(self.trace, &self.plan.simulated, 0, self.plan.training);
        train(learner, &self.plan.simulated, &self.plan.schedule, self.plan.period, std::iter::repeat_n(&pass, passes))
    }

    fn really(&self, learner: &QLearningSpec) -> QTable {
        let pass = Arrivals::poisson(self.trace, &self.real, 0, self.plan.training, TRAINING_SEEDS + learner.seed);
        train(learner, &self.real, &self.plan.schedule, self.plan.period, [&pass])
    }

    fn learned(
        &self,
        name: &str,
        label: &str,
        learner: impl Fn(u64) -> QLearningSpec,
        table: impl Fn(&QLearningSpec) -> QTable,
    ) -> Outcome {
        let drivers = |index: u64| {
            let learner = learner(self.plan.first_seed + index);
            let table = table(&learner);
            Driver::policy(Policy::QLearning(learner), Limits::default(), &self.real, self.plan.period).with_table(table)
        };
        self.outcome(name, label, drivers)
    }

    fn outcome(&self, name: &str, label: impl Into<String>, driver: impl Fn(u64) -> Driver) -> Outcome {
        let mut outcome = Outcome::new(name, label);
        for (index, arrivals) in (0..).zip(&self.online) {
            let run = drive(&self.real, arrivals, &mut driver(index));
            outcome.add(&run.totals, self.real.penalty);
            if index == 0 {
                outcome.course = run.course;
            }
        }
        outcome
    }

    fn hpa(&self, target: i32, stabilisation: f64) -> Outcome {
        let policy = Policy::Threshold(ThresholdSpec { metrics: vec![MetricSpec::cpu(target)], ..ThresholdSpec::default() });
        let limits = Limits { downscale_stabilization: stabilisation, ..Limits::default() };
        let label = format!("HPA at {target} %, stabilised over {stabilisation:.0} s");
        self.outcome("hpa", label, |_| Driver::policy(policy.clone(), limits.clone(), &self.real, self.plan.period))
    }

    /// Tries targets in coarse steps over the whole range, then every per cent around the best.
    fn tuned_hpa(&self, progress: &mut dyn FnMut(&str)) -> (Outcome, Vec<(i32, f64, f64, f64)>) {
        let (low, high) = self.plan.targets;
        let mut best: Option<(i32, f64, Outcome)> = None;
        let mut tried: Vec<(i32, f64, f64, f64)> = Vec::new();
        let mut look = |target: i32, stabilisation: f64, best: &mut Option<(i32, f64, Outcome)>| {
            if tried.iter().any(|&(seen, over, ..)| (seen, over) == (target, stabilisation)) {
                return;
            }
            progress(&format!("HPA at {target} %"));
            let outcome = self.hpa(target, stabilisation);
            tried.push((target, stabilisation, outcome.mean_cost(), outcome.mean_expired()));
            if best.as_ref().is_none_or(|(.., cheapest)| outcome.mean_cost() < cheapest.mean_cost()) {
                *best = Some((target, stabilisation, outcome));
            }
        };
        for stabilisation in STABILISATIONS {
            (0..)
                .map(|index| low + index * COARSE)
                .take_while(|&target| target <= high)
                .for_each(|target| look(target, stabilisation, &mut best));
        }
        if let Some((centre, stabilisation)) = best.as_ref().map(|(target, stabilisation, _)| (*target, *stabilisation)) {
            (centre - COARSE + 1..centre + COARSE)
                .filter(|target| (low..=high).contains(target))
                .for_each(|target| look(target, stabilisation, &mut best));
        }
        tried.sort_by(|one, other| one.1.total_cmp(&other.1).then(one.0.cmp(&other.0)));
        let outcome = best.map_or_else(|| Outcome::new("hpa", "none tried"), |(.., outcome)| outcome);
        (outcome, tried)
    }

    fn best_fixed(&self) -> Outcome {
        let runs = (self.real.min_pods.max(1)..=self.real.max_pods)
            .map(|pods| self.outcome("static", format!("always {pods} pods"), |_| Driver::fixed(pods)));
        runs.min_by(|one, other| mean(&one.cost).total_cmp(&mean(&other.cost))).unwrap_or_else(|| Outcome::new("static", "none tried"))
    }

    /// KPA by requests per second. The target per pod is what a pod of the largest number does, used to Knative's default share.
    fn kpa(&self) -> Outcome {
        let most = self.real.max_pods;
        let spec = KpaSpec { metric: KpaMetric::Rps, target: Some(self.real.capacity.of(most) / f64::from(most)), ..KpaSpec::default() };
        self.outcome("kpa", "KPA by requests per second, 70 %", |_| {
            Driver::policy(Policy::Kpa(spec.clone()), Limits::default(), &self.real, 2)
        })
    }
}
