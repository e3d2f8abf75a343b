//! The one writer: drains the queue, decides in sequence on the book, commits a batch as one statement, then answers.
//!
//! While a batch is being committed the next one is decided, on the book that holds the first already, and sent when the
//! first is there. No timer: the next batch is whatever was asked during the commit. The invariant: an answer leaves only
//! after its entry is committed onto exactly the head that it was decided on; whatever does not become true is taken back
//! from the book, the later batch first.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use drover_store::StoreError;
use tokio::sync::mpsc;

use super::batch::{Batch, Effect};
use super::waiting::{Answer, Ask, Job, Waiting, Work};
use super::{App, LedgerError};
use crate::store::{self, Committed, Entries, Pen};

/// Jobs that one statement takes at most, and that are decided ahead at most.
const BATCH: usize = 512;
/// How often other processes may be faster before a job is refused.
const ATTEMPTS: usize = 100;
/// How often it looks for what other processes wrote.
const POLL: Duration = Duration::from_secs(1);

/// Runs until the queue is closed.
pub async fn run(app: App, mut queue: mpsc::Receiver<Job>) {
    let mut poll = tokio::time::interval(POLL);
    poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failing = false;
    let mut writer = Writer { pen: Pen::new(&app.store), app, waiting: Waiting::default() };
    loop {
        let mut jobs = Vec::new();
        tokio::select! {
            taken = queue.recv_many(&mut jobs, BATCH) => {
                if taken == 0 {
                    return;
                }
                writer.stream(jobs, &mut queue).await;
            }
            // Never while something is decided that is not committed. Under load it is not needed: each commit finds out.
            _ = poll.tick() => {
                let followed = writer.app.follow_log().await;
                if let (Err(error), false) = (&followed, failing) {
                    tracing::warn!(%error, "the ledger's log cannot be read, trying on");
                }
                failing = followed.is_err();
            }
        }
    }
}

struct Writer {
    app: App,
    pen: Pen,
    waiting: Waiting,
}

impl Writer {
    /// Batch after batch until nothing is asked for, each decided while the one before is committed.
    async fn stream(&mut self, jobs: Vec<Job>, queue: &mut mpsc::Receiver<Job>) {
        let Self { app, pen, waiting } = self;
        // Asked for, not decided.
        let mut open: Vec<Work> = jobs.into_iter().filter_map(|job| waiting.admit(job)).collect();
        let mut batch = Batch::default();
        // True, and to be told when the next one is on its way: Postgres need not wait for that.
        let mut done: Option<(Batch, Effect)> = None;
        loop {
            if open.iter().any(Work::is_transaction) {
                // Repeats are looked up first, which may take long.
                tell(app, waiting, &mut done);
            }
            decide(app, waiting, &mut open, &mut batch).await;
            if batch.works.is_empty() {
                return tell(app, waiting, &mut done);
            }
            let (entries, effect) = app.read(|book| batch.seal(book));
            let mut next = Batch::default();
            let committed = tokio::select! {
                biased;
                committed = commit(app, pen, entries, effect.onto) => committed,
                never = async {
                    tell(app, waiting, &mut done);
                    gather(app, waiting, queue, &mut open, &mut next).await
                } => match never {},
            };
            tell(app, waiting, &mut done);
            if matches!(committed, Ok(Committed::Done)) {
                done = Some((batch, effect));
                batch = next;
                continue;
            }
            let (mut works, later) = app.write(|book| {
                let later = next.take_back(book);
                (batch.take_back(book), later)
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

    /// The slow way, after a failure: one batch, nothing beside it, until it is committed or refused.
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
            let committed = commit(&self.app, &mut self.pen, entries, effect.onto).await;
            if matches!(committed, Ok(Committed::Done)) {
                return finish(&self.app, &mut self.waiting, batch, effect);
            }
            works = self.app.write(|book| batch.take_back(book));
            if let Err(error) = committed {
                return self.refuse(works, &error).await;
            }
        }
        self.waiting.fail(works, &LedgerError::Busy);
    }

    /// Data that Postgres refuses must cost only whoever sent it.
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

/// Decides what is asked meanwhile into `next`. May be dropped whenever it waits: what is not decided then is still `open`.
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

/// Decides what is open. A decision's repeat shows by its key when it is written. A transaction's must be known before: it
/// would be judged on a ledger that it has changed itself, and be refused.
async fn decide(app: &App, waiting: &mut Waiting, open: &mut Vec<Work>, batch: &mut Batch) {
    if open.iter().any(Work::is_transaction) {
        answer_repeats(app, waiting, open).await;
    }
    if !open.is_empty() {
        app.write(|book| batch.decide(book, std::mem::take(open)));
    }
}

/// Answers what the log has answered before; leaves the rest. Nothing is left when the log does not answer.
async fn answer_repeats(app: &App, waiting: &mut Waiting, open: &mut Vec<Work>) {
    let ids: Vec<_> = open.iter().map(|work| work.id).collect();
    let known = async { Ok::<_, StoreError>((store::decisions(&app.store, &ids).await?, store::receipts(&app.store, &ids).await?)) };
    match known.await {
        Err(error) => waiting.fail(std::mem::take(open), &LedgerError::from(error)),
        Ok((decisions, receipts)) => open.retain(|work| {
            let known = match work.ask {
                Ask::Decide(..) => decisions.get(&work.id).cloned().map(Answer::Decision),
                Ask::Transact(_) => receipts.get(&work.id).cloned().map(Answer::Receipt),
            };
            known.map(|answer| waiting.answer(work, Ok(answer))).is_none()
        }),
    }
}

async fn commit(app: &App, pen: &mut Pen, entries: Entries, onto: i64) -> Result<Committed, LedgerError> {
    let stopped = |_| LedgerError::Stopped;
    app.failpoints.reached(|| "ledger/commit/before".to_owned()).await.map_err(stopped)?;
    let committed = pen.commit(entries, onto).await?;
    app.failpoints.reached(|| "ledger/commit/after".to_owned()).await.map_err(stopped)?;
    Ok(committed)
}

/// As [`finish`], if there is one to be told.
fn tell(app: &App, waiting: &mut Waiting, done: &mut Option<(Batch, Effect)>) {
    if let Some((batch, effect)) = done.take() {
        finish(app, waiting, batch, effect);
    }
}

/// The batch is true: tell the feed, then those who wait.
fn finish(app: &App, waiting: &mut Waiting, mut batch: Batch, effect: Effect) {
    batch.keep();
    app.tell(effect.claims, effect.head);
    for (work, answer) in batch.works.iter().zip(batch.answers) {
        waiting.answer(work, answer);
    }
}
