//! An instance of the group placement problem: containers, their calls, places and rules.
//!
//! A *place* is a node of a member, or a whole member if groups are placed on clusters; the code is the same.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::graph::{CallGraph, Load, RESOURCES};
use super::grouping::Grouping;

/// A place where containers can run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Name for users.
    pub name: String,
    /// Capacity, positive.
    pub capacity: Load,
    /// Amounts used by others; they count in the balance.
    pub taken: Load,
    /// Index of the failure domain, for example a zone or a rack.
    pub domain: usize,
}

impl Place {
    /// An empty place in a failure domain.
    pub fn new(name: impl Into<String>, capacity: Load, domain: usize) -> Self {
        Self { name: name.into(), capacity, taken: [0.0; RESOURCES], domain }
    }
}

/// How calls between services are divided among their copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// Every copy calls every copy, each pair with V / (R_i R_j), as by default in kube-proxy and Swarm.
    #[default]
    Uniform,
    /// Copy a calls copy a, each pair with V / R, as with routing that prefers the same node.
    Local,
}

/// Constraints beside capacity; none by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// Pairs of services that must not share a place; (s, s): copies of s must not share one.
    pub apart: BTreeSet<(usize, usize)>,
    /// Limits on copies in one failure domain, as (service, limit).
    pub per_domain: Vec<(usize, usize)>,
    /// Limit on moves of running containers; `None`: no limit.
    pub moves: Option<usize>,
}

/// One copy of a service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Container {
    /// Index of its service.
    pub service: usize,
    /// Number of the copy, from 0.
    pub replica: usize,
    pub request: Load,
}

/// What placing reads of a container again and again, in 32 bytes: with many containers, reading takes longer than computing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    pub request: Load,
    /// Its calls are `near[first..]` up to those of the next container.
    first: u32,
    pub group: u32,
    pub copy: u32,
    /// Its place in the order of copies, groups, containers.
    pub rank: u32,
}

/// An invalid instance.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InstanceError {
    /// There are no places.
    #[error("there are no places for the containers")]
    NoPlaces,
    /// A capacity is not positive, or a used amount is negative or not a number.
    #[error("place {0:?} has a capacity that is not positive, or a used amount that is negative")]
    BadPlace(String),
    /// A rule names an unknown service.
    #[error("a rule names service #{0}, but the graph has only {1} services")]
    NoSuchService(usize, usize),
    /// The groups do not match the graph.
    #[error("the groups are not a partition of the {0} services")]
    NotAPartition(usize),
    /// The distances do not match the places.
    #[error("distances must be a symmetric table of {0} x {0} numbers of at least 0 with zeros on the diagonal")]
    BadDistances(usize),
    /// The current locations do not match the containers.
    #[error("the current locations are of {0} containers or name an unknown place; there are {1} containers")]
    BadNow(usize, usize),
}

/// Containers, their calls and groups, places and rules. All references are indices.
#[derive(Clone, Debug)]
pub struct Instance {
    places: Vec<Place>,
    containers: Vec<Container>,
    names: Vec<String>,
    /// One for each container, and another one after the last.
    facts: Vec<Facts>,
    /// The calls of all containers, which are symmetric.
    near: Vec<(u32, f64)>,
    total: f64,
    groups: Vec<Vec<u32>>,
    copies: Vec<Vec<u32>>,
    pub(super) rules: Rules,
    distance: Option<Vec<f64>>,
    farthest: f64,
    now: Vec<Option<usize>>,
}

