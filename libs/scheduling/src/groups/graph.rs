//! Who calls whom, and how often: the input of everything in `groups`.
//!
//! Not a trace and not a mesh: just the rates V_ij. The diagonal (a service calling itself) never leaves its node and is dropped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The resources that are balanced: CPU and memory. The others (GPUs, pods, disks) are a matter of fitting only.
pub const RESOURCES: usize = 2;

/// CPU in millicores, memory in MiB.
pub type Load = [f64; RESOURCES];

/// One kind of container: what each copy asks for, and how many copies there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Unique in its graph.
    pub name: String,
    /// What each copy asks for.
    pub request: Load,
    /// At least 1.
    pub replicas: usize,
}

/// `from` calls `to` this often: per second, per request, per iteration, so long as one graph keeps to one unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Index of the calling service.
    pub from: usize,
    /// Index of the called service.
    pub to: usize,
    /// V_ij, positive.
    pub calls: f64,
}

/// What is wrong with a call graph.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GraphError {
    /// Two services of one name.
    #[error("service {0:?} is there twice")]
    Twice(String),
    /// A service without copies.
    #[error("service {0:?} has no replicas; say at least 1")]
    NoReplicas(String),
    /// A request that is negative or not a number.
    #[error("service {0:?} asks for an amount that is negative or not a number")]
    BadRequest(String),
    /// A call from or to nobody.
    #[error("a call names {0:?}, which is not a service of this graph")]
    NoSuchService(String),
    /// A rate that is negative or not a number.
    #[error("{from:?} calls {to:?} {calls} times; say a number of at least 0")]
    BadRate {
        /// The caller.
        from: String,
        /// The called.
        to: String,
        /// What was said.
        calls: f64,
    },
}

/// Services and the calls between them, directed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallGraph {
    services: Vec<Service>,
    calls: Vec<Call>,
}

impl CallGraph {
    /// Calls of one pair are added up; calls of rate 0 and to oneself are dropped.
    ///
    /// # Errors
    /// When a name, a number or an end of a call makes no sense.
    pub fn new(services: Vec<Service>, calls: impl IntoIterator<Item = Call>) -> Result<Self, GraphError> {
        let mut seen = std::collections::BTreeSet::new();
        for s in &services {
            if !seen.insert(s.name.as_str()) {
                return Err(GraphError::Twice(s.name.clone()));
            }
            if s.replicas == 0 {
                return Err(GraphError::NoReplicas(s.name.clone()));
            }
            if s.request.iter().any(|q| !q.is_finite() || *q < 0.0) {
                return Err(GraphError::BadRequest(s.name.clone()));
            }
        }
        let name = |i: usize| services.get(i).map(|s| s.name.clone()).ok_or_else(|| GraphError::NoSuchService(format!("#{i}")));
        let mut sums: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for c in calls {
            let (from, to) = (name(c.from)?, name(c.to)?);
            if !c.calls.is_finite() || c.calls < 0.0 {
                return Err(GraphError::BadRate { from, to, calls: c.calls });
            }
            if c.from != c.to && c.calls > 0.0 {
                *sums.entry((c.from, c.to)).or_default() += c.calls;
            }
        }
        let calls = sums.into_iter().map(|((from, to), calls)| Call { from, to, calls }).collect();
        Ok(Self { services, calls })
    }

    /// The same with calls given by name, as users declare them.
    ///
    /// # Errors
    /// As [`CallGraph::new`].
    pub fn named<'a>(services: Vec<Service>, calls: impl IntoIterator<Item = (&'a str, &'a str, f64)>) -> Result<Self, GraphError> {
        let index: BTreeMap<String, usize> = services.iter().enumerate().map(|(i, s)| (s.name.clone(), i)).collect();
        let find = |name: &str| index.get(name).copied().ok_or_else(|| GraphError::NoSuchService(name.to_owned()));
        let calls = calls.into_iter().map(|(from, to, calls)| Ok(Call { from: find(from)?, to: find(to)?, calls }));
        Self::new(services, calls.collect::<Result<Vec<_>, GraphError>>()?)
    }

    /// In the order in which they were given; everything else speaks of them by index.
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// By caller, then called.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// w_ij = V_ij + V_ji for i < j, without zeros, ordered by (i, j).
    pub fn weights(&self) -> Vec<(usize, usize, f64)> {
        let mut sums: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for c in &self.calls {
            *sums.entry((c.from.min(c.to), c.from.max(c.to))).or_default() += c.calls;
        }
        sums.into_iter().map(|((i, j), w)| (i, j, w)).collect()
    }

    /// The sum of all V_ij.
    pub fn total(&self) -> f64 {
        self.calls.iter().map(|c| c.calls).sum()
    }

    /// The same graph with `replicas` copies of each service.
    #[must_use]
    pub fn scaled_to(&self, replicas: usize) -> Self {
        let services = self.services.iter().map(|s| Service { replicas: replicas.max(1), ..s.clone() }).collect();
        Self { services, calls: self.calls.clone() }
    }

    /// Without the named services and their calls.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Self {
        let kept: Vec<usize> = (0..self.services.len()).filter(|i| !names.contains(&self.services[*i].name.as_str())).collect();
        let new = |old: usize| kept.iter().position(|k| *k == old);
        let calls = self.calls.iter().filter_map(|c| Some(Call { from: new(c.from)?, to: new(c.to)?, calls: c.calls })).collect();
        Self { services: kept.iter().map(|i| self.services[*i].clone()).collect(), calls }
    }

    /// Several applications that do not call each other as one graph; names get their application's prefix.
    #[must_use]
    pub fn beside<'a>(apps: impl IntoIterator<Item = (String, &'a CallGraph)>) -> Self {
        let (mut services, mut calls) = (Vec::new(), Vec::new());
        for (app, graph) in apps {
            let first = services.len();
            services.extend(graph.services.iter().map(|s| Service { name: format!("{app}/{}", s.name), ..s.clone() }));
            calls.extend(graph.calls.iter().map(|c| Call { from: c.from + first, to: c.to + first, calls: c.calls }));
        }
        Self { services, calls }
    }

    /// All copies of all services together.
    pub fn demand(&self) -> Load {
        let mut sum = [0.0; RESOURCES];
        for s in &self.services {
            for (total, q) in sum.iter_mut().zip(s.request) {
                *total += q * s.replicas as f64;
            }
        }
        sum
    }
}
