//! A batch: requests decided in sequence on the book, not committed yet. It is written as one statement, or reverted.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_scheduling::{Claim, DecisionRequest, Difference, LedgerChange, LedgerTransaction, Undo};
use uuid::Uuid;

use super::metrics::{PolicyUse, policy_use};
use super::waiting::{LedgerAnswer, LedgerRequest, Work};
use super::{Book, LedgerError};
use crate::store::{Content, Entries, packed};

/// Requests decided in sequence. The book shows their effects from [`Batch::decide`] on; once the batch is sealed, the next one may be
/// decided on top of it.
#[derive(Default)]
pub struct Batch {
    /// The decided requests, in this order.
    pub works: Vec<Work>,
    /// The answer to each of `works`.
    pub answers: Vec<Result<LedgerAnswer, LedgerError>>,
    /// The policies that placed apps by their calls.
    pub groups: Vec<PolicyUse>,
    /// The ledger's head that the batch was decided on.
    onto: i64,
    entries: Entries,
    undo: Vec<Undo>,
    touched: BTreeMap<Uuid, i64>,
    fences: Vec<(Uuid, Option<i64>)>,
}

/// The effect of a batch on the ledger, as it is published after the commit.
pub struct Effect {
    /// The head that the batch was decided on.
    pub onto: i64,
    /// The head after the batch.
    pub head: i64,
    /// The claims that the batch changed; `None` for a released one.
    pub claims: Vec<(Uuid, Option<Arc<Claim>>)>,
}

impl Batch {
    /// Decides these requests after those that the batch has. The book is changed; [`Batch::revert`] undoes that.
    pub fn decide(&mut self, book: &mut Book, works: Vec<Work>) {
        if self.works.is_empty() {
            book.refresh_ages();
            self.onto = book.ledger.seq;
        }
        for work in works {
            let answer = match &work.request {
                LedgerRequest::Decide(request, contents) => self.decide_one(book, work.id, request, contents),
                LedgerRequest::Transact(transaction) => self.transact(book, work.id, transaction),
            };
            self.answers.push(answer);
            self.works.push(work);
        }
    }

    /// Completes the batch; returns the rows to write and the effect to publish after the commit.
    pub fn seal(&mut self, book: &Book) -> (Entries, Effect) {
        let mut claims = Vec::with_capacity(self.touched.len());
        for (id, seq) in &self.touched {
            let claim = book.ledger.claim(id);
            match claim {
                Some(claim) => self.entries.add_claim(*seq, claim),
                None => self.entries.add_release(*seq, *id, book.fences.get(id).copied().unwrap_or_default()),
            }
            claims.push((*id, claim.cloned()));
        }
        (std::mem::take(&mut self.entries), Effect { onto: self.onto, head: book.ledger.seq, claims })
    }

    /// Undoes the batch in the book, because it was not committed; returns its requests. A batch decided on top of it must be reverted
    /// first.
    pub fn revert(&mut self, book: &mut Book) -> Vec<Work> {
        if !self.works.is_empty() {
            for undo in self.undo.drain(..).rev() {
                book.ledger.undo(undo);
            }
            for (claim, before) in self.fences.drain(..).rev() {
                match before {
                    Some(fence) => book.fences.insert(claim, fence),
                    None => book.fences.remove(&claim),
                };
            }
            book.ledger.seq = self.onto;
        }
        self.groups.clear();
        std::mem::take(&mut self.works)
    }

    /// Discards the undo records: the batch is committed.
    pub fn confirm(&mut self) {
        self.undo.drain(..).for_each(Undo::keep);
    }

    fn decide_one(
        &mut self,
        book: &mut Book,
        id: Uuid,
        request: &DecisionRequest,
        contents: &[Content],
    ) -> Result<LedgerAnswer, LedgerError> {
        if !book.knows_members() {
            return Err(LedgerError::MembersUnknown);
        }
        let mut decision = book.ledger.decide(id, request);
        let undo = book.ledger.apply_decision(request, &decision);
        book.ledger.seq += 1;
        decision.seq = book.ledger.seq;
        self.groups.extend(policy_use(&decision));
        let json = packed::json(&decision);
        self.entries.add_decision(request, contents, &decision, &json);
        for claim in undo.touched() {
            let shared = book.ledger.claim(&claim).map(|claim| &claim.request);
            let content = shared.and_then(|shared| Some((shared, request.apps.iter().position(|app| app.app == shared.app)?)));
            if let Some((shared, at)) = content {
                self.entries.set_content(shared, &contents[at]);
            }
            self.touched.insert(claim, decision.seq);
        }
        self.undo.push(undo);
        Ok(LedgerAnswer::Decision(json.into()))
    }

    fn transact(&mut self, book: &mut Book, id: Uuid, transaction: &LedgerTransaction) -> Result<LedgerAnswer, LedgerError> {
        if !book.knows_members() {
            return Err(LedgerError::MembersUnknown);
        }
        let stale: Vec<Difference> = transaction
            .changes
            .iter()
            .filter_map(|change| {
                let claim = matches!(change, LedgerChange::Take { .. }).then(|| *change.claim())?;
                let fence = book.fences.get(&claim).filter(|fence| **fence > transaction.fence)?;
                Some(Difference {
                    code: "stale_fence".into(),
                    claim,
                    detail: format!("claim {claim} was released by a later operation (fence {fence})"),
                })
            })
            .collect();
        if !stale.is_empty() {
            return Err(LedgerError::Conflict(stale));
        }
        let (mut receipt, undo) = book.ledger.transact(transaction).map_err(refusal)?;
        book.ledger.seq += 1;
        receipt.seq = book.ledger.seq;
        self.entries.add_receipt(id, transaction, &receipt);
        self.touched.extend(undo.touched().into_iter().map(|claim| (claim, receipt.seq)));
        self.undo.push(undo);
        // The fence is kept even for a claim that never existed: a replaced writer may still try to take it.
        for claim in
            transaction.changes.iter().filter(|change| matches!(change, LedgerChange::Release { .. })).map(|change| *change.claim())
        {
            let before = book.fences.get(&claim).copied();
            book.fences.insert(claim, before.map_or(transaction.fence, |before| before.max(transaction.fence)));
            self.fences.push((claim, before));
            self.touched.insert(claim, receipt.seq);
        }
        Ok(LedgerAnswer::Receipt(receipt))
    }
}

/// The error for a refused transaction. `Invalid` if it contradicts itself; `RoomUnknown`, which callers may repeat, if capacity that has
/// not arrived yet is the only reason; else `Conflict`, which is final.
pub(super) fn refusal(differences: Vec<Difference>) -> LedgerError {
    let is = |code: &'static str| move |difference: &Difference| difference.code == code;
    if differences.iter().any(is(Difference::CHANGED_TWICE)) {
        tracing::error!(?differences, "a transaction changes a claim twice, which is a bug in the service that sent it");
        LedgerError::Invalid(differences)
    } else if differences.iter().all(is(Difference::AWAITED)) {
        LedgerError::RoomUnknown(differences.into_iter().map(|difference| difference.detail).collect())
    } else {
        LedgerError::Conflict(differences)
    }
}
