//! The checker: computes from scratch what an assignment costs and which constraints it breaks.

use std::collections::{BTreeMap, BTreeSet};

use super::read::{Machine, Reassignment};

/// The parts of the objective, weights included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Cost of use above the safety capacities.
    pub load: i64,
    /// Cost of free resources that are out of proportion.
    pub balance: i64,
    /// Cost of the moves of processes.
    pub process_moves: i64,
    /// Cost of the moves of the service with the most moves.
    pub service_moves: i64,
    /// Cost of the moves between machines.
    pub machine_moves: i64,
}

impl Cost {
    /// The sum of all parts, which is minimised.
    pub fn total(&self) -> i64 {
        self.load + self.balance + self.process_moves + self.service_moves + self.machine_moves
    }
}

/// A constraint that an assignment breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A machine has too little of a resource, transient use included.
    #[error("machine {machine} has too little of resource {resource}")]
    Capacity { machine: usize, resource: usize },
    /// Two processes of one service are on the same machine.
    #[error("machine {machine} has two processes of service {service}")]
    Conflict { machine: usize, service: usize },
    /// A service is in too few locations.
    #[error("service {0} is in too few locations")]
    Spread(usize),
    /// A service is in a neighbourhood without a service that it depends on.
    #[error("service {service} is in neighborhood {neighborhood} where service {needs}, which it depends on, is not")]
    Dependency {
        service: usize,
        /// The service that it depends on.
        needs: usize,
        neighborhood: usize,
    },
}

impl Reassignment {
    /// Load cost and balance cost of a machine with the given use.
    pub(super) fn machine_cost(&self, machine: &Machine, used: &[i64]) -> (i64, i64) {
        let over = |(r, resource): (usize, &super::Resource)| resource.weight * (used[r] - machine.safety[r]).max(0);
        let load = self.resources.iter().enumerate().map(over).sum();
        let free = |r: usize| machine.capacity[r] - used[r];
        let balance = self.balances.iter().map(|b| b.weight * (b.target * free(b.first) - free(b.second)).max(0)).sum();
        (load, balance)
    }

    fn used(&self, at: &[usize]) -> Vec<Vec<i64>> {
        let mut used = vec![vec![0; self.resources.len()]; self.machines.len()];
        for (process, machine) in self.processes.iter().zip(at) {
            used[*machine].iter_mut().zip(&process.requirement).for_each(|(u, q)| *u += q);
        }
        used
    }

    /// The cost of an assignment.
    pub fn cost(&self, at: &[usize]) -> Cost {
        let mut cost = Cost::default();
        for (machine, used) in self.machines.iter().zip(self.used(at)) {
            let (load, balance) = self.machine_cost(machine, &used);
            cost.load += load;
            cost.balance += balance;
        }
        let mut moved = vec![0; self.services.len()];
        for ((process, from), to) in self.processes.iter().zip(&self.initial).zip(at).filter(|((_, from), to)| from != to) {
            cost.process_moves += self.weights[0] * process.move_cost;
            cost.machine_moves += self.weights[2] * self.machines[*from].move_cost[*to];
            moved[process.service] += 1;
        }
        cost.service_moves = self.weights[1] * moved.into_iter().max().unwrap_or(0);
        cost
    }

    /// All constraints that an assignment breaks.
    pub fn faults(&self, at: &[usize]) -> Vec<Violation> {
        let mut faults = Vec::new();
        let mut used = self.used(at);
        for ((process, from), _) in self.processes.iter().zip(&self.initial).zip(at).filter(|((_, from), to)| from != to) {
            for (r, _) in self.resources.iter().enumerate().filter(|(_, r)| r.transient) {
                used[*from][r] += process.requirement[r];
            }
        }
        for (m, (machine, used)) in self.machines.iter().zip(&used).enumerate() {
            let over = (0..used.len()).filter(|r| used[*r] > machine.capacity[*r]);
            faults.extend(over.map(|resource| Violation::Capacity { machine: m, resource }));
        }
        let mut seen = BTreeSet::new();
        let mut locations: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let mut near: BTreeSet<(usize, usize)> = BTreeSet::new();
        for (process, machine) in self.processes.iter().zip(at) {
            if !seen.insert((process.service, *machine)) {
                faults.push(Violation::Conflict { machine: *machine, service: process.service });
            }
            locations.entry(process.service).or_default().insert(self.machines[*machine].location);
            near.insert((process.service, self.machines[*machine].neighborhood));
        }
        for (s, rules) in self.services.iter().enumerate() {
            if locations.get(&s).map_or(0, BTreeSet::len) < rules.spread {
                faults.push(Violation::Spread(s));
            }
        }
        for (service, neighborhood) in &near {
            for needs in self.services[*service].depends_on.iter().filter(|n| !near.contains(&(**n, *neighborhood))) {
                faults.push(Violation::Dependency { service: *service, needs: *needs, neighborhood: *neighborhood });
            }
        }
        faults
    }
}
