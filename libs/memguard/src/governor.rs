//! The governor of sacrifices. Killing one so that others live can turn into killing all for ever (the paper's rule with a short round or a
//! lower bound that cannot be reached): so it happens only when nothing else is left, seldom, and to who loses least.

use crate::policy::{View, bank};
use crate::settings::{BankSettings, Sacrifices};
use crate::{ContainerId, Moment, Reason};

/// Which of the wished sacrifices happen. Notes those that do.
pub(crate) fn allow(
    rule: &Sacrifices,
    wished: Vec<(ContainerId, Reason)>,
    view: &View<'_>,
    bank: &BankSettings,
    past: &mut Vec<Moment>,
) -> Vec<(ContainerId, Reason)> {
    match *rule {
        _ if wished.is_empty() => Vec::new(),
        Sacrifices::Never => Vec::new(),
        Sacrifices::Unrestrained => wished,
        Sacrifices::Governed { every, per_hour } => {
            let too_soon = past.last().is_some_and(|last| view.now.since(*last) < every);
            let free = view.node.capacity.saturating_sub(view.node.used);
            let smallest = bank::by_need(bank, view).into_iter().map(|(_, need)| need).min();
            let youngest = view.candidates.iter().max_by_key(|candidate| (candidate.container.started, &candidate.container.id));
            match (smallest, youngest) {
                (Some(need), Some(youngest)) if !too_soon && past.len() < per_hour && free < need && view.candidates.len() > 1 => {
                    past.push(view.now);
                    vec![(youngest.container.id.clone(), Reason::NobodyFits { need, free })]
                }
                _ => Vec::new(),
            }
        }
    }
}
