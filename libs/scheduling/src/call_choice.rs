//! Chooses between the placements that policies make of apps that call each other.

use crate::call_draft::Draft;
use crate::call_learned::LEARNED_PASSES;
use crate::call_placement::CallPlacement;
use crate::groups::learned::LearnedModel;
use crate::{GroupPolicy, MemberRoom, PolicyStory};

/// Members for apps that call each other.
pub(crate) struct CallChoice<'a> {
    /// By slot; `None`: satisfied by another slot of its app.
    pub homes: Vec<Option<&'a MemberRoom>>,
    pub story: PolicyStory,
}

impl<'a, 's> CallPlacement<'a, 's> {
    /// The placement by the policy of the call graph. Returns `None` if some slot gets no room.
    pub fn choose(&self) -> Option<CallChoice<'a>> {
        let policy = self.callers.terms.policy;
        let greedy = Draft::greedy(self);
        let learned = match policy {
            GroupPolicy::CgsGreedy => None,
            GroupPolicy::Learned => Draft::learned(self, LearnedModel::shipped()),
        };
        let objective = |draft: &Option<Draft<'_, 'a, 's>>| draft.as_ref().map(Draft::objective);
        let (of_greedy, of_learned) = (objective(&greedy).filter(|_| policy != GroupPolicy::CgsGreedy), objective(&learned));
        // The guard: a learned placement is taken unless the greedy one is better.
        let (taken, draft) = match (greedy, learned) {
            (Some(greedy), Some(learned)) if greedy.is_better_than(&learned) => (GroupPolicy::CgsGreedy, greedy),
            (_, Some(learned)) => (GroupPolicy::Learned, learned),
            (greedy, None) => (GroupPolicy::CgsGreedy, greedy?),
        };
        let passes = of_learned.map(|_| LEARNED_PASSES as u32);
        let (homes, story) = draft.finish();
        Some(CallChoice { homes, story: PolicyStory { policy, taken, greedy: of_greedy, learned: of_learned, passes, ..story } })
    }
}