impl Instance {
    /// Makes an instance. Copy a of a group consists of copy a of each of its services that has so many copies; containers are ordered
    /// copy by copy.
    ///
    /// # Errors
    /// The places, groups or rules are invalid for this graph.
    pub fn new(graph: &CallGraph, traffic: Traffic, grouping: &Grouping, places: Vec<Place>, rules: Rules) -> Result<Self, InstanceError> {
        let services = graph.services();
        if places.is_empty() {
            return Err(InstanceError::NoPlaces);
        }
        let sound = |p: &Place| p.capacity.iter().all(|c| c.is_finite() && *c > 0.0) && p.taken.iter().all(|t| t.is_finite() && *t >= 0.0);
        if let Some(p) = places.iter().find(|p| !sound(p)) {
            return Err(InstanceError::BadPlace(p.name.clone()));
        }
        let named = rules.apart.iter().flat_map(|(a, b)| [*a, *b]).chain(rules.per_domain.iter().map(|(s, _)| *s));
        if let Some(s) = named.into_iter().find(|s| *s >= services.len()) {
            return Err(InstanceError::NoSuchService(s, services.len()));
        }
        let mut members: Vec<usize> = grouping.groups.iter().flatten().copied().collect();
        members.sort_unstable();
        if !members.iter().copied().eq(0..services.len()) {
            return Err(InstanceError::NotAPartition(services.len()));
        }

        let most = services.iter().map(|s| s.replicas).max().unwrap_or(0);
        let mut id = vec![Vec::new(); services.len()];
        let mut containers = Vec::new();
        for replica in 0..most {
            for (service, s) in services.iter().enumerate().filter(|(_, s)| replica < s.replicas) {
                id[service].push(containers.len() as u32);
                containers.push(Container { service, replica, request: s.request });
            }
        }
        let mut groups = Vec::new();
        for replica in 0..most {
            for g in &grouping.groups {
                let copy: Vec<u32> = g.iter().filter_map(|s| id[*s].get(replica).copied()).collect();
                if !copy.is_empty() {
                    groups.push(copy);
                }
            }
        }
        let pairs = pairs(graph, traffic, &id);
        let (first, near) = adjacency(containers.len(), &pairs);
        let copies = components(graph, &containers);
        let facts = facts(&containers, &first, &groups, &copies);
        let rules = Rules { apart: rules.apart.iter().map(|(a, b)| (*a.min(b), *a.max(b))).collect(), ..rules };
        let names = services.iter().map(|s| s.name.clone()).collect();
        let now = vec![None; containers.len()];
        let total = pairs.iter().map(|p| p.2).sum();
        Ok(Self { places, containers, names, facts, near, total, groups, copies, rules, distance: None, farthest: 1.0, now })
    }

    /// Sets the cost of calls between places to a distance, for example the latency, as a matrix row by row.
    ///
    /// # Errors
    /// [`InstanceError::BadDistances`] if the matrix has the wrong size, is not symmetric or has invalid values.
    pub fn with_distances(mut self, distance: Vec<f64>) -> Result<Self, InstanceError> {
        let n = self.places.len();
        let sound = distance.len() == n * n
            && (0..n).all(|a| {
                distance[a * n + a] == 0.0 && (0..n).all(|b| distance[a * n + b] >= 0.0 && distance[a * n + b] == distance[b * n + a])
            });
        if !sound || distance.iter().any(|d| !d.is_finite()) {
            return Err(InstanceError::BadDistances(n));
        }
        self.farthest = distance.iter().copied().fold(0.0, f64::max);
        if self.farthest == 0.0 {
            self.farthest = 1.0;
        }
        self.distance = Some(distance);
        Ok(self)
    }

    /// Sets the current place of each container, to which [`Rules::moves`] refers.
    ///
    /// # Errors
    /// [`InstanceError::BadNow`] if the number of containers is wrong or a place is unknown.
    pub fn running(mut self, now: Vec<Option<usize>>) -> Result<Self, InstanceError> {
        if now.len() != self.containers.len() || now.iter().flatten().any(|p| *p >= self.places.len()) {
            return Err(InstanceError::BadNow(now.len(), self.containers.len()));
        }
        self.now = now;
        Ok(self)
    }

