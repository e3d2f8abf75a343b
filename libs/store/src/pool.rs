//! The connections of a store, which are kept open between uses, and transactions on them.
//!
//! deadpool keeps them. The pool of sqlx 0.9.0 sends an empty message and waits for its answer each time a connection comes back, and if
//! the server does not answer, the pool has one connection less for ever (sqlx issue 4349). Here a connection comes back without a message if nothing on it is unfinished. If its user was dropped in the middle of a
//! statement or a transaction, a task brings that to an end first, and closes the connection if the end does not come in time.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool::managed::{self, Metrics, Object, PoolError, QueueMode, RecycleError, RecycleResult, TimeoutType, Timeouts, WeakPool};
use futures::FutureExt;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, Executor, PgConnection};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::{StoreError, StoreResult};

/// A connection that was idle for so long is tested before it is used: the server may have been restarted meanwhile.
const TEST_AFTER_IDLE: Duration = Duration::from_millis(100);

/// The time limit of that test.
const TEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the end of an abandoned statement or transaction may take before its connection is closed.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that was idle for so long is closed: each costs the server memory.
const CLOSE_AFTER_IDLE: Duration = Duration::from_secs(600);

/// A connection of this age is replaced: the memory of its process on the server grows with use.
const MAX_AGE: Duration = Duration::from_secs(1800);

/// The pause before an attempt to connect is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// How many connections are preferred to the others.
const PREFERRED: u32 = 2;

/// The connections of one store. Each has statements and plans of its own, which it makes when it needs them. So a few are preferred, also
/// after all of them were in use: the first statements on another one take several times as long.
#[derive(Clone)]
pub(crate) struct Pool {
    /// A place for each connection of both pools. Callers wait for one in the order in which they came. To wait in both pools instead would
    /// take a connection from each, of which one is closed if it was just being tested or opened.
    places: Arc<Semaphore>,
    preferred: managed::Pool<Connector>,
    others: managed::Pool<Connector>,
}

impl Pool {
    /// A pool without connections; they are opened when they are needed.
    pub fn new(options: PgConnectOptions, max_connections: u32, acquire_timeout: Duration) -> Self {
        let pool = |size: u32| {
            // The last one that came back is the next one to go, so that few are in use and the others can be closed.
            let pool = managed::Pool::builder(Connector { options: options.clone(), timeout: acquire_timeout })
                .max_size(size as usize)
                .queue_mode(QueueMode::Lifo)
                .build()
                .expect("a pool without time limits of its own needs no runtime");
            tokio::spawn(close_idle(pool.weak()));
            pool
        };
        let preferred = max_connections.min(PREFERRED);
        let places = Arc::new(Semaphore::new(max_connections as usize));
        Self { places, preferred: pool(preferred), others: pool(max_connections - preferred) }
    }

    /// A preferred connection if one is free, else another one, else the first that comes back.
    async fn get(&self) -> Result<Taken, PoolError<StoreError>> {
        let place = self.places.clone().acquire_owned().await.map_err(|_| PoolError::Closed)?;
        let at_once = Timeouts { wait: Some(Duration::ZERO), ..Timeouts::default() };
        loop {
            for pool in [&self.preferred, &self.others] {
                match pool.timeout_get(&at_once).await {
                    Err(PoolError::Timeout(TimeoutType::Wait)) => {}
                    found => return Ok(Taken { object: found?, place }),
                }
            }
            // One is free, but another caller took it from the second pool while one came back to the first.
            yield_now().await;
        }
    }

    /// See [`crate::Store::acquire`].
    pub async fn acquire(&self) -> StoreResult<PooledConnection> {
        match timeout(self.preferred.manager().timeout, self.get()).await {
            Ok(Ok(taken)) => Ok(PooledConnection(Some(taken))),
            Ok(Err(PoolError::Backend(error))) => Err(error),
            Ok(Err(PoolError::Closed)) => Err(sqlx::Error::PoolClosed.into()),
            Ok(Err(_)) | Err(_) => Err(sqlx::Error::PoolTimedOut.into()),
        }
    }

    /// See [`crate::Store::begin`].
    pub async fn begin(&self) -> StoreResult<Tx> {
        // A transaction before it has begun: if this future is dropped now, what the server has begun is rolled back.
        let mut tx = Tx { connection: self.acquire().await?, ended: false };
        tx.connection.execute("begin").await?;
        Ok(tx)
    }

    /// How to open further connections like those of the pool, and how long that may take.
    pub fn options(&self) -> (&PgConnectOptions, Duration) {
        let Connector { options, timeout } = self.preferred.manager();
        (options, *timeout)
    }

    /// Closes the idle connections, and each of the others when it comes back. No further ones are opened.
    pub async fn close(&self) {
        self.places.close();
        for pool in [&self.preferred, &self.others] {
            let idle = pool.retain(|_, _| false).removed;
            pool.close();
            for kept in idle {
                let _ = kept.connection.close().await;
            }
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = (self.preferred.status(), self.others.status());
        f.debug_struct("Pool").field("status", &status).finish_non_exhaustive()
    }
}

/// Closes connections that nobody needs, as long as the pool exists.
async fn close_idle(pool: WeakPool<Connector>) {
    loop {
        tokio::time::sleep(CLOSE_AFTER_IDLE / 10).await;
        let Some(pool) = pool.upgrade() else { return };
        for kept in pool.retain(|kept, _| kept.returned.elapsed() < CLOSE_AFTER_IDLE).removed {
            let _ = timeout(FINISH_TIMEOUT, kept.connection.close()).await;
        }
    }
}

/// Opens the connections of a pool.
struct Connector {
    options: PgConnectOptions,
    /// How long a caller waits for a connection, including the time to open one.
    timeout: Duration,
}

/// A connection and when it came back to the pool.
struct Kept {
    connection: PgConnection,
    returned: Instant,
}

impl managed::Manager for Connector {
    type Type = Kept;
    type Error = StoreError;

