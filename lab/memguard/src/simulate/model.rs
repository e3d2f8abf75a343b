//! The assumptions of the simulator, each of them a parameter. The defaults are the paper's experiment as far as its text describes it.
//! What the text does not say is marked *assumed*: fitted to, or plausible for, its 4 GB jobs at 140 %.

use serde::{Deserialize, Serialize};

/// The jobs of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobClass {
    /// Number of jobs.
    pub count: usize,
    /// Memory limit in MiB. A job always uses at least half of it.
    pub limit: f64,
    /// Memory that a job allocates at a time, in MiB.
    pub unit: f64,
    /// Jobs of a higher priority are submitted first, and the guard prefers their containers.
    #[serde(default)]
    pub priority: i32,
}

impl JobClass {
    /// The paper's jobs of 2, 4 or 8 GB: as many as have limits of 200 GB together, with an allocation unit of an eighth of the limit.
    pub fn of_size(gigabytes: u32) -> Self {
        let limit = f64::from(gigabytes) * 1024.0;
        Self { count: (200 / gigabytes) as usize, limit, unit: limit / 8.0, priority: 0 }
    }
}

/// What a job does, in cycles: compute at half of its limit, allocate unit by unit, hold, free.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct JobModel {
    /// Number of cycles; *assumed*.
    pub cycles: u32,
    /// Mean time of computing in seconds, exponentially distributed; *assumed*.
    pub compute: f64,
    /// Fewest units per cycle, uniformly distributed up to what the limit allows; *assumed*.
    pub least_units: u32,
    /// Seconds to allocate a unit without a hold, the same for all sizes; *assumed*.
    pub unit_seconds: f64,
    /// The preceding time varies by this share up and down; *assumed*.
    pub unit_jitter: f64,
    /// Mean time of holding the memory in seconds, exponentially distributed; *assumed*.
    pub hold: f64,
}

impl Default for JobModel {
    fn default() -> Self {
        Self { cycles: 10, compute: 6.0, least_units: 1, unit_seconds: 8.4, unit_jitter: 0.5, hold: 3.0 }
    }
}

/// CrashLoopBackOff, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Backoff {
    /// Delay before the first restart. The real kubelet restarts at once; the paper's text says 10 s.
    pub first: f64,
    /// Delay before the second restart; doubled for each further one.
    pub second: f64,
    /// Longest delay.
    pub most: f64,
    /// A container that ran this long starts again without back-off.
    pub reset: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: 0.0, second: 10.0, most: 300.0, reset: 600.0 }
    }
}

impl Backoff {
    /// The delay before restart number `nth`; 1 is the first.
    pub fn delay(&self, nth: u32) -> f64 {
        match nth {
            0 | 1 => self.first,
            _ => (self.second * 2.0_f64.powi(nth as i32 - 2)).min(self.most),
        }
    }
}

/// Which container the OOM killer kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OomVictim {
    /// The one farthest above its request, as the kubelet's `oom_score_adj` makes it: with equal requests the largest.
    OverRequest,
    /// The one that has run for the shortest time, as if `oom_score_adj` were raised for young containers.
    Youngest,
}

/// A simulated cluster with its jobs and its guard's timing. Memory is in MiB, time in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClusterModel {
    pub nodes: usize,
    pub node_memory: f64,
    /// Part of a node's memory that the operating system and daemons use; *assumed*.
    pub os_memory: f64,
    /// CPU threads of a node. More running containers than that slow each other down; *assumed* (10 cores, 20 threads).
    pub threads: f64,
    /// Oversubscription: limits divided by requests.
    pub oversubscription: f64,
    /// The jobs, all submitted at the start.
    pub jobs: Vec<JobClass>,
    /// What each job does.
    pub job: JobModel,
    /// Time from the order to start a container to its first allocation; *assumed*.
    pub start_latency: f64,
    /// The preceding time varies by this share up and down; *assumed*.
    pub start_jitter: f64,
    /// Back-off of restarts after a kill.
    pub backoff: Backoff,
    /// A sacrificed container restarts without back-off, because its removal hides the kill from the kubelet; *assumed*.
    pub sacrifice_without_backoff: bool,
    /// Which container the OOM killer kills; *assumed*.
    pub victim: OomVictim,
    /// Time between two observations of the guard; *assumed*.
    pub poll: f64,
    /// Time from a decision of the guard to its effect; *assumed*.
    pub latency: f64,
    /// CPU quota of a paused container, in thousandths of a CPU. The paper tried 25 and 10 and does not say which it used; *assumed*.
    pub pause_quota: f64,
    /// CPU use of a running container, in thousandths of a CPU, so that a paused one is 18 times slower at 25 and 45 times at 10, as the
    /// paper's section 4.2 says.
    pub cpu_demand: f64,
    /// Growth past a `memory.high` lease, in MiB per second.
    pub high_leak: f64,
    /// Whether the nodes have cgroup v2 and therefore `memory.high`.
    pub cgroup_v2: bool,
    /// Time step of the simulation.
    pub step: f64,
    /// A run that is not done after this time is given up.
    pub give_up: f64,
}

