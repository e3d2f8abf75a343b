//! Judging and making the changes of a [`LedgerTransaction`]: all or none.
//!
//! What goes, leaves or stays is applied first; then everything that wants room at a member is packed there together, so
//! that a plan which found room for all of them jointly is never refused because of the order they are listed in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use crate::fit::{Ask, Free, pack};
use crate::misfit::explain;
use crate::permits::{forbids, lacks};
use crate::resize::{Resized, resize};
use crate::room::usage;
use crate::{
    Amounts, AppRequest, Claim, ClaimReceipt, ClaimState, Difference, Ledger, LedgerChange, LedgerReceipt, LedgerTransaction, MemberKey,
    MemberRoom, PodsOnNode, Undo,
};

impl Ledger {
    /// Makes all changes of `transaction`, or none and says what stands against them.
    ///
    /// The receipt carries the ledger's sequence as it is; the caller that numbers changes sets it.
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
        let mut wishes: BTreeMap<MemberKey, Vec<Wish>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for change in &transaction.changes {
            // Changes are judged together, so a claim that changes twice would have no meaning of its own.
            if !seen.insert(change.claim()) {
                let detail = format!("claim {} changes twice in one transaction", change.claim());
                differences.push(Difference { code: "changed_twice".into(), claim: *change.claim(), detail });
                continue;
            }
            match self.prepare(transaction, change, undo) {
                Ok(Some(wish)) => wishes.entry(wish.claim.member.clone()).or_default().push(wish),
                Ok(None) => {}
                Err(difference) => differences.push(difference),
            }
        }
        differences.extend(self.newcomers_lack(transaction));
        if !differences.is_empty() {
            return differences;
        }
        for (member, wishes) in wishes {
            let Some(room) = self.room(&member) else {
                differences.extend(wishes.iter().map(|w| w.differs("member_unknown", format!("{member} is not registered"))));
                continue;
            };
            // Pods that stay where they are need no room that would have to be known; these do.
            if room.capacity.is_none() && room.is_awaited() {
                let unheard =
                    |wish: &Wish| wish.differs(Difference::AWAITED, format!("{}: {member} is not heard of yet", wish.claim.request.app));
                differences.extend(wishes.iter().map(unheard));
                continue;
            }
            match grant(room, wishes) {
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

    /// Apps that had no place before must get all that their intent asks for; for those that had, it is the plan of who moves
    /// that keeps it so.
    fn newcomers_lack(&self, transaction: &LedgerTransaction) -> Vec<Difference> {
        let mut newcomers: BTreeMap<(Uuid, &str), (Uuid, &AppRequest, BTreeSet<&MemberKey>)> = BTreeMap::new();
        for change in &transaction.changes {
            if let LedgerChange::Take { claim, dig, request, member, .. } = change {
                let app = newcomers.entry((dig.id, &request.app)).or_insert_with(|| (*claim, request, BTreeSet::new()));
                app.2.insert(member);
            }
        }
        let lacks = |((dig, app), (claim, request, places)): (&(Uuid, &str), &(Uuid, &AppRequest, BTreeSet<&MemberKey>))| {
            let detail = lacks(self, request, places)?;
            // Looked at last: it goes through all claims.
            let placed = self.claims().any(|known| known.dig.id == *dig && known.request.app == *app);
            (!placed).then(|| Difference { code: "not_allowed".into(), claim: *claim, detail })
        };
        newcomers.iter().filter_map(lacks).collect()
    }

    /// Applies a change that needs no room, or says what room it wants.
    fn prepare(&mut self, tx: &LedgerTransaction, change: &LedgerChange, undo: &mut Undo) -> Result<Option<Wish>, Difference> {
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
                    // The same word again (its answer was lost) is fine; anything else of that id is not.
                    let same =
                        claim.member == *member && claim.dig.id == dig.id && claim.request == *request && claim.operation == tx.operation;
                    return match same {
                        true => Ok(None),
                        false => Err(differs("claim_taken", format!("claim {id} exists: {} on {}", name(&claim), claim.member))),
                    };
                }
                if !self.room(member).is_some_and(MemberRoom::is_known) {
                    let code = if self.room(member).is_some_and(MemberRoom::is_awaited) { Difference::AWAITED } else { "member_unknown" };
                    return Err(differs(code, format!("{}: nothing is known of {member} at the moment", request.app)));
                }
                if let Some(why) = forbids(self, request, member) {
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
                let kind = match wanted {
                    None => Kind::TakeWhatFits,
                    Some(_) => Kind::Take,
                };
                Ok(Some(Wish { claim, kind, old: None }))
            }
            LedgerChange::Admit { .. } => {
                let claim = present()?;
                match claim.state {
                    ClaimState::Held => Ok(None),
                    ClaimState::Leaving => Err(differs("not_promised", format!("{} is leaving, not promised", name(&claim)))),
                    ClaimState::Promised => {
                        Ok(Some(Wish { claim: written(&claim, ClaimState::Held), kind: Kind::Admit, old: Some(claim) }))
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
                        Ok(Some(Wish { claim: written(&grown, claim.state), kind: Kind::Grow { kept }, old: Some(claim) }))
                    }
                }
            }
        }
    }
}

