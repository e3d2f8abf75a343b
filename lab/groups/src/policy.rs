//! The policy interface: an instance goes in, a placement and its explanation come out.

use serde::Serialize;

use drover_scheduling::groups::{Instance, Layout, Terms, Weights};

/// A placement policy. It is deterministic: the same instance, weights and settings (including seed and budget of moves) give the same
/// placement. Only a budget in seconds makes the result depend on the machine.
pub trait Policy {
    /// The name of the policy.
    fn name(&self) -> String;
    /// Places all containers that fit. Capacity and rules always hold; containers without a place are in [`Placed::unplaced`].
    fn place(&self, instance: &Instance, weights: &Weights) -> Placed;
}

/// A placement with its value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placed {
    /// The place of each container, as an index; `None` if it has none.
    pub at: Vec<Option<usize>>,
    /// The terms of the objective.
    pub terms: Terms,
    /// The objective f, which is minimised.
    pub value: f64,
    pub unplaced: Vec<usize>,
    /// Number of moves, or of nodes of the search tree, that were evaluated.
    pub effort: u64,
}

/// Where one copy of a group was placed, and what that means for its calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupReport {
    pub members: Vec<String>,
    /// Names of the places of its containers; more than one means that the group was split.
    pub places: Vec<String>,
    /// Calls of its containers within their place.
    pub inside: f64,
    /// Calls of its containers to other places.
    pub outside: f64,
}

impl Placed {
    /// The placement of a finished layout.
    pub fn of(layout: &Layout<'_>, weights: &Weights, effort: u64) -> Self {
        let at = layout.placement();
        let terms = Terms::of(layout.instance(), &at);
        let unplaced = (0..at.len()).filter(|c| at[*c].is_none()).collect();
        Self { at, terms, value: terms.value(weights), unplaced, effort }
    }

    /// One report for each copy of a group.
    pub fn group_reports(&self, instance: &Instance) -> Vec<GroupReport> {
        let story = |group: &Vec<u32>| {
            let mut places: Vec<usize> = group.iter().filter_map(|c| self.at[*c as usize]).collect();
            places.sort_unstable();
            places.dedup();
            let (mut inside, mut outside) = (0.0, 0.0);
            for c in group {
                for (other, w) in instance.near(*c) {
                    match (self.at[*c as usize], self.at[*other as usize]) {
                        (Some(p), Some(q)) if p == q => inside += if group.contains(other) { w / 2.0 } else { *w },
                        (Some(_), Some(_)) => outside += w,
                        _ => {}
                    }
                }
            }
            let members = group.iter().map(|c| instance.name(*c as usize)).collect();
            GroupReport { members, places: places.iter().map(|p| instance.places()[*p].name.clone()).collect(), inside, outside }
        };
        instance.groups().iter().map(story).collect()
    }

    /// What is wrong with this placement: every exceeded capacity and every broken rule. Tests assert that it is empty for every policy.
    pub fn faults(&self, instance: &Instance) -> Vec<String> {
        let mut faults = Vec::new();
        for (used, place) in drover_scheduling::groups::used(instance, &self.at).iter().zip(instance.places()) {
            // A place may have been overfull before; what was added there must fit.
            let added = self.at.iter().flatten().any(|p| std::ptr::eq(&instance.places()[*p], place));
            if added && used.iter().zip(place.capacity).any(|(u, c)| *u > c * (1.0 + 1e-6)) {
                faults.push(format!("{} is over its capacity", place.name));
            }
        }
        let at = |c: u32| self.at[c as usize];
        for a in 0..self.at.len() as u32 {
            for b in (a + 1)..self.at.len() as u32 {
                if !instance.rules().apart.is_empty() && at(a).is_some() && at(a) == at(b) && instance.repel(a, b) {
                    faults.push(format!("{} and {} must not share a place", instance.name(a as usize), instance.name(b as usize)));
                }
            }
        }
        for (service, most) in &instance.rules().per_domain {
            let mut count = std::collections::BTreeMap::<usize, usize>::new();
            for (c, place) in self.at.iter().enumerate().filter(|(c, _)| instance.containers()[*c].service == *service) {
                if let Some(p) = place {
                    let n = count.entry(instance.places()[*p].domain).or_default();
                    *n += 1;
                    if *n == most + 1 {
                        faults.push(format!("more than {most} copies of {} in one failure domain", instance.name(c)));
                    }
                }
            }
        }
        let moved = self.at.iter().zip(instance.now()).filter(|(at, now)| now.is_some() && at.is_some() && at != now).count();
        if instance.rules().moves.is_some_and(|most| moved > most) {
            faults.push(format!("{moved} containers would move"));
        }
        faults
    }
}
