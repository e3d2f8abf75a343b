//! Checks and makes the changes of a [`LedgerTransaction`]: all of them or none.
//!
//! Changes that need no room are made first. Then all claims that need room on a member are packed together, so that the order of
//! the changes cannot cause a refusal of a plan that found room for all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use crate::grant::{Pending, Purpose, grant};
use crate::growing::copy_of;
use crate::permits::{member_refusal, missing_place};
use crate::resize::{Resized, resize};
use crate::{
    AppRequest, Claim, ClaimReceipt, ClaimState, Difference, Ledger, LedgerChange, LedgerReceipt, LedgerTransaction, MemberKey, MemberRoom,
    Undo,
};

impl Ledger {
    /// Makes all changes of `transaction`, or none.
    ///
    /// The receipt has the current sequence of the ledger. A caller that numbers changes must set it.
    ///
    /// # Errors
    /// All differences between the ledger and what the transaction assumes. The ledger is unchanged then.
    pub fn transact(&mut self, transaction: &LedgerTransaction) -> Result<(LedgerReceipt, Undo), Vec<Difference>> {
        let mut undo = Undo::default();
        let differences = self.attempt(transaction, &mut undo);
        if !differences.is_empty() {
            self.undo(undo);
            return Err(differences);
        }
        let mut claims: Vec<ClaimReceipt> = Vec::new();
        for change in &transaction.changes {
            if let Some(claim) = self.claim(change.claim()) {
                claims.push(ClaimReceipt { claim: claim.id, state: claim.state, member: claim.member.clone(), pods: claim.pods.clone() });
            }
        }
        Ok((LedgerReceipt { seq: self.seq, claims }, undo))
    }

    fn attempt(&mut self, transaction: &LedgerTransaction, undo: &mut Undo) -> Vec<Difference> {
        let mut differences = Vec::new();
        let mut pending: BTreeMap<MemberKey, Vec<Pending>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for change in &transaction.changes {
            // All changes are checked against the same state, so two changes of one claim have no defined order.
            if !seen.insert(change.claim()) {
                let detail = format!("a bug in Drover: one transaction changes claim {} twice", change.claim());
                differences.push(Difference { code: Difference::CHANGED_TWICE.into(), claim: *change.claim(), detail });
                continue;
            }
            match self.prepare(transaction, change, undo) {
                Ok(Some(one)) => pending.entry(one.claim.member.clone()).or_default().push(one),
                Ok(None) => {}
                Err(difference) => differences.push(difference),
            }
        }
        differences.extend(self.newcomers_lack(transaction));
        if !differences.is_empty() {
            return differences;
        }
        for (member, pending) in pending {
            let Some(room) = self.room(&member) else {
                differences.extend(pending.iter().map(|w| w.differs("member_unknown", format!("{member} is not registered"))));
                continue;
            };
            // Pending claims need room, so the capacity must be known.
            if room.capacity.is_none() && room.is_awaited() {
                let unheard = |one: &Pending| {
                    one.differs(Difference::AWAITED, format!("{}: the capacity of {member} is not known yet", one.claim.request.app))
                };
                differences.extend(pending.iter().map(unheard));
                continue;
            }
            // Of the pods of a copy that grows some run already; the others need room beside these.
            let copy = pending
                .iter()
                .filter(|one| one.old.is_none())
                .find_map(|one| self.claim(&copy_of(&one.claim)?).filter(|copy| copy.member == member));
            let grown = copy.and_then(|copy| self.room_for_growth(copy));
            match grant(grown.as_ref().unwrap_or(room), pending) {
                Ok(claims) => {
                    for claim in claims {
                        self.put(undo, claim.id, Some(Arc::new(claim)));
                    }
                }
                Err(refused) => differences.extend(refused),
            }
        }
        differences
    }

    /// Checks that each app without a claim before the transaction gets a place for every group of its intent. For moved apps the planner
    /// ensures it.
    fn newcomers_lack(&self, transaction: &LedgerTransaction) -> Vec<Difference> {
        let mut newcomers: BTreeMap<(Uuid, &str), (Uuid, &AppRequest, BTreeSet<&MemberKey>)> = BTreeMap::new();
        for change in &transaction.changes {
            if let LedgerChange::Take { claim, dig, request, member, .. } = change {
                let app = newcomers.entry((dig.id, &request.app)).or_insert_with(|| (*claim, request, BTreeSet::new()));
                app.2.insert(member);
            }
        }
        let lacks = |((dig, app), (claim, request, places)): (&(Uuid, &str), &(Uuid, &AppRequest, BTreeSet<&MemberKey>))| {
            let detail = missing_place(self, request, places)?;
            // Checked last, because it iterates over all claims.
            let placed = self.claims().any(|known| known.dig.id == *dig && known.request.app == *app);
            (!placed).then(|| Difference { code: "not_allowed".into(), claim: *claim, detail })
        };
        newcomers.iter().filter_map(lacks).collect()
    }

