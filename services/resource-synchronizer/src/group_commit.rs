//! Group commit: what many tasks write at the same time goes to the database with one statement and one commit.
//!
//! There is no timer. What comes in while a statement is under way is written by the next one; a single write is carried out at once. One
//! statement runs at a time, so that the writes of a hundred members take one connection and not all.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_store::{StoreError, StoreResult, retry_contended};
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How many writes go with one statement at most.
const MOST: usize = 100;
/// Time limit of a statement, with its repetitions.
const LIMIT: Duration = Duration::from_secs(30);
/// How often a statement that conflicts with another one is tried.
const ATTEMPTS: usize = 3;

/// Carries out these writes, all or none, and returns their results in the same order.
type Statement<W, R> = Box<dyn for<'a> Fn(&'a [W]) -> BoxFuture<'a, StoreResult<Vec<R>>> + Send + Sync>;

/// What a write comes to. The error is that of the statement, which others may have got, too.
type Outcome<R> = Result<R, Arc<StoreError>>;

/// Writes of one kind, each of which returns an `R`. Clones share the queue.
pub struct GroupCommit<W, R>(Arc<Inner<W, R>>);

struct Inner<W, R> {
    statement: Statement<W, R>,
    waiting: Mutex<Vec<Waiting<W, R>>>,
    turn: Arc<Semaphore>,
}

struct Waiting<W, R> {
    write: W,
    outcome: oneshot::Sender<Outcome<R>>,
}

impl<W, R> Clone for GroupCommit<W, R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: Send + Sync + 'static, R: Send + 'static> GroupCommit<W, R> {
    /// Writes that `statement` carries out: all or none, with their results in the same order.
    pub fn new(statement: impl for<'a> Fn(&'a [W]) -> BoxFuture<'a, StoreResult<Vec<R>>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { statement: Box::new(statement), waiting: Mutex::default(), turn: Arc::new(Semaphore::new(1)) }))
    }

    /// Waits until the write is committed. One that nobody waits for any more may still be carried out.
    ///
    /// # Errors
    /// The statement failed. It may have been carried out if the connection broke.
    pub async fn write(&self, write: W) -> Outcome<R> {
        let (outcome, committed) = oneshot::channel();
        self.0.waiting().push(Waiting { write, outcome });
        tokio::select! {
            biased;
            committed = committed => committed.unwrap_or_else(|_| Err(Arc::new(StoreError::from(sqlx::Error::WorkerCrashed)))),
            never = self.begin_batches() => match never {},
        }
    }

    /// Begins the next batch whenever the one before has ended. Each waiting write does so, until one of them has taken it along.
    async fn begin_batches(&self) -> Infallible {
        loop {
            let turn = Arc::clone(&self.0.turn).acquire_owned().await.expect("the semaphore is never closed");
            let batch = self.0.take();
            if batch.is_empty() {
                // The write of this caller has just been committed, too.
                drop(turn);
                tokio::task::yield_now().await;
            } else {
                // In a task of its own, because others wait for it, too, if this one is dropped.
                tokio::spawn(Arc::clone(&self.0).carry_out(batch, turn));
            }
        }
    }
}

impl<W, R> Inner<W, R> {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting<W, R>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest ones, without those that nobody waits for any more.
    fn take(&self) -> Vec<Waiting<W, R>> {
        let mut waiting = self.waiting();
        waiting.retain(|one| !one.outcome.is_closed());
        let most = waiting.len().min(MOST);
        waiting.drain(..most).collect()
    }

    async fn carry_out(self: Arc<Self>, batch: Vec<Waiting<W, R>>, _turn: OwnedSemaphorePermit) {
        let (writes, outcomes): (Vec<_>, Vec<_>) = batch.into_iter().map(|Waiting { write, outcome }| (write, outcome)).unzip();
        match self.run(&writes).await {
            Ok(results) => outcomes.into_iter().zip(results).for_each(|(outcome, result)| drop(outcome.send(Ok(result)))),
            Err(error) if writes.len() > 1 && !error.is_retryable() => self.carry_out_one_by_one(writes, outcomes).await,
            Err(error) => fail(outcomes, error),
        }
    }

