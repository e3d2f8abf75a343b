//! The other copies of an app that moves. An app whose intent has several groups runs on several members, with one claim on each; a plan
//! may move more than one of them. Together the copies must stay on different members, and each group of the intent must keep one.

use std::collections::BTreeSet;

use crate::expand::Group;
use crate::trial::Trial;
use crate::{Claim, MemberKey};

/// The other claims of an app, and its intent.
#[derive(Default)]
pub(crate) struct Copies<'a> {
    others: Vec<&'a Claim>,
    /// The members of each group of the intent. Empty if there are no other copies.
    groups: Vec<BTreeSet<&'a MemberKey>>,
}

impl<'a> Copies<'a> {
    /// The copies of `claim` among the claims of its deployment intent group.
    pub fn of(claim: &Claim, siblings: &[&'a Claim], groups: &[Group<'a>]) -> Self {
        let others: Vec<&Claim> = siblings.iter().copied().filter(|c| c.id != claim.id && c.request.app == claim.request.app).collect();
        match others.is_empty() {
            true => Self::default(),
            false => {
                Self { others, groups: groups.iter().map(|group| group.options.iter().map(|option| &option.room.key).collect()).collect() }
            }
        }
    }

    /// The members of the other copies before any move.
    pub fn members(&self) -> BTreeSet<&'a MemberKey> {
        self.others.iter().map(|copy| &copy.member).collect()
    }

    /// Whether the app may be on `to` beside its other copies in the state of `trial`. The groups of the intent are checked only if the
    /// members of all copies are decided.
    pub fn allow(&self, to: &MemberKey, trial: &Trial<'_>) -> bool {
        if self.others.is_empty() {
            return true;
        }
        let homes: Vec<Option<&MemberKey>> = self.others.iter().map(|copy| trial.home_of(copy)).collect();
        if homes.contains(&Some(to)) {
            return false;
        }
        let decided: Option<BTreeSet<&MemberKey>> = homes.into_iter().collect();
        decided
            .is_none_or(|members| self.groups.iter().all(|group| group.contains(to) || members.iter().any(|member| group.contains(member))))
    }
}