    async fn create(&self) -> StoreResult<Kept> {
        Ok(Kept { connection: connect(&self.options, self.timeout).await?, returned: Instant::now() })
    }

    async fn recycle(&self, kept: &mut Kept, metrics: &Metrics) -> RecycleResult<StoreError> {
        let usable = metrics.age() < MAX_AGE && works_after(kept.returned.elapsed(), &mut kept.connection).await;
        if usable { Ok(()) } else { Err(RecycleError::message("it is old or does not answer")) }
    }
}

/// Connects, and tries again while the server is unavailable: it may only be starting. A refused login is an error at once.
pub(crate) async fn connect(options: &PgConnectOptions, limit: Duration) -> StoreResult<PgConnection> {
    let give_up = Instant::now() + limit;
    let mut logged = false;
    loop {
        match open(options.clone()).await.map_err(StoreError::from) {
            Err(StoreError::Unavailable(error)) if Instant::now() < give_up => {
                if !logged {
                    tracing::info!(%error, "the database does not answer yet, waiting for it");
                    logged = true;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// Opens a connection on a thread of its own. sqlx interrupts the login with SCRAM 800 times for other tasks of the runtime: where 60 are ready
/// all the time, it takes seconds.
pub async fn open(options: PgConnectOptions) -> sqlx::Result<PgConnection> {
    // Dropped with this future, so that the thread does not go on alone.
    let (_caller, gone) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let opened = tokio::task::spawn_blocking(move || {
        runtime.block_on(async move {
            tokio::select! {
                biased;
                _ = gone => Err(sqlx::Error::WorkerCrashed),
                opened = PgConnection::connect_with(&options) => opened,
            }
        })
    });
    opened.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}

/// Whether a connection that was idle for so long still works. It is tested only after a while, because a test costs a round trip.
pub async fn works_after(idle: Duration, connection: &mut PgConnection) -> bool {
    idle < TEST_AFTER_IDLE || matches!(timeout(TEST_TIMEOUT, connection.ping()).await, Ok(Ok(())))
}

/// A connection in use, and its place. The connection goes back first.
struct Taken {
    object: Object<Connector>,
    place: OwnedSemaphorePermit,
}

/// A connection that goes back to its store when it is dropped.
pub struct PooledConnection(Option<Taken>);

impl Deref for PooledConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0.as_ref().expect("it is taken only on drop").object.connection
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0.as_mut().expect("it is taken only on drop").object.connection
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let Some(mut taken) = self.0.take() else { return };
        // sqlx's `flush` waits for answers that are still to come. Without any it is ready at once and has sent nothing.
        match taken.object.connection.flush().now_or_never() {
            Some(finished) => give_back(taken, finished.is_ok()),
            None => finish(taken, None),
        }
    }
}

/// A transaction, which is rolled back unless it is committed.
pub struct Tx {
    connection: PooledConnection,
    ended: bool,
}

impl Tx {
    /// Makes what the transaction has written permanent, and visible to others.
    ///
    /// # Errors
    /// A deferred constraint is violated, or the transaction lasted too long: nothing was written. If the server cannot be reached any
    /// more, the transaction may be committed or not.
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        self.end("commit").await
    }

    /// Rolls back, and waits until that is done. Dropping the transaction does not wait.
    ///
    /// # Errors
    /// The server cannot be reached, which ends the transaction too.
    pub async fn rollback(mut self) -> Result<(), sqlx::Error> {
        self.end("rollback").await
    }

    async fn end(&mut self, how: &'static str) -> Result<(), sqlx::Error> {
        self.connection.execute(how).await?;
        self.ended = true;
        Ok(())
    }
}

impl Deref for Tx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if !self.ended
            && let Some(taken) = self.connection.0.take()
        {
            finish(taken, Some("rollback"));
        }
    }
}

/// Waits in a task for the answers that are still to come, executes the statement, and gives the connection back. It is closed if that
/// fails or takes too long.
fn finish(mut taken: Taken, statement: Option<&'static str>) {
    // Without a runtime the process is ending.
    let Ok(runtime) = Handle::try_current() else { return give_back(taken, false) };
    runtime.spawn(async move {
        let connection = &mut taken.object.connection;
        let end = async {
            connection.flush().await?;
            if let Some(statement) = statement {
                connection.execute(statement).await?;
            }
            Ok::<_, sqlx::Error>(())
        };
        let finished = matches!(timeout(FINISH_TIMEOUT, end).await, Ok(Ok(())));
        give_back(taken, finished);
    });
}

fn give_back(Taken { mut object, place }: Taken, usable: bool) {
    if usable {
        object.returned = Instant::now();
        drop(object);
    } else {
        // The connection is closed.
        drop(Object::take(object));
    }
    drop(place);
}
