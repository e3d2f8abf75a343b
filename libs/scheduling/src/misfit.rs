//! Why pods do not fit on a member, as text. Called only after [`pack`](crate::fit::pack) failed, so it may be slow.

use std::collections::BTreeMap;

use crate::amounts::quantity;
use crate::fit::{Ask, Free, pack};
use crate::matching::admits;
use crate::{Amounts, PodGroup};

/// Why pods do not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// Some nodes admit the pods but have no room.
    NoRoom(String),
    /// No node admits the pods.
    NoNodeMatches(String),
}

impl Misfit {
    /// The reason as text for users.
    pub fn reason(&self) -> &str {
        match self {
            Self::NoRoom(reason) | Self::NoNodeMatches(reason) => reason,
        }
    }
}

/// Explains why `ask` does not fit.
pub fn explain(free: Free<'_>, ask: Ask<'_>) -> Misfit {
    if free.nodes.is_empty() {
        return Misfit::NoNodeMatches("it has no nodes".into());
    }
    let mut no_room = None;
    for group in &ask.demand.groups {
        if !group.per_node && ask.count(group) == 0 {
            continue;
        }
        let matching: Vec<usize> = (0..free.nodes.len()).filter(|n| admits(&free.nodes[*n], group).is_ok()).collect();
        if matching.is_empty() {
            return Misfit::NoNodeMatches(format!("{}: no node admits it: {}", group.workload, refusals(free, group)));
        }
        no_room = no_room.or_else(|| group_has_no_room(free, ask, group, &matching));
    }
    Misfit::NoRoom(no_room.unwrap_or_else(|| "each workload fits alone, but not all of them together".into()))
}

fn refusals(free: Free<'_>, group: &PodGroup) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for node in free.nodes {
        if let Err(refusal) = admits(node, group) {
            *counts.entry(refusal.to_string()).or_default() += 1;
        }
    }
    let words: Vec<String> = counts.into_iter().map(|(why, n)| format!("{why} ({n} node{})", if n == 1 { "" } else { "s" })).collect();
    words.join("; ")
}

fn group_has_no_room(free: Free<'_>, ask: Ask<'_>, group: &PodGroup, matching: &[usize]) -> Option<String> {
    let room = |n: usize| if ask.now { free.now[n].min(&free.later[n]) } else { free.later[n].clone() };
    let rooms: Vec<Amounts> = matching.iter().map(|n| room(*n)).collect();
    let need = &group.requests;
    if group.per_node {
        let full = matching.iter().zip(&rooms).find(|(_, room)| !room.fits(need))?;
        let resource = need.asked().find(|r| need.get(r) > full.1.get(r))?;
        return Some(format!(
            "{resource}: {} needs {} on every matching node, {} has {} free",
            group.workload,
            quantity(resource, need.get(resource)),
            free.nodes[*full.0].name,
            quantity(resource, full.1.get(resource).max(0))
        ));
    }
    if !rooms.iter().any(|room| room.fits(need)) {
        let emptiest = |resource: &str| rooms.iter().map(|room| room.get(resource)).max().unwrap_or(0).max(0);
        let alone = need.asked().find(|r| emptiest(r) < need.get(r));
        return Some(match alone {
            Some(r) => {
                format!("{r}: needs {} on one node, the emptiest matching has {} free", quantity(r, need.get(r)), quantity(r, emptiest(r)))
            }
            None => {
                let all: Vec<String> = need.asked().filter(|r| *r != "pods").map(|r| format!("{} {r}", quantity(r, need.get(r)))).collect();
                format!("needs {} together on one node; no matching node has all of it free", all.join(" and "))
            }
        });
    }
    let alone = crate::Demand { groups: vec![group.clone()], ..Default::default() };
    if pack(free, &[Ask { demand: &alone, ..ask }]).is_some() {
        return None;
    }
    let each: Vec<String> = need.asked().filter(|r| *r != "pods").map(|r| format!("{} {r}", quantity(r, need.get(r)))).collect();
    let fitting: i64 = rooms.iter().map(|room| need.asked().map(|r| room.get(r) / need.get(r)).min().unwrap_or(0).max(0)).sum();
    Some(format!("{} pods of {} each: only {fitting} fit at once", ask.count(group), each.join(" / ")))
}
