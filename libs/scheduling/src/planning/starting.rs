//! Pods that operations under way have claimed room for, and that have no nodes yet: the scheduler may choose others than the ledger
//! assumes.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::displaced::divide;
use crate::usage::usage;
use crate::{Claim, ClaimState, Ledger, MemberKey, PodGroup};

/// Limit on the pods of one member. With more of them hardly any order could be excluded, so they count on their assumed nodes.
const PODS: u32 = 12;

/// Equal pods of one claim.
#[derive(Clone, Copy)]
pub(crate) struct Starting<'a> {
    pub claim: &'a Claim,
    pub group: &'a PodGroup,
    /// The assumed node.
    pub node: usize,
    pub count: u32,
}

/// The pods that are starting, by member.
#[derive(Default)]
pub(crate) struct StartingPods<'a>(BTreeMap<&'a MemberKey, Vec<Starting<'a>>>);

impl<'a> StartingPods<'a> {
    /// Those of the deployment intent groups that operations are changing.
    pub fn of<'e>(ledger: &'a Ledger, changing: impl Iterator<Item = &'e Uuid>) -> Self {
        let mut all: BTreeMap<&MemberKey, Vec<Starting<'_>>> = BTreeMap::new();
        let claims = changing.flat_map(|dig| ledger.claims_of_group(*dig)).filter(|claim| claim.state != ClaimState::Leaving);
        for claim in claims {
            // Where nodes are over-committed, the room of single pods is not known.
            let Some(room) = ledger.room(&claim.member).filter(|room| !room.is_strained()) else { continue };
            usage(room.nodes(), claim, room.observed(claim), |node, amounts, times, observed| {
                if let Some((group, count)) = divide(claim, &amounts.times(times)).filter(|_| !observed) {
                    all.entry(&claim.member).or_default().push(Starting { claim, group, node, count });
                }
            });
        }
        all.retain(|_, pods| pods.iter().map(|pods| pods.count).sum::<u32>() <= PODS);
        Self(all)
    }

    /// Those on one member.
    pub fn on(&self, member: &MemberKey) -> &[Starting<'a>] {
        self.0.get(member).map_or(&[], Vec::as_slice)
    }
}