    /// Makes a change that needs no room, or returns the claim that needs room.
    fn prepare(&mut self, tx: &LedgerTransaction, change: &LedgerChange, undo: &mut Undo) -> Result<Option<Pending>, Difference> {
        let id = *change.claim();
        let differs = |code: &str, detail: String| Difference { code: code.into(), claim: id, detail };
        let existing = self.claim(&id).cloned();
        if let Some(claim) = &existing
            && claim.fence > tx.fence
        {
            return Err(differs("stale_fence", format!("{} was written by a later operation ({})", name(claim), claim.operation)));
        }
        let written = |claim: &Claim, state: ClaimState| Claim { state, fence: tx.fence, operation: tx.operation, ..claim.clone() };
        let present = || existing.clone().ok_or_else(|| differs("claim_missing", format!("claim {id} is gone")));
        match change {
            LedgerChange::Leave { member, .. } => {
                let claim = present()?;
                if claim.member != *member {
                    return Err(differs("claim_moved", format!("{} is on {}, no longer on {member}", name(&claim), claim.member)));
                }
                let again = claim.state == ClaimState::Leaving && claim.operation == tx.operation;
                if claim.state != ClaimState::Held && !again {
                    return Err(differs(
                        "not_held",
                        format!("{} is {} for operation {}", name(&claim), state(claim.state), claim.operation),
                    ));
                }
                self.put(undo, id, Some(Arc::new(written(&claim, ClaimState::Leaving))));
                Ok(None)
            }
            LedgerChange::Stay { .. } => {
                let claim = present()?;
                if claim.state == ClaimState::Promised {
                    return Err(differs("not_leaving", format!("{} is promised, not leaving", name(&claim))));
                }
                self.put(undo, id, Some(Arc::new(written(&claim, ClaimState::Held))));
                Ok(None)
            }
            LedgerChange::Release { .. } => {
                if existing.is_some() {
                    self.put(undo, id, None);
                }
                Ok(None)
            }
            LedgerChange::Take { dig, request, member, state: wanted, .. } => {
                if let Some(claim) = existing {
                    // A repeated change, whose answer was lost, is accepted; a different claim with this id is not.
                    let same =
                        claim.member == *member && claim.dig.id == dig.id && claim.request == *request && claim.operation == tx.operation;
                    return match same {
                        true => Ok(None),
                        false => Err(differs("claim_taken", format!("claim {id} exists: {} on {}", name(&claim), claim.member))),
                    };
                }
                if !self.room(member).is_some_and(MemberRoom::is_known) {
                    let code = if self.room(member).is_some_and(MemberRoom::is_awaited) { Difference::AWAITED } else { "member_unknown" };
                    return Err(differs(code, format!("{}: the capacity of {member} is unknown at the moment", request.app)));
                }
                if let Some(why) = member_refusal(self, request, member) {
                    return Err(differs("not_allowed", why));
                }
                let claim = Claim {
                    id,
                    dig: Arc::new(dig.clone()),
                    request: Arc::clone(request),
                    member: member.clone(),
                    state: wanted.unwrap_or_default(),
                    pods: Vec::new(),
                    surging: false,
                    fence: tx.fence,
                    operation: tx.operation,
                };
                let purpose = match wanted {
                    None => Purpose::TakeWhatFits,
                    Some(_) => Purpose::Take,
                };
                Ok(Some(Pending { claim, purpose, old: None }))
            }
            LedgerChange::Admit { .. } => {
                let claim = present()?;
                match claim.state {
                    ClaimState::Held => Ok(None),
                    ClaimState::Leaving => Err(differs("not_promised", format!("{} is leaving, not promised", name(&claim)))),
                    ClaimState::Promised => {
                        Ok(Some(Pending { claim: written(&claim, ClaimState::Held), purpose: Purpose::Admit, old: Some(claim) }))
                    }
                }
            }
            LedgerChange::Resize { request, surge, .. } => {
                let claim = present()?;
                match resize(&claim, request, *surge) {
                    Resized::InPlace(resized) => {
                        self.put(undo, id, Some(Arc::new(written(&resized, claim.state))));
                        Ok(None)
                    }
                    Resized::Grows { claim: grown, kept } => {
                        Ok(Some(Pending { claim: written(&grown, claim.state), purpose: Purpose::Grow { kept }, old: Some(claim) }))
                    }
                }
            }
        }
    }
}

impl LedgerChange {
    /// The id of the changed claim.
    pub fn claim(&self) -> &Uuid {
        match self {
            Self::Leave { claim, .. }
            | Self::Stay { claim }
            | Self::Take { claim, .. }
            | Self::Admit { claim }
            | Self::Resize { claim, .. }
            | Self::Release { claim } => claim,
        }
    }
}

fn name(claim: &Claim) -> String {
    format!("{}/{}/{}", claim.dig.project, claim.dig.name, claim.request.app)
}

fn state(state: ClaimState) -> &'static str {
    match state {
        ClaimState::Held => "held",
        ClaimState::Promised => "promised",
        ClaimState::Leaving => "leaving",
    }
}