impl LedgerChange {
    /// The claim that a change is about.
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

/// A claim that wants room at its member.
struct Wish {
    claim: Claim,
    kind: Kind,
    /// As it counts until now.
    old: Option<Arc<Claim>>,
}

#[derive(PartialEq)]
enum Kind {
    Take,
    TakeWhatFits,
    Admit,
    /// Pods that may stay where they are.
    Grow {
        kept: Vec<PodsOnNode>,
    },
}

impl Wish {
    fn ask(&self) -> Ask<'_> {
        Ask { demand: &self.claim.request.demand, surge: self.claim.surging, now: self.claim.state != ClaimState::Promised }
    }
    fn differs(&self, code: &str, detail: String) -> Difference {
        Difference { code: code.into(), claim: self.claim.id, detail }
    }
}

/// Finds nodes for all wishes at one member.
fn grant(room: &MemberRoom, mut wishes: Vec<Wish>) -> Result<Vec<Claim>, Vec<Difference>> {
    let mut left = Left::of(room);
    for wish in &wishes {
        left.count_old(wish, 1);
    }
    choose_states(left.free(), &mut wishes);
    let asks: Vec<Ask<'_>> = wishes.iter().map(Wish::ask).collect();
    if let Some(packing) = pack(left.free(), &asks) {
        return Ok(wishes.into_iter().zip(packing).map(|(wish, pods)| Claim { pods, ..wish.claim }).collect());
    }
    one_by_one(room, wishes)
}

/// What is left of a member while wishes are granted.
struct Left<'a> {
    room: &'a MemberRoom,
    now: Vec<Amounts>,
    later: Vec<Amounts>,
}

impl<'a> Left<'a> {
    fn of(room: &'a MemberRoom) -> Self {
        let free = room.free();
        Self { room, now: free.now.to_vec(), later: free.later.to_vec() }
    }
    fn free(&self) -> Free<'_> {
        Free { nodes: self.room.nodes(), now: &self.now, later: &self.later }
    }
    /// The room of a wish's claim as it counts until now: with 1 it is free, with -1 taken.
    fn count_old(&mut self, wish: &Wish, sign: i64) {
        let Some(claim) = &wish.old else { return };
        self.room.usage(claim, |n, amounts, times| self.add(claim, n, amounts, sign * times));
    }
    /// Takes the nodes that a claim was just given.
    fn take(&mut self, claim: &Claim) {
        let nodes = self.room.nodes();
        usage(nodes, claim, None, |n, amounts, times, _| self.add(claim, n, amounts, -times));
    }
    fn add(&mut self, claim: &Claim, n: usize, amounts: &Amounts, times: i64) {
        if claim.state != ClaimState::Promised {
            self.now[n].add(amounts, times);
        }
        if claim.state != ClaimState::Leaving {
            self.later[n].add(amounts, times);
        }
    }
}

