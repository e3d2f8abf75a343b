//! What is compared: guards by name, and the settings of the paper.

use std::time::Duration;

use crate::simulate::{JobClass, Victim, World};
use drover_memguard::{BankSettings, GateBankSettings, PaperSettings, Policy, Sacrifices, Safety};
use drover_memguard::{Guard, Lever};

/// Sizes of the paper's jobs, in GB.
pub const SIZES: [u32; 3] = [2, 4, 8];
/// Its oversubscriptions, in percent.
pub const OVERSUBSCRIPTIONS: [u32; 6] = [100, 110, 120, 130, 140, 150];
/// The four settings with restarts from which the paper's averages follow: size, oversubscription.
pub const FOUR: [(u32, u32); 4] = [(2, 150), (4, 140), (4, 150), (8, 150)];

/// Seconds between two looks of the agent, unless it is told another number.
pub const POLL: f64 = 0.2;

/// One way to run the jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Its name.
    pub name: &'static str,
    /// The guard on each node.
    pub guard: Option<Guard>,
    /// Whom the OOM killer takes.
    pub victim: Victim,
    /// Seconds between its looks, where the world does not say.
    pub poll: Option<f64>,
}

impl Arm {
    fn unguarded(name: &'static str, victim: Victim) -> Self {
        Self { name, guard: None, victim, poll: None }
    }

    fn guarded(name: &'static str, guard: Guard) -> Self {
        Self { name, guard: Some(guard), victim: Victim::OverRequest, poll: None }
    }

    /// As often as our agent looks; the paper's look is a guess of the world.
    fn looking_as_in_production(self) -> Self {
        Self { poll: Some(POLL), ..self }
    }

    /// The same where the world says how often a guard looks.
    pub fn looking_as_the_world_says(self) -> Self {
        Self { poll: None, ..self }
    }

    /// The world as this arm changes it.
    pub fn world(&self, world: &World) -> World {
        World { victim: self.victim, poll: self.poll.unwrap_or(world.poll), ..world.clone() }
    }
}

/// Safety rules as in production, but for a guard that may look only every half second.
pub fn safety() -> Safety {
    Safety { max_age: Duration::from_millis(1500), ..Safety::default() }
}

/// The governor as the experiment sets it.
pub fn governed() -> Sacrifices {
    Sacrifices::Governed { every: Duration::from_secs(60), per_hour: 10 }
}

/// The paper's agent as it was published, with these parameters.
pub fn published(settings: PaperSettings) -> Guard {
    Guard { policy: Policy::Paper(settings), safety: Safety::as_published() }
}

/// The paper's rule inside the safety rules: somebody always runs, nobody is held for ever, sacrifices are governed.
pub fn paper_in_rules(settings: PaperSettings) -> Guard {
    Guard { policy: Policy::Paper(settings), safety: Safety { sacrifices: governed(), levers: vec![Lever::Quota], ..safety() } }
}

/// Everything that is compared in every setting of the paper.
pub fn arms() -> Vec<Arm> {
    vec![
        Arm::unguarded("none", Victim::OverRequest),
        Arm::unguarded("youngest victim", Victim::Youngest),
        Arm::guarded("paper", published(PaperSettings::default())),
        Arm::guarded("paper, in the rules", paper_in_rules(PaperSettings::default())),
        Arm::guarded("bank", Guard { policy: Policy::Bank(BankSettings::default()), safety: safety() }).looking_as_in_production(),
        Arm::guarded("gate-bank", Guard { policy: Policy::GateBank(GateBankSettings::default()), safety: safety() })
            .looking_as_in_production(),
    ]
}

/// The parameter sets among which the paper's rule finds its best: 3 x 3 x 3 x 3.
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

/// The paper's rule badly tuned: a round shorter than a growth cycle, and a lower bound under what the containers always hold.
pub fn mistuned() -> [(&'static str, PaperSettings); 2] {
    [
        ("T = 3 s", PaperSettings { round: Duration::from_secs(3), ..PaperSettings::default() }),
        ("U = .90, L = .80", PaperSettings { upper: 0.90, lower: 0.80, ..PaperSettings::default() }),
    ]
}

/// Mixes that the paper leaves to future work: 200 GB of limits, at this oversubscription.
pub fn mixes() -> Vec<(&'static str, World)> {
    let sized = |gigabytes: u32, count: usize| JobClass { count, ..JobClass::of_size(gigabytes) };
    let world = |jobs: Vec<JobClass>, percent: u32| World { jobs, oversubscription: f64::from(percent) / 100.0, ..World::default() };
    let sizes = || vec![sized(2, 34), sized(4, 17), sized(8, 8)];
    let priorities = || vec![JobClass { priority: 1000, ..sized(4, 10) }, sized(4, 40)];
    vec![
        ("2 + 4 + 8 GB, 140 %", world(sizes(), 140)),
        ("2 + 4 + 8 GB, 150 %", world(sizes(), 150)),
        ("4 GB, a fifth of high priority, 140 %", world(priorities(), 140)),
        ("4 GB, a fifth of high priority, 150 %", world(priorities(), 150)),
    ]
}

/// Other assumptions, one changed at a time, for 4 GB jobs at 140 %.
pub fn assumptions() -> Vec<(&'static str, World)> {
    let base = || World::paper(4, 140);
    let speed = |factor: f64| {
        let mut world = base();
        world.job.cycles = (f64::from(world.job.cycles) * factor) as u32;
        world.job.unit_seconds /= factor;
        world
    };
    let mut from_zero = base();
    from_zero.job.least_units = 0;
    let mut first = base();
    first.backoff.first = 10.0;
    let mut short = base();
    short.backoff = crate::simulate::Backoff { first: 1.0, second: 2.0, most: 60.0, ..short.backoff };
    vec![
        ("as it is", base()),
        ("guard looks every second", World { poll: 1.0, ..base() }),
        ("guard looks every 5 s", World { poll: 5.0, ..base() }),
        ("guard acts 0.4 s late", World { latency: 0.4, ..base() }),
        ("system takes 256 MiB", World { os_memory: 256.0, ..base() }),
        ("system takes 2048 MiB", World { os_memory: 2048.0, ..base() }),
        ("cycles may allocate nothing", from_zero),
        ("first restart after 10 s", first),
        ("backoff 1 to 60 s", short),
        ("8 threads", World { threads: 8.0, ..base() }),
        ("memory grows half as fast", speed(0.5)),
        ("memory grows twice as fast", speed(2.0)),
        ("memory grows 4 times as fast", speed(4.0)),
        ("memory grows 8 times as fast", speed(8.0)),
        ("cgroup v2 (memory.high)", World { cgroup_v2: true, ..base() }),
    ]
}
