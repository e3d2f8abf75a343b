//! The single writer: takes requests from the queue, decides them in sequence on the book, commits each batch as one statement, then
//! answers.
//!
//! While a batch is being committed, the next one is decided on the book, which already contains the first; it is sent when the first
//! is committed. There is no timer: the next batch is what arrived during the commit. The invariant: a request is answered only after
//! its entry is committed onto exactly the head that it was decided on; batches that are not committed are reverted in the book, the
//! later one first.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use drover_service::TaskHandle;
use drover_store::StoreError;
use tokio::sync::mpsc;

use super::batch::{Batch, Effect};
use super::waiting::{Job, LedgerAnswer, LedgerRequest, Waiting, Work};
use super::{App, LedgerError};
use crate::store::{self, Committed, Entries, LogConnection};

/// Maximum requests in one batch.
const BATCH: usize = 512;
/// Attempts to commit before a request is refused because other processes always committed first.
const ATTEMPTS: usize = 100;
/// Interval between two looks for entries of other processes.
const POLL: Duration = Duration::from_secs(1);

/// Runs until the queue is closed.
pub async fn run(app: App, mut queue: mpsc::Receiver<Job>, task: TaskHandle) {
    let mut poll = tokio::time::interval(POLL);
    poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failing = false;
    let mut writer = Writer { log: LogConnection::new(&app.store), app, waiting: Waiting::default() };
    loop {
        task.active();
        let mut jobs = Vec::new();
        tokio::select! {
            taken = queue.recv_many(&mut jobs, BATCH) => {
                if taken == 0 {
                    return;
                }
                writer.stream(jobs, &mut queue).await;
            }
            // Not while a decided batch is uncommitted. Under load it is not needed: a commit detects a moved head.
            _ = poll.tick() => {
                let followed = writer.app.follow_log().await;
                if let (Err(error), false) = (&followed, failing) {
                    tracing::warn!(%error, "the ledger's log cannot be read; trying again every second");
                }
                failing = followed.is_err();
            }
        }
    }
}

struct Writer {
    app: App,
    log: LogConnection,
    waiting: Waiting,
}

impl Writer {
    /// Processes batches until no request is left; each is decided while the previous one is committed.
    async fn stream(&mut self, jobs: Vec<Job>, queue: &mut mpsc::Receiver<Job>) {
        let Self { app, log, waiting } = self;
        // Received, not decided.
        let mut open: Vec<Work> = jobs.into_iter().filter_map(|job| waiting.admit(job)).collect();
        let mut batch = Batch::default();
        // Committed but not answered: it is answered while the next batch is on its way to Postgres.
        let mut committed_batch: Option<(Batch, Effect)> = None;
        loop {
            if open.iter().any(Work::is_transaction) {
                // Repeats are looked up in Postgres first, which may take long.
                finish_pending(app, waiting, &mut committed_batch);
            }
            decide(app, waiting, &mut open, &mut batch).await;
            if batch.works.is_empty() {
                return finish_pending(app, waiting, &mut committed_batch);
            }
            let (entries, effect) = app.read(|book| batch.seal(book));
            let mut next = Batch::default();
            let committed = tokio::select! {
                biased;
                committed = commit(app, log, entries, effect.onto) => committed,
                never = async {
                    finish_pending(app, waiting, &mut committed_batch);
                    gather(app, waiting, queue, &mut open, &mut next).await
                } => match never {},
            };
            finish_pending(app, waiting, &mut committed_batch);
            if matches!(committed, Ok(Committed::Done)) {
                committed_batch = Some((batch, effect));
                batch = next;
                continue;
            }
            let (mut works, later) = app.write(|book| {
                let later = next.revert(book);
                (batch.revert(book), later)
            });
            open.splice(..0, later);
            match committed {
                Ok(_) => {
                    works.append(&mut open);
                    self.settle(works).await;
                }
                Err(error) => {
                    self.refuse(works, &error).await;
                    self.settle(open).await;
                }
            }
            return;
        }
    }

