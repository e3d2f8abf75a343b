//! The random input: fifteen applications, in the order in which they arrive, and the size of the clusters.

use fastrand::Rng;

/// The clusters by index: A and B are private, C is public.
pub const CLUSTERS: [&str; 3] = ["A", "B", "C"];
/// The number of private clusters, which come first.
pub const PRIVATE: usize = 2;
/// Number of applications of the paper's experiments.
pub const APPLICATIONS: usize = 15;

/// CPU of a microservice in millicores: smallest, step, number of values.
const CPU: (i64, i64, i64) = (200, 100, 9);
/// Memory of a microservice in MiB: smallest, step, number of values.
const MEMORY: (i64, i64, i64) = (256, 256, 8);
/// Most microservices of an application.
const MICROSERVICES: usize = 3;
/// CPU that a microservice uses, in percent of its request. The specification leaves it open; the algorithm `CPUUtilization` needs it.
const USED: std::ops::RangeInclusive<i64> = 10..=90;

/// The set of clusters on which a microservice may run, which is also a label that all of them have: bit `c` stands for `CLUSTERS[c]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Allowed(pub u8);

impl Allowed {
    /// Every set but the empty one.
    pub const ALL: std::ops::RangeInclusive<u8> = 1..=7;

    /// Whether the cluster is in the set.
    pub fn contains(self, cluster: usize) -> bool {
        self.0 >> cluster & 1 == 1
    }

    /// The clusters of the set, the private ones first.
    pub fn clusters(self) -> impl Iterator<Item = usize> {
        (0..CLUSTERS.len()).filter(move |cluster| self.contains(*cluster))
    }

    /// The label: the names of its clusters, for example `AC`.
    pub fn label(self) -> String {
        self.clusters().map(|cluster| CLUSTERS[cluster]).collect()
    }
}

/// A microservice of one pod; an app of a composite app in Drover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Microservice {
    /// Requested CPU in millicores.
    pub cpu: i64,
    /// Requested memory in MiB.
    pub memory: i64,
    /// Where it may run.
    pub allowed: Allowed,
    /// CPU that it uses, in millicores.
    pub cpu_used: i64,
    /// Time that its pods take until they are ready, in milliseconds, if the fleet reports it. The planner breaks ties by it.
    pub ready_ms: Option<u32>,
}

/// An application; a composite app in Drover. It is deployed as a whole or rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    pub microservices: Vec<Microservice>,
}

/// One draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    pub seed: u64,
    /// In the order of arrival.
    pub applications: Vec<Application>,
}

impl Draw {
    /// The draw of a seed.
    pub fn new(seed: u64) -> Self {
        Self::of(seed, APPLICATIONS)
    }

    /// A draw of another number of applications.
    pub fn of(seed: u64, applications: usize) -> Self {
        let mut rng = Rng::with_seed(seed);
        Self { seed, applications: (0..applications).map(|_| application(&mut rng)).collect() }
    }
}

fn application(rng: &mut Rng) -> Application {
    let microservices = (0..rng.usize(1..=MICROSERVICES)).map(|_| microservice(rng)).collect();
    Application { microservices }
}

fn microservice(rng: &mut Rng) -> Microservice {
    let mut uniform = |(least, step, values): (i64, i64, i64)| least + step * rng.i64(0..values);
    let (cpu, memory) = (uniform(CPU), uniform(MEMORY));
    let allowed = Allowed(rng.u8(Allowed::ALL));
    Microservice { cpu, memory, allowed, cpu_used: cpu * rng.i64(USED) / 100, ready_ms: None }
}

/// What the single node of each cluster can give to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSize {
    /// CPU in millicores.
    pub cpu: i64,
    /// Memory in MiB.
    pub memory: i64,
}

impl NodeSize {
    /// The size with which the mean demand of [`APPLICATIONS`] is `percent` % of all clusters together, rounded down.
    pub fn for_demand(percent: u32) -> Self {
        // The mean of 1 to n microservices is (n + 1) / 2, that of the amounts is least + step * (values - 1) / 2.
        let total = |(least, step, values): (i64, i64, i64)| {
            (APPLICATIONS * (MICROSERVICES + 1)) as i64 * (2 * least + step * (values - 1)) * 100 / (4 * 3 * i64::from(percent))
        };
        Self { cpu: total(CPU), memory: total(MEMORY) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_sized_for_the_mean_demand() {
        // 15 applications of 2 microservices of 600m and 1152 MiB in the mean.
        assert_eq!(NodeSize::for_demand(100), NodeSize { cpu: 30 * 600 / 3, memory: 30 * 1152 / 3 });
        assert_eq!(NodeSize::for_demand(85), NodeSize { cpu: 7058, memory: 13552 });
    }

    #[test]
    fn draws_have_the_means_that_nodes_are_sized_for() {
        let applications: Vec<Application> = (0..2000).flat_map(|seed| Draw::new(seed).applications).collect();
        let n = applications.len() as f64;
        let all: Vec<&Microservice> = applications.iter().flat_map(|application| &application.microservices).collect();
        let mean = |of: fn(&Microservice) -> i64| all.iter().map(|one| of(one) as f64).sum::<f64>() / all.len() as f64;
        assert!((all.len() as f64 / n - 2.0).abs() < 0.02);
        assert!((mean(|one| one.cpu) - 600.0).abs() < 5.0 && (mean(|one| one.memory) - 1152.0).abs() < 10.0);
        for allowed in Allowed::ALL {
            let share = all.iter().filter(|one| one.allowed.0 == allowed).count() as f64 / all.len() as f64;
            assert!((share - 1.0 / 7.0).abs() < 0.01, "{}: {share}", Allowed(allowed).label());
        }
        assert!(all.iter().all(|one| (200..=1000).contains(&one.cpu) && (256..=2048).contains(&one.memory) && one.cpu_used < one.cpu));
    }
}