impl Default for ClusterModel {
    fn default() -> Self {
        Self {
            nodes: 3,
            node_memory: 32_768.0,
            os_memory: 1_024.0,
            threads: 20.0,
            oversubscription: 1.4,
            jobs: vec![JobClass::of_size(4)],
            job: JobModel::default(),
            start_latency: 1.5,
            start_jitter: 0.5,
            backoff: Backoff::default(),
            sacrifice_without_backoff: true,
            victim: OomVictim::OverRequest,
            poll: 0.5,
            latency: 0.0,
            pause_quota: 10.0,
            cpu_demand: 450.0,
            high_leak: 1.0,
            cgroup_v2: false,
            step: 0.1,
            give_up: 20_000.0,
        }
    }
}

impl ClusterModel {
    /// The paper's setting: jobs of one size, with the oversubscription in per cent.
    pub fn paper(gigabytes: u32, percent: u32) -> Self {
        Self { jobs: vec![JobClass::of_size(gigabytes)], oversubscription: f64::from(percent) / 100.0, ..Self::default() }
    }

    /// Memory for the pods of a node, in MiB.
    pub fn capacity(&self) -> f64 {
        self.node_memory - self.os_memory
    }

    /// How many times slower a container runs under the CPU quota of a pause.
    pub fn slowdown(&self) -> f64 {
        (self.cpu_demand / self.pause_quota).max(1.0)
    }

    /// Why this model cannot be simulated, as a message for users; `None` if it can.
    pub fn problem(&self) -> Option<String> {
        let positive = [
            ("nodeMemory", self.node_memory),
            ("threads", self.threads),
            ("oversubscription", self.oversubscription),
            ("poll", self.poll),
            ("step", self.step),
            ("giveUp", self.give_up),
            ("pauseQuota", self.pause_quota),
            ("cpuDemand", self.cpu_demand),
            ("job.unitSeconds", self.job.unit_seconds),
        ];
        if let Some((name, value)) = positive.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
            return Some(format!("{name} is {value}; it must be a positive number"));
        }
        let not_negative = [
            ("osMemory", self.os_memory),
            ("startLatency", self.start_latency),
            ("latency", self.latency),
            ("highLeak", self.high_leak),
            ("job.compute", self.job.compute),
            ("job.hold", self.job.hold),
            ("backoff.first", self.backoff.first),
            ("backoff.second", self.backoff.second),
            ("backoff.most", self.backoff.most),
        ];
        if let Some((name, value)) = not_negative.iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0)) {
            return Some(format!("{name} is {value}; it must not be negative"));
        }
        let shares = [("startJitter", self.start_jitter), ("job.unitJitter", self.job.unit_jitter)];
        if let Some((name, value)) = shares.iter().find(|(_, value)| !(0.0..1.0).contains(value)) {
            return Some(format!("{name} is {value}; it must be at least 0 and less than 1"));
        }
        if self.nodes == 0 || self.job.cycles == 0 {
            return Some("nodes and job.cycles must be at least 1".to_owned());
        }
        if self.step > self.poll {
            return Some(format!("step is {} s; it must not exceed poll, which is {} s", self.step, self.poll));
        }
        self.jobs.iter().find_map(|class| {
            let fits = class.limit > 0.0 && class.limit / self.oversubscription <= self.node_memory && class.limit <= self.capacity();
            let units = class.unit > 0.0 && class.limit / 2.0 / class.unit >= f64::from(self.job.least_units.max(1));
            (!fits || !units).then(|| {
                format!(
                    "jobs of {} MiB in units of {} MiB cannot run on nodes with {} MiB for pods",
                    class.limit,
                    class.unit,
                    self.capacity()
                )
            })
        })
    }
}