    /// The path after a failure: one batch at a time, without pipelining, until it is committed or refused.
    async fn settle(&mut self, mut works: Vec<Work>) {
        for _ in 0..ATTEMPTS {
            if works.is_empty() {
                return;
            }
            if let Err(error) = self.app.follow_log().await {
                return self.waiting.fail(works, &error);
            }
            answer_repeats(&self.app, &mut self.waiting, &mut works).await;
            let mut batch = Batch::default();
            let (entries, effect) = self.app.write(|book| {
                batch.decide(book, works);
                batch.seal(book)
            });
            let committed = commit(&self.app, &mut self.log, entries, effect.onto).await;
            if matches!(committed, Ok(Committed::Done)) {
                return finish(&self.app, &mut self.waiting, batch, effect);
            }
            works = self.app.write(|book| batch.revert(book));
            if let Err(error) = committed {
                return self.refuse(works, &error).await;
            }
        }
        self.waiting.fail(works, &LedgerError::Busy);
    }

    /// Answers with the error. If Postgres refused the data itself, each request is tried alone first, so that only the faulty one fails.
    async fn refuse(&mut self, works: Vec<Work>, error: &LedgerError) {
        if works.len() > 1 && matches!(error, LedgerError::Store(error) if !error.is_retryable()) {
            for work in works {
                Box::pin(self.settle(vec![work])).await;
            }
        } else {
            self.waiting.fail(works, error);
        }
    }
}

/// Decides requests that arrive during a commit into `next`. Safe to cancel: what is not decided yet is still in `open`.
async fn gather(app: &App, waiting: &mut Waiting, queue: &mut mpsc::Receiver<Job>, open: &mut Vec<Work>, next: &mut Batch) -> Infallible {
    loop {
        let room = BATCH.saturating_sub(next.works.len());
        let mut jobs = Vec::new();
        if room == 0 || queue.recv_many(&mut jobs, room).await == 0 {
            return pending().await;
        }
        open.extend(jobs.into_iter().filter_map(|job| waiting.admit(job)));
        decide(app, waiting, open, next).await;
    }
}

/// Decides all open requests. A repeated decision violates a key when it is written. A repeated transaction must be found before: it
/// would be checked against a ledger that it has changed itself, and be refused.
async fn decide(app: &App, waiting: &mut Waiting, open: &mut Vec<Work>, batch: &mut Batch) {
    if open.iter().any(Work::is_transaction) {
        answer_repeats(app, waiting, open).await;
    }
    if !open.is_empty() {
        app.write(|book| batch.decide(book, std::mem::take(open)));
    }
}

/// Answers repeated requests from the log and leaves the others in `open`. If the log cannot be read, all requests fail.
async fn answer_repeats(app: &App, waiting: &mut Waiting, open: &mut Vec<Work>) {
    let ids: Vec<_> = open.iter().map(|work| work.id).collect();
    let known = async { Ok::<_, StoreError>((store::decisions(&app.store, &ids).await?, store::receipts(&app.store, &ids).await?)) };
    match known.await {
        Err(error) => waiting.fail(std::mem::take(open), &LedgerError::from(error)),
        Ok((decisions, receipts)) => open.retain(|work| {
            let known = match work.request {
                LedgerRequest::Decide(..) => decisions.get(&work.id).cloned().map(LedgerAnswer::Decision),
                LedgerRequest::Transact(_) => receipts.get(&work.id).cloned().map(LedgerAnswer::Receipt),
            };
            known.map(|answer| waiting.answer(work, Ok(answer))).is_none()
        }),
    }
}

async fn commit(app: &App, log: &mut LogConnection, entries: Entries, onto: i64) -> Result<Committed, LedgerError> {
    let stopped = |_| LedgerError::Stopped;
    app.failpoints.reached(|| "ledger/commit/before".to_owned()).await.map_err(stopped)?;
    let committed = log.commit(entries, onto).await?;
    app.failpoints.reached(|| "ledger/commit/after".to_owned()).await.map_err(stopped)?;
    Ok(committed)
}

/// As [`finish`], if a committed batch is not answered yet.
fn finish_pending(app: &App, waiting: &mut Waiting, pending: &mut Option<(Batch, Effect)>) {
    if let Some((batch, effect)) = pending.take() {
        finish(app, waiting, batch, effect);
    }
}

/// Publishes a committed batch, then answers its callers.
fn finish(app: &App, waiting: &mut Waiting, mut batch: Batch, effect: Effect) {
    batch.confirm();
    batch.groups.drain(..).for_each(|used| app.groups.count(used));
    app.publish_claims(effect.claims, effect.head);
    for (work, answer) in batch.works.iter().zip(batch.answers) {
        waiting.answer(work, answer);
    }
}
