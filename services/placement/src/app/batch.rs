//! Works decided in sequence on the book, not yet true: to be written as one statement, or taken back.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_scheduling::{Claim, DecisionRequest, Difference, LedgerChange, LedgerTransaction, Undo};
use uuid::Uuid;

use super::waiting::{Answer, Ask, Work};
use super::{Book, LedgerError};
use crate::store::{Content, Entries, packed};

/// See the module. The book holds it from [`Batch::decide`] on; a later batch may be decided on top of it once it is sealed.
#[derive(Default)]
pub struct Batch {
    /// What was decided, in this order.
    pub works: Vec<Work>,
    /// As many answers.
    pub answers: Vec<Result<Answer, LedgerError>>,
    /// The ledger's head below it.
    onto: i64,
    entries: Entries,
    undo: Vec<Undo>,
    touched: BTreeMap<Uuid, i64>,
    fences: Vec<(Uuid, Option<i64>)>,
}

/// What a batch makes of the ledger.
pub struct Effect {
    /// The head below it.
    pub onto: i64,
    /// The head with it.
    pub head: i64,
    /// What becomes of the claims that it touches; none: gone.
    pub claims: Vec<(Uuid, Option<Arc<Claim>>)>,
}

impl Batch {
    /// Decides these works after those that it has. The book is changed; [`Batch::take_back`] undoes that.
    pub fn decide(&mut self, book: &mut Book, works: Vec<Work>) {
        if self.works.is_empty() {
            book.refresh_ages();
            self.onto = book.ledger.seq;
        }
        for work in works {
            let answer = match &work.ask {
                Ask::Decide(request, contents) => self.place(book, work.id, request, contents),
                Ask::Transact(transaction) => self.transact(book, work.id, transaction),
            };
            self.answers.push(answer);
            self.works.push(work);
        }
    }

    /// Nothing is added any more: what is to be written, and what that makes of the ledger.
    pub fn seal(&mut self, book: &Book) -> (Entries, Effect) {
        let mut claims = Vec::with_capacity(self.touched.len());
        for (id, seq) in &self.touched {
            let claim = book.ledger.claim(id);
            match claim {
                Some(claim) => self.entries.claim(*seq, claim),
                None => self.entries.released(*seq, *id, book.fences.get(id).copied().unwrap_or_default()),
            }
            claims.push((*id, claim.cloned()));
        }
        (std::mem::take(&mut self.entries), Effect { onto: self.onto, head: book.ledger.seq, claims })
    }

    /// It did not become true: the book is as before. Batches that were decided on top of it must be taken back before.
    pub fn take_back(&mut self, book: &mut Book) -> Vec<Work> {
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
        std::mem::take(&mut self.works)
    }

    /// It is true.
    pub fn keep(&mut self) {
        self.undo.drain(..).for_each(Undo::keep);
    }

    fn place(&mut self, book: &mut Book, id: Uuid, request: &DecisionRequest, contents: &[Content]) -> Result<Answer, LedgerError> {
        if !book.knows_members() {
            return Err(LedgerError::MembersUnknown);
        }
        let mut decision = book.ledger.decide(id, request);
        let undo = book.ledger.apply_decision(request, &decision);
        book.ledger.seq += 1;
        decision.seq = book.ledger.seq;
        let json = packed::json(&decision);
        self.entries.decision(request, contents, &decision, &json);
        for claim in undo.touched() {
            let shared = book.ledger.claim(&claim).map(|claim| &claim.request);
            let content = shared.and_then(|shared| Some((shared, request.apps.iter().position(|app| app.app == shared.app)?)));
            if let Some((shared, at)) = content {
                self.entries.same(shared, &contents[at]);
            }
            self.touched.insert(claim, decision.seq);
        }
        self.undo.push(undo);
        Ok(Answer::Decision(json.into()))
    }

    fn transact(&mut self, book: &mut Book, id: Uuid, transaction: &LedgerTransaction) -> Result<Answer, LedgerError> {
        if !book.knows_members() {
            return Err(LedgerError::MembersUnknown);
        }
        let late: Vec<Difference> = transaction
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
        if !late.is_empty() {
            return Err(LedgerError::Conflict(late));
        }
        let (mut receipt, undo) = book.ledger.transact(transaction).map_err(refused)?;
        book.ledger.seq += 1;
        receipt.seq = book.ledger.seq;
        self.entries.receipt(id, transaction, &receipt);
        self.touched.extend(undo.touched().into_iter().map(|claim| (claim, receipt.seq)));
        self.undo.push(undo);
        // Also of a claim that never was: the writer that would still take it is the one that was replaced.
        for claim in
            transaction.changes.iter().filter(|change| matches!(change, LedgerChange::Release { .. })).map(|change| *change.claim())
        {
            let before = book.fences.get(&claim).copied();
            book.fences.insert(claim, before.map_or(transaction.fence, |before| before.max(transaction.fence)));
            self.fences.push((claim, before));
            self.touched.insert(claim, receipt.seq);
        }
        Ok(Answer::Receipt(receipt))
    }
}

/// Final, or (where nothing else stands against it) to be asked again when clusters have been heard of.
pub(super) fn refused(differences: Vec<Difference>) -> LedgerError {
    match differences.iter().all(|difference| difference.code == Difference::AWAITED) {
        true => LedgerError::RoomUnknown(differences.into_iter().map(|difference| difference.detail).collect()),
        false => LedgerError::Conflict(differences),
    }
}
