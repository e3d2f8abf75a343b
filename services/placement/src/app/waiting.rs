//! What is asked of the ledger, and who waits for the answer.
//!
//! The same id twice is one piece of work with two who wait, from the moment it is asked for until it is answered: a repeat
//! never finds its first half done.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use drover_scheduling::{DecisionRequest, LedgerReceipt, LedgerTransaction};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::LedgerError;
use crate::store::Content;

/// What is asked of the ledger.
#[derive(Debug)]
pub enum Ask {
    /// Choose members. With what its apps ask for, packed already: the writer is one, those who ask are many.
    Decide(DecisionRequest, Vec<Content>),
    /// Change claims as told.
    Transact(LedgerTransaction),
}

/// What is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Ask::Decide`]: the decision's JSON, made once for the log and for all who asked.
    Decision(Arc<[u8]>),
    /// To [`Ask::Transact`].
    Receipt(LedgerReceipt),
}

type Reply = oneshot::Sender<Result<Answer, LedgerError>>;

/// One request in the queue.
#[derive(Debug)]
pub struct Job {
    /// The caller's id.
    pub id: Uuid,
    /// What.
    pub ask: Ask,
    /// Where the answer goes.
    pub reply: Reply,
}

/// A request that is to be worked on; who waits for it is in [`Waiting`].
pub struct Work {
    /// The caller's id.
    pub id: Uuid,
    /// What.
    pub ask: Ask,
}

impl Work {
    /// A decision and a transaction may have the same id.
    fn key(&self) -> (bool, Uuid) {
        (self.is_transaction(), self.id)
    }
    /// Whether it changes claims as told.
    pub fn is_transaction(&self) -> bool {
        matches!(self.ask, Ask::Transact(_))
    }
}

/// Who waits for what is being worked on.
#[derive(Default)]
pub struct Waiting(HashMap<(bool, Uuid), Vec<Reply>>);

impl Waiting {
    /// Notes who asks. No work where the same is being worked on already.
    pub fn admit(&mut self, job: Job) -> Option<Work> {
        let work = Work { id: job.id, ask: job.ask };
        match self.0.entry(work.key()) {
            Entry::Occupied(known) => {
                known.into_mut().push(job.reply);
                None
            }
            Entry::Vacant(new) => {
                new.insert(vec![job.reply]);
                Some(work)
            }
        }
    }

    /// Answers all who wait for it.
    pub fn answer(&mut self, work: &Work, answer: Result<Answer, LedgerError>) {
        // Who went away does not need it; the log has it.
        for reply in self.0.remove(&work.key()).into_iter().flatten() {
            let _ = reply.send(answer.clone());
        }
    }

    /// None of them gets what he asked for.
    pub fn fail(&mut self, works: Vec<Work>, error: &LedgerError) {
        for work in works {
            self.answer(&work, Err(error.clone()));
        }
    }
}
