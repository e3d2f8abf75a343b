//! Connections that go back to the store: at once, or after what was abandoned on them has ended.

use std::task::Poll;
use std::time::Duration;

use drover_store::{PooledConnection, Store, StoreConfig};
use drover_testkit::{TestDb, eventually, test_db};
use futures::FutureExt;
use secrecy::ExposeSecret;
use sqlx::{Connection, PgConnection};

use crate::store::{config, one, sets};

/// A store with one connection.
async fn single(db: &TestDb) -> Store {
    let config = StoreConfig { max_connections: 1, acquire_timeout: Duration::from_secs(60), ..config("placement", &db.url) };
    Store::connect(&config, &sets()).await.unwrap()
}

/// How many other sessions are in the database, of those of which this holds.
async fn count(db: &TestDb, which: &str) -> i64 {
    // The role of a service does not see what sessions do.
    let mut admin = PgConnection::connect(db.url.expose_secret()).await.unwrap();
    let sql = format!("select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and {which}");
    let found = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut admin).await.unwrap();
    admin.close().await.unwrap();
    found
}

const BACKEND: &str = "select pg_backend_pid()";

async fn acquired(store: &Store, count: usize) -> Vec<PooledConnection> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(store.acquire().await.unwrap());
    }
    all
}

/// The server's processes of these connections, in order.
async fn backends(connections: &mut [PooledConnection]) -> Vec<i32> {
    let mut backends = Vec::new();
    for connection in connections {
        backends.push(sqlx::query_scalar(BACKEND).fetch_one(&mut **connection).await.unwrap());
    }
    backends.sort_unstable();
    backends
}

#[tokio::test]
async fn connection_without_anything_unfinished_comes_back_without_a_message() {
    let db = test_db().await;
    let store = single(&db).await;
    let backend: i32 = one(&store, BACKEND).await;
    let mut at_once = 0;
    for _ in 0..20 {
        store.begin().await.unwrap().commit().await.unwrap();
        // A message and its answer would not be ready at the first poll. On a machine that paused the connection is tested, with a message.
        at_once += i32::from(store.acquire().now_or_never().is_some());
        let error = sqlx::query("insert into claim values (10)").execute(&mut *store.acquire().await.unwrap()).await.unwrap_err();
        assert!(error.as_database_error().unwrap().is_check_violation());
        assert_eq!(one::<i32>(&store, BACKEND).await, backend, "it is the same connection");
    }
    assert!(at_once > 5, "the connection was there at once in only {at_once} of 20 rounds");
}

#[tokio::test]
async fn the_same_connections_are_used_again_after_all_were_in_use() {
    let db = test_db().await;
    let store = Store::connect(&StoreConfig { max_connections: 6, ..config("placement", &db.url) }, &sets()).await.unwrap();
    let before: i32 = one(&store, BACKEND).await;
    for first_back in 0..6 {
        let mut all = acquired(&store, 6).await;
        assert!(store.acquire().now_or_never().is_none(), "all are in use");
        all.rotate_left(first_back);
        drop(all);
        // Two are preferred. Which of them is the next one does not matter.
        let backends = backends(&mut acquired(&store, 2).await).await;
        assert!(backends.contains(&before), "{backends:?} instead of {before}, with number {first_back} back first");
    }
}

#[tokio::test]
async fn whoever_waits_gets_the_first_connection_that_comes_back() {
    let db = test_db().await;
    let store = Store::connect(&StoreConfig { max_connections: 4, ..config("placement", &db.url) }, &sets()).await.unwrap();
    for back in 0..4 {
        let mut all = acquired(&store, 4).await;
        let mut waiting = std::pin::pin!(store.acquire());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(all.swap_remove(back));
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("one is free").unwrap();
    }
}

/// A caller that is not polled, because its task waits for something else meanwhile, keeps a place. It must not keep more than one.
#[tokio::test]
async fn caller_that_does_not_take_its_connection_keeps_one_from_the_others() {
    let db = test_db().await;
    let store = Store::connect(&StoreConfig { max_connections: 4, ..config("placement", &db.url) }, &sets()).await.unwrap();
    let all = acquired(&store, 4).await;
    let mut idle = std::pin::pin!(store.acquire());
    assert!(idle.as_mut().now_or_never().is_none());
    drop(all);
    let others = acquired(&store, 3).await;
    drop(others);
    idle.await.unwrap();
}