    /// Something is wrong with one of these writes, which the others must not suffer for.
    async fn carry_out_one_by_one(&self, writes: Vec<W>, outcomes: Vec<oneshot::Sender<Outcome<R>>>) {
        let mut rest = writes.into_iter().zip(outcomes).filter(|(_, outcome)| !outcome.is_closed());
        while let Some((write, outcome)) = rest.next() {
            match self.run(std::slice::from_ref(&write)).await {
                Ok(mut results) => drop(outcome.send(Ok(results.remove(0)))),
                Err(error) if error.is_retryable() => return fail(std::iter::once(outcome).chain(rest.map(|(_, outcome)| outcome)), error),
                Err(error) => drop(outcome.send(Err(Arc::new(error)))),
            }
        }
    }

    async fn run(&self, writes: &[W]) -> StoreResult<Vec<R>> {
        let statement = retry_contended(ATTEMPTS, StoreError::is_contended, || (self.statement)(writes));
        // The statements of all members would wait for one that hangs.
        tokio::time::timeout(LIMIT, statement).await.unwrap_or(Err(StoreError::Unavailable(sqlx::Error::PoolTimedOut)))
    }
}

fn fail<R>(outcomes: impl IntoIterator<Item = oneshot::Sender<Outcome<R>>>, error: StoreError) {
    let error = Arc::new(error);
    outcomes.into_iter().for_each(|outcome| drop(outcome.send(Err(Arc::clone(&error)))));
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::mpsc;

    use super::*;

    /// A statement that reports each batch and ends when it is allowed to. It adds one to each number. With 13 it fails for good, else with 99
    /// as when the database is away. With 66 it panics.
    struct Fixture {
        commits: GroupCommit<u32, u32>,
        batches: mpsc::UnboundedReceiver<Vec<u32>>,
        may_end: Arc<Semaphore>,
    }

    fn fixture() -> Fixture {
        let (report, batches) = mpsc::unbounded_channel();
        let may_end = Arc::new(Semaphore::new(0));
        let ends = may_end.clone();
        let commits = GroupCommit::new(move |numbers: &[u32]| {
            report.send(numbers.to_vec()).unwrap();
            let ends = ends.clone();
            async move {
                ends.acquire().await.unwrap().forget();
                assert!(!numbers.contains(&66), "as if the statement had a mistake");
                match numbers {
                    _ if numbers.contains(&13) => Err(StoreError::NotFound),
                    _ if numbers.contains(&99) => Err(StoreError::Unavailable(sqlx::Error::PoolTimedOut)),
                    _ => Ok(numbers.iter().map(|number| number + 1).collect()),
                }
            }
            .boxed()
        });
        Fixture { commits, batches, may_end }
    }

    impl Fixture {
        /// Begins to write a number. Returns when it is in the queue.
        async fn begin(&self, number: u32) -> tokio::task::JoinHandle<Outcome<u32>> {
            let commits = self.commits.clone();
            let write = tokio::spawn(async move { commits.write(number).await });
            while self.commits.0.waiting().iter().all(|one| one.write != number) && !write.is_finished() {
                tokio::task::yield_now().await;
            }
            write
        }

        /// One write that is being carried out, and these behind it.
        async fn behind_another(&mut self, numbers: &[u32]) -> Vec<tokio::task::JoinHandle<Outcome<u32>>> {
            let commits = self.commits.clone();
            let first = tokio::spawn(async move { commits.write(0).await });
            assert_eq!(self.batches.recv().await, Some(vec![0]));
            let mut writes = vec![first];
            for number in numbers {
                writes.push(self.begin(*number).await);
            }
            writes
        }
    }

    /// The result of each write, and `None` for one that failed.
    async fn written(writes: Vec<tokio::task::JoinHandle<Outcome<u32>>>) -> Vec<Option<u32>> {
        let outcomes = futures::future::join_all(writes).await;
        outcomes.into_iter().map(|outcome| outcome.unwrap().ok()).collect()
    }

    #[tokio::test]
    async fn what_comes_in_during_a_statement_goes_with_the_next_one() {
        let mut fixture = fixture();
        let writes = fixture.behind_another(&[1, 2, 3]).await;
        fixture.may_end.add_permits(2);
        for (number, write) in (0..).zip(writes) {
            assert_eq!(write.await.unwrap().unwrap(), number + 1);
        }
        assert_eq!(fixture.batches.recv().await, Some(vec![1, 2, 3]));
        assert!(fixture.batches.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_statement_has_so_many_writes_at_most() {
        let mut fixture = fixture();
        let numbers: Vec<u32> = (100..100 + u32::try_from(MOST).unwrap() + 5).collect();
        let writes = fixture.behind_another(&numbers).await;
        fixture.may_end.add_permits(3);
        for write in writes {
            write.await.unwrap().unwrap();
        }
        assert_eq!(fixture.batches.recv().await, Some(numbers[..MOST].to_vec()));
        assert_eq!(fixture.batches.recv().await, Some(numbers[MOST..].to_vec()));
    }

    #[tokio::test]
    async fn one_that_cannot_be_written_fails_alone() {
        let mut fixture = fixture();
        let writes = fixture.behind_another(&[1, 13, 3]).await;
        fixture.may_end.add_permits(5);
        assert_eq!(written(writes).await, [Some(1), Some(2), None, Some(4)]);
    }

    #[tokio::test]
    async fn nothing_more_is_tried_alone_once_the_database_is_away() {
        let mut fixture = fixture();
        let writes = fixture.behind_another(&[13, 99, 3]).await;
        fixture.may_end.add_permits(4);
        assert_eq!(written(writes).await, [Some(1), None, None, None]);
        let mut batches = Vec::new();
        while let Ok(batch) = fixture.batches.try_recv() {
            batches.push(batch);
        }
        assert_eq!(batches, [vec![13, 99, 3], vec![13], vec![99]]);
    }

    #[tokio::test]
    async fn all_fail_at_once_while_the_database_is_away() {
        let mut fixture = fixture();
        let writes = fixture.behind_another(&[1, 99, 3]).await;
        fixture.may_end.add_permits(2);
        let outcomes = futures::future::join_all(writes).await;
        let errors: Vec<bool> = outcomes.into_iter().map(|outcome| outcome.unwrap().is_err_and(|error| error.is_retryable())).collect();
        assert_eq!(errors, [false, true, true, true]);
        assert_eq!(fixture.batches.recv().await, Some(vec![1, 99, 3]));
        assert!(fixture.batches.try_recv().is_err(), "none is tried alone");
    }

    #[tokio::test]
    async fn writes_go_on_after_a_statement_that_panicked() {
        let mut fixture = fixture();
        let mut writes = fixture.behind_another(&[66, 2]).await;
        fixture.may_end.add_permits(2);
        for (write, is_written) in writes.drain(..).zip([true, false, false]) {
            assert_eq!(write.await.unwrap().is_ok(), is_written);
        }
        fixture.may_end.add_permits(1);
        assert_eq!(fixture.commits.write(4).await.unwrap(), 5);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_written() {
        let mut fixture = fixture();
        let writes = fixture.behind_another(&[1, 2]).await;
        // The one being carried out, too: those behind it are written all the same.
        for write in &writes[..2] {
            write.abort();
        }
        tokio::task::yield_now().await;
        fixture.may_end.add_permits(2);
        assert_eq!(writes.into_iter().next_back().unwrap().await.unwrap().unwrap(), 3);
        assert_eq!(fixture.batches.recv().await, Some(vec![2]));
    }
}
