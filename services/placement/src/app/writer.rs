//! The one writer: drains the queue, decides in sequence on the book, commits the batch as one statement, then answers.
//!
//! No timer: the next batch is whatever queued during the commit. The invariant: an answer leaves only after its entry is
//! committed onto exactly the head that it was decided on; whatever happens before that is taken back from the book.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_scheduling::{DecisionRequest, Difference, LedgerChange, LedgerReceipt, LedgerTransaction, Undo};
use drover_store::StoreError;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::{App, Book, LedgerError};
use crate::store::{self, Committed, Content, Entries, packed};

/// Jobs that one statement takes at most.
const BATCH: usize = 512;
/// How often other processes may be faster before a job is refused.
const ATTEMPTS: usize = 100;
/// How often it looks for what other processes wrote.
const POLL: Duration = Duration::from_secs(1);

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

/// A request and everybody who waits for its answer.
struct Work {
    id: Uuid,
    ask: Ask,
    replies: Vec<Reply>,
}

impl Work {
    fn answer(self, answer: Result<Answer, LedgerError>) {
        // Who went away does not need it; the log has it.
        for reply in self.replies {
            let _ = reply.send(answer.clone());
        }
    }
}

/// A batch as decided, not yet true.
struct Draft {
    onto: i64,
    entries: Entries,
    undo: Vec<Undo>,
    touched: BTreeMap<Uuid, i64>,
    fences: Vec<(Uuid, Option<i64>)>,
    answers: Vec<Result<Answer, LedgerError>>,
}

/// Runs until the queue is closed.
pub async fn run(app: App, mut queue: mpsc::Receiver<Job>) {
    let mut poll = tokio::time::interval(POLL);
    poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        let mut jobs = Vec::new();
        tokio::select! {
            taken = queue.recv_many(&mut jobs, BATCH) => {
                if taken == 0 {
                    return;
                }
                batch(&app, merged(jobs)).await;
            }
            _ = poll.tick() => {
                let followed = app.follow_log().await;
                if let (Err(error), false) = (&followed, failing) {
                    tracing::warn!(%error, "the ledger's log cannot be read, trying on");
                }
                failing = followed.is_err();
            }
        }
    }
}

/// The same id twice in the queue is one piece of work with two who wait.
fn merged(jobs: Vec<Job>) -> Vec<Work> {
    let mut works: Vec<Work> = Vec::with_capacity(jobs.len());
    let mut index: BTreeMap<(bool, Uuid), usize> = BTreeMap::new();
    for Job { id, ask, reply } in jobs {
        match index.entry((matches!(ask, Ask::Decide(..)), id)) {
            std::collections::btree_map::Entry::Occupied(known) => works[*known.get()].replies.push(reply),
            std::collections::btree_map::Entry::Vacant(new) => {
                new.insert(works.len());
                works.push(Work { id, ask, replies: vec![reply] });
            }
        }
    }
    works
}

async fn batch(app: &App, mut works: Vec<Work>) {
    // A decision's repeat shows by its key when it is written. A transaction's must be known before: it would be judged
    // on a ledger that it has changed itself, and be refused.
    let mut look_up = works.iter().any(|work| matches!(work.ask, Ask::Transact(_)));
    for _ in 0..ATTEMPTS {
        if look_up {
            works = match answer_repeats(app, works).await {
                Some(open) => open,
                None => return,
            };
        }
        if works.is_empty() {
            return;
        }
        let mut draft = app.write(|book| draft(book, &works));
        let entries = std::mem::take(&mut draft.entries);
        match commit(app, entries, draft.onto).await {
            Ok(Committed::Done) => return finish(app, draft, works),
            Ok(Committed::Moved | Committed::Repeated) => {
                app.write(|book| take_back(book, draft));
                if let Err(error) = app.follow_log().await {
                    return fail(works, &error);
                }
                look_up = true;
            }
            Err(error) => {
                app.write(|book| take_back(book, draft));
                // Data that Postgres refuses must cost only whoever sent it.
                if works.len() > 1 && matches!(&error, LedgerError::Store(error) if !error.is_retryable()) {
                    for work in works {
                        Box::pin(batch(app, vec![work])).await;
                    }
                    return;
                }
                return fail(works, &error);
            }
        }
    }
    fail(works, &LedgerError::Busy);
}

async fn commit(app: &App, entries: Entries, onto: i64) -> Result<Committed, LedgerError> {
    let stopped = |_| LedgerError::Stopped;
    app.failpoints.reached(|| "ledger/commit/before".to_owned()).await.map_err(stopped)?;
    let committed = entries.commit(&app.store, &app.known, onto).await?;
    app.failpoints.reached(|| "ledger/commit/after".to_owned()).await.map_err(stopped)?;
    Ok(committed)
}

fn fail(works: Vec<Work>, error: &LedgerError) {
    for work in works {
        work.answer(Err(error.clone()));
    }
}

