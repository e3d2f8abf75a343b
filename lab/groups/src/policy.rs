//! What every policy is: an instance goes in, a placement and its reasons come out.

use serde::Serialize;

use drover_scheduling::groups::Instance;
use drover_scheduling::groups::Layout;
use drover_scheduling::groups::{Terms, Weights};

/// A way of placing. Deterministic: the same instance, weights and settings (seed and budget of moves among them) give the
/// same placement; only a budget of time gives that up.
pub trait Policy {
    /// As users write it.
    fn name(&self) -> String;
    /// Places all that fits. Capacity and rules always hold; who finds no place is in [`Placed::unplaced`].
    fn place(&self, instance: &Instance, weights: &Weights) -> Placed;
}

/// A placement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placed {
    /// The place of each container.
    pub at: Vec<Option<usize>>,
    /// What it is worth, term by term.
    pub terms: Terms,
    /// The objective f.
    pub value: f64,
    /// Containers without a place.
    pub unplaced: Vec<usize>,
    /// Moves (or nodes of the search tree) looked at.
    pub effort: u64,
}

/// Where one copy of a group went and what that means for its calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupStory {
    /// Names of its containers.
    pub members: Vec<String>,
    /// Names of the places they are on; more than one: the group was broken.
    pub places: Vec<String>,
    /// Calls of its members that stay on their place.
    pub inside: f64,
    /// Calls of its members that leave it.
    pub outside: f64,
}

impl Placed {
    /// From the finished layout.
    pub fn of(layout: &Layout<'_>, weights: &Weights, effort: u64) -> Self {
        let at = layout.placement();
        let terms = Terms::of(layout.instance(), &at);
        let unplaced = (0..at.len()).filter(|c| at[*c].is_none()).collect();
        Self { at, terms, value: terms.value(weights), unplaced, effort }
    }

    /// Group by group, for people and for `drover explain`.
    pub fn stories(&self, instance: &Instance) -> Vec<GroupStory> {
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
            GroupStory { members, places: places.iter().map(|p| instance.places()[*p].name.clone()).collect(), inside, outside }
        };
        instance.groups().iter().map(story).collect()
    }

    /// Why this placement cannot be: what exceeds a capacity or breaks a rule. Empty for every policy here (tests ask).
    pub fn faults(&self, instance: &Instance) -> Vec<String> {
        let mut faults = Vec::new();
        for (used, place) in drover_scheduling::groups::used(instance, &self.at).iter().zip(instance.places()) {
            // Others may have filled a place before us; what we put there must fit.
            let ours = self.at.iter().flatten().any(|p| std::ptr::eq(&instance.places()[*p], place));
            if ours && used.iter().zip(place.capacity).any(|(u, c)| *u > c * (1.0 + 1e-6)) {
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
