//! The call graph: the rates V_ij of calls from service i to service j, the input of everything in `groups`.
//!
//! Calls of a service to itself never leave their node and are dropped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The number of balanced resources: CPU and memory. Others (GPUs, pods, disks) only have to fit.
pub const RESOURCES: usize = 2;

/// CPU in millicores, memory in MiB.
pub type Load = [f64; RESOURCES];

/// A service: the request of each copy and the number of copies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Name, unique in its graph.
    pub name: String,
    /// Request of each copy.
    pub request: Load,
    /// Number of copies, at least 1.
    pub replicas: usize,
}

/// The rate of calls from one service to another. All calls of a graph have the same unit, for example per second or per request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Index of the calling service.
    pub from: usize,
    /// Index of the called service.
    pub to: usize,
    /// V_ij, positive.
    pub calls: f64,
}

/// An invalid call graph.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GraphError {
    /// Two services have the same name.
    #[error("service {0:?} is listed twice")]
    Twice(String),
    /// A service has no copies.
    #[error("service {0:?} has 0 replicas; at least 1 is required")]
    NoReplicas(String),
    /// A request is negative or not a number.
    #[error("service {0:?} requests an amount that is negative or not a number")]
    BadRequest(String),
    /// A call names an unknown service.
    #[error("a call names {0:?}, which is not a service of this graph")]
    NoSuchService(String),
    /// A rate is negative or not a number.
    #[error("the rate of calls from {from:?} to {to:?} is {calls}; it must be a number of at least 0")]
    BadRate {
        /// Calling service.
        from: String,
        /// Called service.
        to: String,
        /// The invalid rate.
        calls: f64,
    },
}

/// Services and the directed calls between them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallGraph {
    services: Vec<Service>,
    calls: Vec<Call>,
}

impl CallGraph {
    /// Makes a graph. Calls of the same pair are added; calls of rate 0 and calls of a service to itself are dropped.
    ///
    /// # Errors
    /// A name occurs twice, a number is invalid, or a call names an unknown service.
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

    /// Makes a graph from calls given by name, as users declare them.
    ///
    /// # Errors
    /// As [`CallGraph::new`].
    pub fn named<'a>(services: Vec<Service>, calls: impl IntoIterator<Item = (&'a str, &'a str, f64)>) -> Result<Self, GraphError> {
        let index: BTreeMap<String, usize> = services.iter().enumerate().map(|(i, s)| (s.name.clone(), i)).collect();
        let find = |name: &str| index.get(name).copied().ok_or_else(|| GraphError::NoSuchService(name.to_owned()));
        let calls = calls.into_iter().map(|(from, to, calls)| Ok(Call { from: find(from)?, to: find(to)?, calls }));
        Self::new(services, calls.collect::<Result<Vec<_>, GraphError>>()?)
    }

    /// The services in the given order. All other functions refer to them by index.
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// The calls, sorted by calling, then by called service.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// The weights w_ij = V_ij + V_ji for i < j, without zeros, sorted by (i, j).
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

    /// The same graph without the named services and their calls.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Self {
        let kept: Vec<usize> = (0..self.services.len()).filter(|i| !names.contains(&self.services[*i].name.as_str())).collect();
        let new = |old: usize| kept.iter().position(|k| *k == old);
        let calls = self.calls.iter().filter_map(|c| Some(Call { from: new(c.from)?, to: new(c.to)?, calls: c.calls })).collect();
        Self { services: kept.iter().map(|i| self.services[*i].clone()).collect(), calls }
    }

    /// Combines applications that do not call each other into one graph. The names get the application as a prefix.
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

    /// The total request of all copies of all services.
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
