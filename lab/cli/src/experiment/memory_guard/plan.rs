//! The runs of the experiment, their order, and their results.

use drover_lab_memguard::experiment::{
    Arm, FOUR, OVERSUBSCRIPTIONS, SIZES, Sample, SimulationTask, arms, assumptions, best, governed, grid, mistuned, mixes, paper_in_rules,
    paused_all_its_life, published,
};
use drover_lab_memguard::simulate::ClusterModel;
use drover_memguard::{Guard, PaperSettings, Safety};
use indicatif::ProgressBar;

use super::with_bar;

/// First of the seeds on which parameters of the paper's rule are chosen; none of them is used for results.
const TUNING_FIRST: u64 = 1 << 32;
/// Number of these seeds.
const TUNING_SEEDS: u64 = 10;
/// Oversubscriptions in percent at which no container needs to be killed.
pub const CALM: [u32; 3] = [100, 110, 120];
/// While parameters are chosen, a run that takes longer than this (seconds) is given up.
const TUNING_GIVE_UP: f64 = 5_000.0;
/// Quotas of the paper's figure 5, in thousandths of a CPU.
const QUOTAS: [f64; 7] = [10.0, 25.0, 50.0, 100.0, 200.0, 300.0, 450.0];

/// One set of assumptions under every policy that is compared.
#[derive(Debug)]
pub struct Compared {
    /// Name of the assumptions.
    pub name: String,
    /// Job size in GB and oversubscription in percent, for the paper's settings.
    pub setting: Option<(u32, u32)>,
    /// A sample per policy, by name; the first is without a guard.
    pub samples: Vec<(&'static str, Sample)>,
}

/// A world with its name and, of the paper's own, its setting (GB a job, per cent of oversubscription).
type Named = (String, Option<(u32, u32)>, ClusterModel);

impl Compared {
    /// The sample without a guard.
    pub fn none(&self) -> &Sample {
        &self.samples[0].1
    }