#[tokio::test]
async fn connections_that_are_waited_for_stay_open() {
    let db = test_db().await;
    let store = Store::connect(&StoreConfig { max_connections: 4, ..config("placement", &db.url) }, &sets()).await.unwrap();
    let mut all = acquired(&store, 4).await;
    let before = backends(&mut all).await;
    let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(store.acquire())).collect();
    assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
    drop(all);
    // Longer than the pool's TEST_AFTER_IDLE: a connection that was idle for so long is tested before it is used.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let mut all = Vec::new();
    for waiting in waiting {
        all.push(waiting.await.unwrap());
    }
    assert_eq!(backends(&mut all).await, before);
}

#[tokio::test]
async fn statement_whose_user_is_gone_ends_before_the_next_one_begins() {
    let db = test_db().await;
    let store = single(&db).await;
    for polls in 1..20 {
        let mut connection = store.acquire().await.unwrap();
        let sleep = sqlx::query_scalar::<_, String>("select pg_sleep(0.01)::text").fetch_one(&mut *connection);
        finishes_within(polls, sleep).await;
        drop(connection);
        assert_eq!(one::<i64>(&store, "select 42::bigint").await, 42, "after {polls} polls");
    }
}

#[tokio::test]
async fn connection_whose_abandoned_statement_does_not_end_is_replaced() {
    let db = test_db().await;
    let store = single(&db).await;
    let mut connection = store.acquire().await.unwrap();
    let backend: i32 = sqlx::query_scalar(BACKEND).fetch_one(&mut *connection).await.unwrap();
    tokio::select! {
        _ = sqlx::query("select pg_sleep(3600)").execute(&mut *connection) => panic!("an hour is over"),
        () = eventually(Duration::from_secs(60), async || (count(&db, "wait_event = 'PgSleep'").await == 1).then_some(())) => {}
    }
    drop(connection);
    assert_ne!(one::<i32>(&store, BACKEND).await, backend);
}

#[tokio::test]
async fn abandoned_transaction_is_rolled_back() {
    let db = test_db().await;
    let (store, others) = (single(&db).await, single(&db).await);
    let mut tx = store.begin().await.unwrap();
    sqlx::query("insert into document values ('lost')").execute(&mut *tx).await.unwrap();
    drop(tx);
    // It would wait for the other transaction as long as that is open.
    sqlx::query("insert into document values ('lost')").execute(&mut *others.acquire().await.unwrap()).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    sqlx::query("delete from document").execute(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(one::<i64>(&others, "select count(*) from document").await, 1);
}

#[tokio::test]
async fn closed_store_has_no_connections() {
    let db = test_db().await;
    let store = single(&db).await;
    let held = store.begin().await.unwrap();
    let others = async || count(&db, "backend_type = 'client backend'").await;
    eventually(Duration::from_secs(60), async || (others().await == 1).then_some(())).await;
    store.close().await;
    assert!(store.acquire().await.is_err());
    drop(held);
    eventually(Duration::from_secs(60), async || (others().await == 0).then_some(())).await;
}

/// When a client closes its connection, its handler is dropped wherever it is.
#[tokio::test]
async fn dropped_begin_leaves_no_transaction_open_in_the_pool() {
    let db = test_db().await;
    let (store, witness) = (single(&db).await, single(&db).await);
    let (mut round, mut dropped) = (0, 0);
    // On a busy machine the server often answers before the call is dropped: then it takes more than 200 rounds.
    while round < 200 || dropped <= 40 {
        assert!(round < 5000, "only {dropped} were dropped, too few to show anything");
        // It is dropped after a number of polls, not after a time, so that each machine drops it at the same point.
        dropped += i32::from(!finishes_within(1 + round % 2, store.begin()).await);
        sqlx::query("insert into document values ($1)")
            .bind(round.to_string())
            .execute(&mut *store.acquire().await.unwrap())
            .await
            .unwrap();
        let seen: i64 = sqlx::query_scalar("select count(*) from document where name = $1")
            .bind(round.to_string())
            .fetch_one(&mut *witness.acquire().await.unwrap())
            .await
            .unwrap();
        assert_eq!(seen, 1, "round {round}: the insert went into a transaction that is never committed");
        round += 1;
    }
}

/// Whether the future is done after so many polls. It is dropped in either case.
async fn finishes_within(polls: u32, future: impl Future) -> bool {
    let mut future = std::pin::pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