/// Answers what the log has answered before; returns the rest, or none when the log does not answer.
async fn answer_repeats(app: &App, works: Vec<Work>) -> Option<Vec<Work>> {
    let ids: Vec<Uuid> = works.iter().map(|work| work.id).collect();
    let known = async { Ok::<_, StoreError>((store::decisions(&app.store, &ids).await?, store::receipts(&app.store, &ids).await?)) };
    let (decisions, receipts) = match known.await {
        Ok(known) => known,
        Err(error) => {
            fail(works, &LedgerError::from(error));
            return None;
        }
    };
    let mut open = Vec::new();
    for work in works {
        let known = match work.ask {
            Ask::Decide(..) => decisions.get(&work.id).cloned().map(Answer::Decision),
            Ask::Transact(_) => receipts.get(&work.id).cloned().map(Answer::Receipt),
        };
        match known {
            Some(answer) => work.answer(Ok(answer)),
            None => open.push(work),
        }
    }
    Some(open)
}

/// Decides everything in sequence. The book is changed; [`take_back`] undoes that.
fn draft(book: &mut Book, works: &[Work]) -> Draft {
    book.refresh_ages();
    let mut draft = Draft {
        onto: book.ledger.seq,
        entries: Entries::default(),
        undo: Vec::new(),
        touched: BTreeMap::new(),
        fences: Vec::new(),
        answers: Vec::with_capacity(works.len()),
    };
    for work in works {
        let answer = match &work.ask {
            Ask::Decide(request, contents) => decide(book, &mut draft, work.id, request, contents),
            Ask::Transact(transaction) => transact(book, &mut draft, work.id, transaction),
        };
        draft.answers.push(answer);
    }
    for (id, seq) in &draft.touched {
        match book.ledger.claim(id) {
            Some(claim) => draft.entries.claim(*seq, claim),
            None => draft.entries.released(*seq, *id, book.fences.get(id).copied().unwrap_or_default()),
        }
    }
    draft
}

fn decide(book: &mut Book, draft: &mut Draft, id: Uuid, request: &DecisionRequest, contents: &[Content]) -> Result<Answer, LedgerError> {
    if !book.knows_members() {
        return Err(LedgerError::MembersUnknown);
    }
    let mut decision = book.ledger.decide(id, request);
    let undo = book.ledger.apply_decision(request, &decision);
    book.ledger.seq += 1;
    decision.seq = book.ledger.seq;
    let json = packed::json(&decision);
    draft.entries.decision(request, contents, &decision, &json);
    for claim in undo.touched() {
        let shared = book.ledger.claim(&claim).map(|claim| &claim.request);
        let content = shared.and_then(|shared| Some((shared, request.apps.iter().position(|app| app.app == shared.app)?)));
        if let Some((shared, at)) = content {
            draft.entries.same(shared, &contents[at]);
        }
        draft.touched.insert(claim, decision.seq);
    }
    draft.undo.push(undo);
    Ok(Answer::Decision(json.into()))
}

fn transact(book: &mut Book, draft: &mut Draft, id: Uuid, transaction: &LedgerTransaction) -> Result<Answer, LedgerError> {
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
    draft.entries.receipt(id, transaction, &receipt);
    draft.touched.extend(undo.touched().into_iter().map(|claim| (claim, receipt.seq)));
    draft.undo.push(undo);
    // Also of a claim that never was: the writer that would still take it is the one that was replaced.
    for claim in transaction.changes.iter().filter(|change| matches!(change, LedgerChange::Release { .. })).map(|change| *change.claim()) {
        let before = book.fences.get(&claim).copied();
        book.fences.insert(claim, before.map_or(transaction.fence, |before| before.max(transaction.fence)));
        draft.fences.push((claim, before));
        draft.touched.insert(claim, receipt.seq);
    }
    Ok(Answer::Receipt(receipt))
}

/// Final, or (where nothing else stands against it) to be asked again when clusters have been heard of.
fn refused(differences: Vec<Difference>) -> LedgerError {
    match differences.iter().all(|difference| difference.code == Difference::AWAITED) {
        true => LedgerError::RoomUnknown(differences.into_iter().map(|difference| difference.detail).collect()),
        false => LedgerError::Conflict(differences),
    }
}

/// The draft did not become true.
fn take_back(book: &mut Book, draft: Draft) {
    for undo in draft.undo.into_iter().rev() {
        book.ledger.undo(undo);
    }
    for (claim, before) in draft.fences.into_iter().rev() {
        match before {
            Some(fence) => book.fences.insert(claim, fence),
            None => book.fences.remove(&claim),
        };
    }
    book.ledger.seq = draft.onto;
}

/// The draft is true: tell the feed, then those who wait.
fn finish(app: &App, draft: Draft, works: Vec<Work>) {
    for undo in draft.undo {
        undo.keep();
    }
    app.tell(draft.touched.keys().copied());
    for (work, answer) in works.into_iter().zip(draft.answers) {
        work.answer(answer);
    }
}