    /// The sample under the policy with this name.
    pub fn arm(&self, name: &str) -> Option<&Sample> {
        self.samples.iter().find(|(arm, _)| *arm == name).map(|(_, sample)| sample)
    }
}

/// The paper's rule with the best parameters of the grid.
#[derive(Debug)]
pub struct Tuned {
    /// Job size in GB and oversubscription in percent.
    pub setting: (u32, u32),
    /// The best parameters.
    pub settings: PaperSettings,
    /// The sample without a guard, on the seeds of the results.
    pub none: Sample,
    /// The sample with these parameters.
    pub sample: Sample,
    /// Change of restarts in percent for every parameter set of the grid, sorted; on the seeds for choosing.
    pub spread: Vec<f64>,
    /// Number of parameter sets with which some runs did not end.
    pub endless: usize,
}

/// A badly tuned rule with more and more safety rules.
#[derive(Debug)]
pub struct Mistuned {
    /// Name of the bad tuning.
    pub name: &'static str,
    /// Samples as published, with the governor, and with all safety rules.
    pub samples: [(&'static str, Sample); 3],
}

/// All results.
#[derive(Debug)]
pub struct Results {
    /// First seed and number of seeds.
    pub seeds: (u64, u64),
    /// The paper's settings.
    pub settings: Vec<Compared>,
    /// The paper's rule with its best parameters.
    pub tuned: Vec<Tuned>,
    /// The same at up to 120 %, where no container needs to be killed, with the best parameters of each setting.
    pub calm: Vec<Tuned>,
    /// The paper's rule with bad parameters.
    pub mistuned: Vec<Mistuned>,
    /// Mixed sizes and priorities.
    pub mixes: Vec<Compared>,
    /// Other assumptions.
    pub assumptions: Vec<Compared>,
    /// Quota of a pause (in thousandths of a CPU; none is no pause) and run times of a job under it.
    pub quotas: Vec<(Option<f64>, Vec<f64>)>,
}

/// The runs of the experiment.
pub struct Plan {
    first: u64,
    seeds: u64,
    /// The grid of parameter sets of the paper's rule.
    sets: Vec<PaperSettings>,
    /// Seconds after which a run is given up.
    give_up: f64,
}

impl Plan {
    /// All runs, on these seeds.
    pub fn new(first: u64, seeds: u64) -> Self {
        Self { first, seeds, sets: grid(), give_up: ClusterModel::default().give_up }
    }

    /// The same with few parameter sets and a short time limit for runs that do not end, for tests.
    #[cfg(test)]
    pub fn small(self) -> Self {
        Self { sets: grid().into_iter().skip(40).step_by(13).collect(), give_up: 3_000.0, ..self }
    }

    /// Number of runs.
    pub fn runs(&self) -> u64 {
        let arms = arms().len();
        let here = SIZES.len() * OVERSUBSCRIPTIONS.len() * arms + mixes().len() * arms + assumptions().len() * 3 + mistuned().len() * 3;
        let tuned = (FOUR.len() + SIZES.len() * CALM.len()) as u64;
        let tuning = (self.sets.len() as u64 + 1) * TUNING_SEEDS;
        here as u64 * self.seeds + tuned * (tuning + 2 * self.seeds)
    }

    fn task(&self, world: ClusterModel, guard: Option<Guard>) -> SimulationTask {
        SimulationTask {
            model: ClusterModel { give_up: world.give_up.min(self.give_up), ..world },
            guard,
            first: self.first,
            seeds: self.seeds,
        }
    }

    /// Runs the plan.
    pub fn carry_out(&self, bar: &ProgressBar) -> Results {
        let mut worlds = Vec::new();
        for size in SIZES {
            for percent in OVERSUBSCRIPTIONS {
                worlds.push((format!("{size} GB, {percent} %"), Some((size, percent)), ClusterModel::paper(size, percent)));
            }
        }
        let other = |worlds: Vec<(&str, ClusterModel)>| worlds.into_iter().map(|(name, world)| (name.to_owned(), None, world)).collect();
        let few = arms().into_iter().filter(|arm| ["none", "paper", "gate-bank"].contains(&arm.name));
        let few: Vec<Arm> = few.map(Arm::polling_as_the_model_says).collect();
        let calm = SIZES.into_iter().flat_map(|size| CALM.map(|percent| (size, percent)));
        Results {
            seeds: (self.first, self.seeds),
            tuned: FOUR.iter().filter_map(|setting| self.tune(*setting, bar)).collect(),
            calm: calm.filter_map(|setting| self.tune(setting, bar)).collect(),
            settings: self.compare(worlds, &arms(), bar),
            mistuned: mistuned().into_iter().filter_map(|(name, settings)| self.mistune(name, settings, bar)).collect(),
            mixes: self.compare(other(mixes()), &arms(), bar),
            assumptions: self.compare(other(assumptions()), &few, bar),
            quotas: std::iter::once(None).chain(QUOTAS.map(Some)).map(|quota| (quota, self.under(quota))).collect(),
        }
    }

    /// Run times in seconds, by seed, of a job that is paused with this quota all its life (`None`: not at all).
    fn under(&self, quota: Option<f64>) -> Vec<f64> {
        (self.first..self.first + self.seeds).map(|seed| paused_all_its_life(quota, seed)).collect()
    }

    fn compare(&self, worlds: Vec<Named>, arms: &[Arm], bar: &ProgressBar) -> Vec<Compared> {
        let tasks: Vec<SimulationTask> =
            worlds.iter().flat_map(|(_, _, world)| arms.iter().map(|arm| self.task(arm.model(world), arm.guard.clone()))).collect();
        let samples = with_bar(&tasks, bar);
        let named = |chunk: &[Sample]| arms.iter().map(|arm| arm.name).zip(chunk.iter().cloned()).collect();
        let worlds = worlds.into_iter().zip(samples.chunks(arms.len()));
        worlds.map(|((name, setting, _), chunk)| Compared { name, setting, samples: named(chunk) }).collect()
    }

    /// Chooses the best parameters of a setting and measures them; none if under every set a run does not end.
    fn tune(&self, setting: (u32, u32), bar: &ProgressBar) -> Option<Tuned> {
        let world = ClusterModel::paper(setting.0, setting.1);
        let short = ClusterModel { give_up: TUNING_GIVE_UP.min(self.give_up), ..world.clone() };
        let tuning = |guard| SimulationTask { model: short.clone(), guard, first: TUNING_FIRST, seeds: TUNING_SEEDS };
        let tasks: Vec<SimulationTask> =
            std::iter::once(tuning(None)).chain(self.sets.iter().map(|settings| tuning(Some(published(*settings))))).collect();
        let samples = with_bar(&tasks, bar);
        let (base, samples) = samples.split_first()?;
        let settings = best(&self.sets, samples, base)?;
        let mut spread: Vec<f64> = samples.iter().map(|sample| sample.restarts_change(base)).collect();
        spread.sort_by(f64::total_cmp);
        let endless = samples.iter().filter(|sample| !sample.finished()).count();
        let measured = with_bar(&[self.task(world.clone(), None), self.task(world, Some(published(settings)))], bar);
        let [none, sample] = <[Sample; 2]>::try_from(measured).ok()?;
        Some(Tuned { setting, settings, none, sample, spread, endless })
    }

    fn mistune(&self, name: &'static str, settings: PaperSettings, bar: &ProgressBar) -> Option<Mistuned> {
        let world = ClusterModel::paper(4, 140);
        let governed = Guard { safety: Safety { sacrifices: governed(), ..Safety::as_published() }, ..published(settings) };
        let guards = [published(settings), governed, paper_in_rules(settings)];
        let tasks = guards.map(|guard| self.task(world.clone(), Some(guard)));
        let [as_published, with_governor, in_rules] = <[Sample; 3]>::try_from(with_bar(&tasks, bar)).ok()?;
        Some(Mistuned { name, samples: [("as published", as_published), ("with the governor", with_governor), ("in all rules", in_rules)] })
    }
}
