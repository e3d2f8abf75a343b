//! Limits sacrifices. Killing one container so that the others can continue may turn into killing all of them again and again (the
//! paper's rule does so with a short round, or with a lower bound that cannot be reached). A sacrifice is therefore allowed only as the
//! last resort, seldom, and only of the container that loses the least work.

use crate::policy::{PolicyInput, bank};
use crate::settings::{BankSettings, Sacrifices};
use crate::{ContainerId, Moment, Reason};

/// Selects which of the proposed sacrifices are carried out, and records the time of a governed one in `past`.
pub(crate) fn allow(
    rule: &Sacrifices,
    proposed: Vec<(ContainerId, Reason)>,
    input: &PolicyInput<'_>,
    bank: &BankSettings,
    past: &mut Vec<Moment>,
) -> Vec<(ContainerId, Reason)> {
    match *rule {
        _ if proposed.is_empty() => Vec::new(),
        Sacrifices::Never => Vec::new(),
        Sacrifices::Unrestrained => proposed,
        Sacrifices::Governed { every, per_hour } => {
            let too_soon = past.last().is_some_and(|last| input.now.since(*last) < every);
            let free = input.node.capacity.saturating_sub(input.node.used);
            let smallest = bank::by_need(bank, input).into_iter().map(|(_, need)| need).min();
            let youngest = input.candidates.iter().max_by_key(|candidate| (candidate.container.started, &candidate.container.id));
            match (smallest, youngest) {
                (Some(need), Some(youngest)) if !too_soon && past.len() < per_hour && free < need && input.candidates.len() > 1 => {
                    past.push(input.now);
                    vec![(youngest.container.id.clone(), Reason::NoContainerFits { need, free })]
                }
                _ => Vec::new(),
            }
        }
    }
}
