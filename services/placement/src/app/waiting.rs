//! Requests to the ledger, and the callers that wait for their answers.
//!
//! A request that is repeated before it is answered is processed once and answered to all its callers: a repeat never finds its
//! original half done.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use drover_scheduling::{DecisionRequest, LedgerReceipt, LedgerTransaction};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::LedgerError;
use crate::store::Content;

/// A request to the ledger.
#[derive(Debug)]
pub enum LedgerRequest {
    /// Choose members for apps. The packed contents of the apps' requests come with it, because packing in the single writer would
    /// make every caller wait.
    Decide(DecisionRequest, Vec<Content>),
    /// Change claims explicitly.
    Transact(LedgerTransaction),
}

/// The answer to a [`LedgerRequest`].
#[derive(Clone, Debug)]
pub enum LedgerAnswer {
    /// To [`LedgerRequest::Decide`]: the decision's JSON, serialised once for the log and for all callers.
    Decision(Arc<[u8]>),
    /// To [`LedgerRequest::Transact`]: where the change is in the log.
    Receipt(LedgerReceipt),
}

type Reply = oneshot::Sender<Result<LedgerAnswer, LedgerError>>;

/// A queued request with its reply channel.
#[derive(Debug)]
pub struct Job {
    /// Chosen by the caller; a repeat has the same.
    pub id: Uuid,
    pub request: LedgerRequest,
    pub reply: Reply,
}

/// A request to process; its reply channels are in [`Waiting`].
pub struct Work {
    /// Chosen by the caller; a repeat has the same.
    pub id: Uuid,
    pub request: LedgerRequest,
}

impl Work {
    /// Includes the type, since a decision and a transaction may have the same id.
    fn key(&self) -> (bool, Uuid) {
        (self.is_transaction(), self.id)
    }
    /// Whether this is a transaction, not a decision.
    pub fn is_transaction(&self) -> bool {
        matches!(self.request, LedgerRequest::Transact(_))
    }
}

/// The reply channels of all requests in progress.
#[derive(Default)]
pub struct Waiting(HashMap<(bool, Uuid), Vec<Reply>>);

impl Waiting {
    /// Registers the caller. Returns the request to process, or `None` if the same request is in progress already.
    pub fn admit(&mut self, job: Job) -> Option<Work> {
        let work = Work { id: job.id, request: job.request };
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

    /// Answers all callers of a request.
    pub fn answer(&mut self, work: &Work, answer: Result<LedgerAnswer, LedgerError>) {
        // A caller that disconnected finds the answer in the log when it repeats the request.
        for reply in self.0.remove(&work.key()).into_iter().flatten() {
            let _ = reply.send(answer.clone());
        }
    }

    /// Answers all callers of these requests with an error.
    pub fn fail(&mut self, works: Vec<Work>, error: &LedgerError) {
        for work in works {
            self.answer(&work, Err(error.clone()));
        }
    }
}
