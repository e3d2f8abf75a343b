//! Random instances for training and evaluation: call graphs of the shapes that are published of microservices, on random nodes.
//!
//! The shapes follow the traces of Alibaba (Luo et al., SoCC 2021): call graphs are close to trees, a few services are called by many
//! others, and most paths end in a cache or a database, which gets more calls than its caller.

use crate::catalogue::{bookinfo, nodes, online_boutique};
use drover_scheduling::groups::{Call, CallGraph, Grouping, Instance, Limits, Load, RESOURCES, Rules, Service, Traffic, Variant};

/// Ranges from which instances are drawn.
#[derive(Clone, Debug)]
pub struct InstanceRanges {
    /// Services of a generated application.
    pub services: (usize, usize),
    pub apps: (usize, usize),
    pub places: (usize, usize),
    /// Containers, at most.
    pub containers: usize,
    /// Share of applications that are known: [`InstanceRanges::own`], or else Bookinfo and Online Boutique.
    pub published: f64,
    /// Call graphs of the user, one replica of each service.
    pub own: Vec<CallGraph>,
}

impl InstanceRanges {
    /// Ranges for training.
    pub fn training() -> Self {
        Self { services: (4, 16), apps: (1, 8), places: (4, 30), containers: 150, published: 0.3, own: Vec::new() }
    }

    /// Ranges for training on more places.
    pub fn wide() -> Self {
        Self { apps: (6, 20), places: (30, 80), containers: 400, ..Self::training() }
    }

    /// Ranges for training on many places, of which each step of the policy ranks only a part.
    pub fn vast() -> Self {
        Self { apps: (30, 60), places: (120, 300), containers: 1_200, ..Self::training() }
    }

    /// Ranges for evaluation: other numbers of places, more services, and no published application.
    pub fn evaluation() -> Self {
        Self { services: (5, 22), apps: (1, 12), places: (31, 60), containers: 300, published: 0.0, own: Vec::new() }
    }

    /// Draws an instance.
    pub fn draw(&self, rng: &mut fastrand::Rng) -> Instance {
        loop {
            if let Some(instance) = self.attempt(rng) {
                return instance;
            }
        }
    }

    fn attempt(&self, rng: &mut fastrand::Rng) -> Option<Instance> {
        let wanted = within(rng, self.apps);
        let same = if rng.bool() { Some(1 + rng.usize(0..9)) } else { None };
        let one = if rng.u8(..) < 100 { Some(self.app(rng)) } else { None };
        let mut apps = Vec::new();
        let mut containers = 0;
        for _ in 0..wanted {
            let replicas = same.unwrap_or_else(|| 1 + rng.usize(0..6));
            let app = one.clone().unwrap_or_else(|| self.app(rng)).scaled_to(replicas);
            containers += app.services().len() * replicas;
            if containers > self.containers && !apps.is_empty() {
                break;
            }
            apps.push(app);
        }
        let graph = CallGraph::beside(apps.iter().enumerate().map(|(i, g)| (format!("app-{i}"), g)));
        let traffic = if rng.u8(..) < 64 { Traffic::Uniform } else { Traffic::Local };
        let full = if rng.bool() { 0.7 + 0.22 * rng.f64() } else { 0.08 + 0.62 * rng.f64() };
        let count = within(rng, self.places);
        let places = if rng.u8(..) < 160 {
            nodes(count, graph.demand(), full, 1.0 + 0.4 * rng.f64() * f64::from(u8::from(rng.bool())))
        } else {
            let mut size = || 0.7 + 2.3 * rng.f64();
            let sizes: Vec<f64> = (0..count).map(|_| size()).collect();
            let sizes: Vec<Load> = sizes.into_iter().map(|s| [s, s * (0.8 + 0.4 * rng.f64())]).collect();
            let sum: Load = std::array::from_fn(|r| sizes.iter().map(|s| s[r]).sum());
            let demand = graph.demand();
            let place = |(i, s): (usize, &Load)| {
                let capacity = std::array::from_fn::<f64, RESOURCES, _>(|r| demand[r] / full * s[r] / sum[r]);
                drover_scheduling::groups::Place::new(format!("node-{}", i + 1), capacity, i)
            };
            sizes.iter().enumerate().map(place).collect()
        };
        // Most containers must fit on most nodes, else the instance is about capacity and nothing else.
        let small = places.iter().map(|p| p.capacity).fold([f64::MAX; 2], |a, c| [a[0].min(c[0]), a[1].min(c[1])]);
        let largest = graph.services().iter().map(|s| s.request).fold([0.0_f64; 2], |a, q| [a[0].max(q[0]), a[1].max(q[1])]);
        if largest[0] > small[0] || largest[1] > small[1] {
            return None;
        }
        let limits = Limits { nodes: places.iter().map(|p| p.capacity).collect(), ..Limits::default() };
        let grouping = Grouping::of(&graph, Some(crate::catalogue::RHO), Variant::Merge, &limits).ok()?;
        Instance::new(&graph, traffic, &grouping, places, Rules::default()).ok()
    }

    fn app(&self, rng: &mut fastrand::Rng) -> CallGraph {
        if rng.f64() < self.published {
            return match self.own.as_slice() {
                [] if rng.bool() => bookinfo(),
                [] => online_boutique(),
                own => own[rng.usize(0..own.len())].clone(),
            };
        }
        generated_app(within(rng, self.services), rng)
    }
}

/// A generated application.
pub fn generated_app(services: usize, rng: &mut fastrand::Rng) -> CallGraph {
    let amounts =
        [[50.0, 64.0], [100.0, 64.0], [100.0, 128.0], [100.0, 200.0], [100.0, 300.0], [200.0, 180.0], [200.0, 256.0], [250.0, 512.0]];
    let mut calls: Vec<Call> = Vec::new();
    let mut rate = vec![1.0; services];
    let mut parents = vec![0usize];
    let mut list: Vec<Service> = Vec::new();
    for s in 0..services {
        let store = s > 1 && rng.u8(..) < 90;
        let request = amounts[rng.usize(0..amounts.len())];
        list.push(Service { name: format!("s{s}{}", if store { "-db" } else { "" }), request, replicas: 1 });
        if s > 0 {
            // Services that are called already are called by more: a few have many callers.
            let parent = parents[rng.usize(0..parents.len())];
            let factor = if store { 1.0 + 5.0 * rng.f64() } else { 0.1 + 1.9 * rng.f64() * rng.f64() };
            rate[s] = rate[parent] * factor;
            calls.push(Call { from: parent, to: s, calls: rate[s] });
            if !store {
                parents.extend([s, parent]);
            }
            if s > 2 && rng.u8(..) < 70 {
                let other = parents[rng.usize(0..parents.len())];
                calls.push(Call { from: other, to: s, calls: rate[other] * rng.f64() });
            }
        }
    }
    CallGraph::new(list, calls).unwrap_or_else(|e| unreachable!("generated numbers are valid: {e}"))
}

fn within(rng: &mut fastrand::Rng, range: (usize, usize)) -> usize {
    rng.usize(range.0..=range.1)
}