/// Those that may be either are held where they fit now beside all others, else promised.
fn choose_states(free: Free<'_>, wishes: &mut [Wish]) {
    let open: Vec<usize> = (0..wishes.len()).filter(|i| wishes[*i].kind == Kind::TakeWhatFits).collect();
    if open.is_empty() || pack(free, &wishes.iter().map(Wish::ask).collect::<Vec<_>>()).is_some() {
        return;
    }
    for i in &open {
        wishes[*i].claim.state = ClaimState::Promised;
    }
    for i in &open {
        wishes[*i].claim.state = ClaimState::Held;
        if pack(free, &wishes.iter().map(Wish::ask).collect::<Vec<_>>()).is_none() {
            wishes[*i].claim.state = ClaimState::Promised;
        }
    }
}

/// The second try, where not all fit at once afresh: what is admitted or grows may keep its pods where they are, even on
/// nodes that others over-committed meanwhile.
fn one_by_one(room: &MemberRoom, wishes: Vec<Wish>) -> Result<Vec<Claim>, Vec<Difference>> {
    let mut left = Left::of(room);
    let mut granted = Vec::new();
    let mut refused = Vec::new();
    for wish in wishes {
        left.count_old(&wish, 1);
        let ask = wish.ask();
        let afresh = pack(left.free(), &[ask]).and_then(|mut all| all.pop());
        let pods = afresh.or_else(|| match &wish.kind {
            Kind::Admit => in_place(left.free(), &wish),
            Kind::Grow { kept } => keep_and_add(left.free(), &wish.claim, kept),
            Kind::Take | Kind::TakeWhatFits => None,
        });
        let Some(pods) = pods else {
            let why = explain(left.free(), ask);
            refused.push(wish.differs("no_room", format!("{} on {}: {}", wish.claim.request.app, room.key, why.reason())));
            left.count_old(&wish, -1);
            continue;
        };
        let claim = Claim { pods, ..wish.claim };
        left.take(&claim);
        granted.push(claim);
    }
    if refused.is_empty() { Ok(granted) } else { Err(refused) }
}

/// The nodes that were promised, if they have room at present. Their future was promised already.
fn in_place(free: Free<'_>, wish: &Wish) -> Option<Vec<PodsOnNode>> {
    let old = wish.old.as_deref()?;
    let mut now = free.now.to_vec();
    for pods in &old.pods {
        let n = crate::room::find(free.nodes, &pods.node)?;
        let requests = &old.request.demand.groups.get(pods.group)?.requests;
        for _ in 0..pods.count {
            if !now[n].fits(requests) {
                return None;
            }
            now[n].add(requests, -1);
        }
    }
    Some(old.pods.clone())
}

/// Leaves `kept` where they are, unjudged, and finds nodes for the rest.
fn keep_and_add(free: Free<'_>, claim: &Claim, kept: &[PodsOnNode]) -> Option<Vec<PodsOnNode>> {
    let mut now = free.now.to_vec();
    let mut later = free.later.to_vec();
    let mut rest = claim.request.demand.clone();
    for group in rest.groups.iter_mut().filter(|g| !g.per_node) {
        group.replicas += if claim.surging { group.surge } else { 0 };
    }
    for pods in kept {
        let group = &mut rest.groups[pods.group];
        group.replicas = group.replicas.saturating_sub(pods.count);
        if let Some(n) = crate::room::find(free.nodes, &pods.node) {
            now[n].add(&group.requests, -i64::from(pods.count));
            later[n].add(&group.requests, -i64::from(pods.count));
        }
    }
    let ask = Ask { demand: &rest, surge: false, now: claim.state != ClaimState::Promised };
    let mut pods = pack(Free { now: &now, later: &later, ..free }, &[ask])?.pop()?;
    for keep in kept {
        match pods.iter_mut().find(|p| p.group == keep.group && p.node == keep.node) {
            Some(there) => there.count += keep.count,
            None => pods.push(keep.clone()),
        }
    }
    pods.sort_by(|a, b| (a.group, &a.node).cmp(&(b.group, &b.node)));
    Some(pods)
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
