//! The arms of the experiment: the guards that are compared, by name, and the settings of the paper.

use std::time::Duration;

use crate::simulate::{ClusterModel, JobClass, OomVictim};
use drover_memguard::{BankSettings, GateBankSettings, PaperSettings, Policy, Sacrifices, Safety};
use drover_memguard::{Guard, Lever};

/// The sizes of the paper's jobs, in GB.
pub const SIZES: [u32; 3] = [2, 4, 8];
/// The paper's oversubscriptions, in per cent.
pub const OVERSUBSCRIPTIONS: [u32; 6] = [100, 110, 120, 130, 140, 150];
/// The four settings with restarts over which the paper averages: size in GB and oversubscription in per cent.
pub const FOUR: [(u32, u32); 4] = [(2, 150), (4, 140), (4, 150), (8, 150)];

/// Seconds between two polls of the agent by default.
pub const POLL: f64 = 0.2;

/// One arm of the experiment: a way to run the jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    pub name: &'static str,
    /// The guard on each node; `None` for no guard.
    pub guard: Option<Guard>,
    pub victim: OomVictim,
    /// Seconds between two observations of the guard; `None` if the model decides.
    pub poll: Option<f64>,
}

impl Arm {
    fn unguarded(name: &'static str, victim: OomVictim) -> Self {
        Self { name, guard: None, victim, poll: None }
    }

    fn guarded(name: &'static str, guard: Guard) -> Self {
        Self { name, guard: Some(guard), victim: OomVictim::OverRequest, poll: None }
    }

    /// The guard observes as often as the agent does. For the paper's guard this is an assumption of the model.
    fn polling_as_in_production(self) -> Self {
        Self { poll: Some(POLL), ..self }
    }

    /// The same arm, but the model decides how often the guard observes.
    pub fn polling_as_the_model_says(self) -> Self {
        Self { poll: None, ..self }
    }

    /// The model with the changes of this arm.
    pub fn model(&self, model: &ClusterModel) -> ClusterModel {
        ClusterModel { victim: self.victim, poll: self.poll.unwrap_or(model.poll), ..model.clone() }
    }
}

/// The safety rules of production, for a guard that may observe only every half second.
pub fn safety() -> Safety {
    Safety { max_age: Duration::from_millis(1500), ..Safety::default() }
}

/// The limits on sacrifices in the experiment.
pub fn governed() -> Sacrifices {
    Sacrifices::Governed { every: Duration::from_secs(60), per_hour: 10 }
}

/// The paper's agent as it was published, with the given parameters.
pub fn published(settings: PaperSettings) -> Guard {
    Guard { policy: Policy::Paper(settings), safety: Safety::as_published() }
}

/// The paper's rule within the safety rules: one container always runs, none is held for ever, sacrifices are limited.
pub fn paper_in_rules(settings: PaperSettings) -> Guard {
    Guard { policy: Policy::Paper(settings), safety: Safety { sacrifices: governed(), levers: vec![Lever::Quota], ..safety() } }
}

/// The arms that are compared in every setting of the paper.
pub fn arms() -> Vec<Arm> {
    vec![
        Arm::unguarded("none", OomVictim::OverRequest),
        Arm::unguarded("youngest victim", OomVictim::Youngest),
        Arm::guarded("paper", published(PaperSettings::default())),
        Arm::guarded("paper, in the rules", paper_in_rules(PaperSettings::default())),
        Arm::guarded("bank", Guard { policy: Policy::Bank(BankSettings::default()), safety: safety() }).polling_as_in_production(),
        Arm::guarded("gate-bank", Guard { policy: Policy::GateBank(GateBankSettings::default()), safety: safety() })
            .polling_as_in_production(),
    ]
}

/// The parameter sets from which the best for the paper's rule is chosen: 3 x 3 x 3 x 3.
pub fn grid() -> Vec<PaperSettings> {
    let mut sets = Vec::with_capacity(81);
    for upper in [0.92, 0.94, 0.96] {
        for gap in [0.02, 0.04, 0.08] {
            for per_round in [2, 4, 6] {
                for seconds in [8, 15, 30] {
                    sets.push(PaperSettings { upper, lower: upper - gap, per_round, round: Duration::from_secs(seconds) });
                }
            }
        }
    }
    sets
}

/// The paper's rule badly tuned: a round shorter than a growth cycle, and a lower bound below what the containers always use.
pub fn mistuned() -> [(&'static str, PaperSettings); 2] {
    [
        ("T = 3 s", PaperSettings { round: Duration::from_secs(3), ..PaperSettings::default() }),
        ("U = .90, L = .80", PaperSettings { upper: 0.90, lower: 0.80, ..PaperSettings::default() }),
    ]
}

/// Mixed jobs, which the paper leaves to future work: 200 GB of limits, with the oversubscription in the name.
pub fn mixes() -> Vec<(&'static str, ClusterModel)> {
    let sized = |gigabytes: u32, count: usize| JobClass { count, ..JobClass::of_size(gigabytes) };
    let model =
        |jobs: Vec<JobClass>, percent: u32| ClusterModel { jobs, oversubscription: f64::from(percent) / 100.0, ..ClusterModel::default() };
    let sizes = || vec![sized(2, 34), sized(4, 17), sized(8, 8)];
    let priorities = || vec![JobClass { priority: 1000, ..sized(4, 10) }, sized(4, 40)];
    vec![
        ("2 + 4 + 8 GB, 140 %", model(sizes(), 140)),
        ("2 + 4 + 8 GB, 150 %", model(sizes(), 150)),
        ("4 GB, a fifth of high priority, 140 %", model(priorities(), 140)),
        ("4 GB, a fifth of high priority, 150 %", model(priorities(), 150)),
    ]
}

/// Other assumptions, changed one at a time, for 4 GB jobs at 140 %.
pub fn assumptions() -> Vec<(&'static str, ClusterModel)> {
    let base = || ClusterModel::paper(4, 140);
    let speed = |factor: f64| {
        let mut model = base();
        model.job.cycles = (f64::from(model.job.cycles) * factor) as u32;
        model.job.unit_seconds /= factor;
        model
    };
    let mut from_zero = base();
    from_zero.job.least_units = 0;
    let mut first = base();
    first.backoff.first = 10.0;
    let mut short = base();
    short.backoff = crate::simulate::Backoff { first: 1.0, second: 2.0, most: 60.0, ..short.backoff };
    vec![
        ("as it is", base()),
        ("guard looks every second", ClusterModel { poll: 1.0, ..base() }),
        ("guard looks every 5 s", ClusterModel { poll: 5.0, ..base() }),
        ("guard acts 0.4 s late", ClusterModel { latency: 0.4, ..base() }),
        ("system takes 256 MiB", ClusterModel { os_memory: 256.0, ..base() }),
        ("system takes 2048 MiB", ClusterModel { os_memory: 2048.0, ..base() }),
        ("cycles may allocate nothing", from_zero),
        ("first restart after 10 s", first),
        ("backoff 1 to 60 s", short),
        ("8 threads", ClusterModel { threads: 8.0, ..base() }),
        ("memory grows half as fast", speed(0.5)),
        ("memory grows twice as fast", speed(2.0)),
        ("memory grows 4 times as fast", speed(4.0)),
        ("memory grows 8 times as fast", speed(8.0)),
        ("cgroup v2 (memory.high)", ClusterModel { cgroup_v2: true, ..base() }),
    ]
}