    /// The places.
    pub fn places(&self) -> &[Place] {
        &self.places
    }
    /// All containers, ordered copy by copy.
    pub fn containers(&self) -> &[Container] {
        &self.containers
    }
    /// The name of a container for users: `service-copy`.
    pub fn name(&self, container: usize) -> String {
        let c = self.containers[container];
        format!("{}-{}", self.names[c.service], c.replica)
    }
    /// The copies of the groups, each a list of containers.
    pub fn groups(&self) -> &[Vec<u32>] {
        &self.groups
    }
    /// The index of a container's copy of a group.
    pub fn group_of(&self, container: u32) -> usize {
        self.facts[container as usize].group as usize
    }
    /// The copies of whole applications: containers connected by calls, copy by copy.
    pub fn copies(&self) -> &[Vec<u32>] {
        &self.copies
    }
    /// The index of a container's copy of an application.
    pub fn copy_of(&self, container: u32) -> usize {
        self.facts[container as usize].copy as usize
    }
    /// The containers that a container calls or that call it, with the sum of the rates of both directions.
    pub fn near(&self, container: u32) -> &[(u32, f64)] {
        let [this, next] = [0, 1].map(|n| self.facts[container as usize + n].first as usize);
        &self.near[this..next]
    }
    /// What placing reads of a container again and again.
    #[inline]
    pub(super) fn facts(&self, container: u32) -> &Facts {
        &self.facts[container as usize]
    }
    /// The sum of all calls.
    pub fn total_calls(&self) -> f64 {
        self.total
    }
    /// The constraints on every placement.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }
    /// The current place of each container.
    pub fn now(&self) -> &[Option<usize>] {
        &self.now
    }
    /// The cost of a call between two places, in [0, 1].
    pub fn apart(&self, a: usize, b: usize) -> f64 {
        match &self.distance {
            _ if a == b => 0.0,
            None => 1.0,
            Some(d) => d[a * self.places.len() + b] / self.farthest,
        }
    }
    /// Whether distances are set. Without distances every call between two places costs 1.
    pub fn has_distances(&self) -> bool {
        self.distance.is_some()
    }
    /// Whether two containers must not share a place.
    pub fn repel(&self, a: u32, b: u32) -> bool {
        let (s, t) = (self.containers[a as usize].service, self.containers[b as usize].service);
        a != b && self.rules.apart.contains(&(s.min(t), s.max(t)))
    }
}

/// The calls between containers, each pair once.
fn pairs(graph: &CallGraph, traffic: Traffic, id: &[Vec<u32>]) -> Vec<(u32, u32, f64)> {
    let mut pairs = Vec::new();
    for (i, j, w) in graph.weights() {
        let (ri, rj) = (id[i].len(), id[j].len());
        match traffic {
            Traffic::Local => {
                let most = ri.max(rj);
                pairs.extend((0..most).map(|a| (id[i][a % ri], id[j][a % rj], w / most as f64)));
            }
            Traffic::Uniform => {
                let each = w / (ri * rj) as f64;
                pairs.extend(id[i].iter().flat_map(|a| id[j].iter().map(move |b| (*a, *b, each))));
            }
        }
    }
    pairs
}

fn adjacency(containers: usize, pairs: &[(u32, u32, f64)]) -> (Vec<u32>, Vec<(u32, f64)>) {
    let mut lists = vec![Vec::new(); containers];
    for (a, b, w) in pairs {
        lists[*a as usize].push((*b, *w));
        lists[*b as usize].push((*a, *w));
    }
    let mut first = vec![0];
    let mut near = Vec::new();
    for list in lists {
        near.extend(list);
        first.push(near.len() as u32);
    }
    (first, near)
}

fn facts(containers: &[Container], first: &[u32], groups: &[Vec<u32>], copies: &[Vec<u32>]) -> Vec<Facts> {
    let mut facts: Vec<Facts> = first.iter().map(|first| Facts { first: *first, ..Facts::default() }).collect();
    for (facts, container) in facts.iter_mut().zip(containers) {
        facts.request = container.request;
    }
    for (n, group) in groups.iter().enumerate() {
        group.iter().for_each(|c| facts[*c as usize].group = n as u32);
    }
    for (n, copy) in copies.iter().enumerate() {
        copy.iter().for_each(|c| facts[*c as usize].copy = n as u32);
    }
    let mut order: Vec<usize> = (0..containers.len()).collect();
    order.sort_unstable_by_key(|c| (facts[*c].copy, facts[*c].group, *c));
    for (rank, c) in order.into_iter().enumerate() {
        facts[c].rank = rank as u32;
    }
    facts
}

/// Divides the containers into copies of applications: same copy number, services connected by calls.
fn components(graph: &CallGraph, containers: &[Container]) -> Vec<Vec<u32>> {
    let mut of: Vec<usize> = (0..graph.services().len()).collect();
    for (i, j, _) in graph.weights() {
        let (a, b) = (of[i].min(of[j]), of[i].max(of[j]));
        of.iter_mut().filter(|o| **o == b).for_each(|o| *o = a);
    }
    let mut units: std::collections::BTreeMap<(usize, usize), Vec<u32>> = std::collections::BTreeMap::new();
    for (c, container) in containers.iter().enumerate() {
        units.entry((container.replica, of[container.service])).or_default().push(c as u32);
    }
    units.into_values().collect()
}
