//! Schemas, roles, migrations, errors, and broken connections.

use std::time::Duration;

use drover_store::{MigrationSet, Place, ResultExt, SealKey, Sealed, Store, StoreConfig, StoreError, Timestamp, now, retry_contended};
use drover_testkit::{ChaosProxy, eventually, test_db};
use secrecy::{ExposeSecret, SecretString};
use sqlx::Connection;
use sqlx::migrate::{Migration, MigrationType, Migrator};

fn set(name: &str, sql: &'static str) -> MigrationSet {
    let migration = Migration::new(1, name.to_owned().into(), MigrationType::Simple, sqlx::SqlSafeStr::into_sql_str(sql), false);
    MigrationSet::new(name, Migrator::with_migrations(vec![migration]))
}

pub fn sets() -> [MigrationSet; 2] {
    [
        set("resources", "create table document (name text primary key)"),
        set("placement", "create table claim (id int constraint claim_is_small check (id < 10), document text references document)"),
    ]
}

pub fn config(service: &'static str, url: &SecretString) -> StoreConfig {
    StoreConfig { acquire_timeout: Duration::from_secs(30), ..StoreConfig::new(service, url.clone()) }
}

pub async fn one<T>(store: &Store, sql: &'static str) -> T
where
    T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    sqlx::query_scalar(sql).fetch_one(&mut *store.acquire().await.unwrap()).await.unwrap()
}

#[tokio::test]
async fn migration_sets_with_equal_versions_run_once_in_one_schema() {
    let db = test_db().await;
    // Several processes at once: all succeed, the migrations run once.
    let racers = (0..6).map(|_| {
        let config = config("placement", &db.url);
        tokio::spawn(async move { Store::connect(&config, &sets()).await.unwrap() })
    });
    for racer in racers.collect::<Vec<_>>() {
        racer.await.unwrap();
    }
    let store = Store::connect(&config("placement", &db.url), &sets()).await.unwrap();
    assert_eq!(one::<String>(&store, "select current_schema()::text").await, "drover_placement");
    assert_eq!(one::<String>(&store, "select current_user::text").await, "drover_placement");
    assert_eq!(one::<i64>(&store, "select count(*) from pg_tables where schemaname = 'drover_placement'").await, 4);
}

#[tokio::test]
async fn service_cannot_read_tables_of_another() {
    let db = test_db().await;
    let placement = Store::connect(&config("placement", &db.url), &sets()).await.unwrap();
    let gateway = Store::connect(&config("gateway", &db.url), &[]).await.unwrap();
    sqlx::query("insert into document values ('mine')").execute(&mut *placement.acquire().await.unwrap()).await.unwrap();
    assert!(sqlx::query("select * from document").execute(&mut *gateway.acquire().await.unwrap()).await.is_err());
    let error = sqlx::query("select * from drover_placement.document").execute(&mut *gateway.acquire().await.unwrap()).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().unwrap(), "42501");
}

#[tokio::test]
async fn user_who_may_not_create_roles_works_without_one() {
    let db = test_db().await;
    let admin = Store::connect(&config("admin", &db.url), &[]).await.unwrap();
    let mut owner = sqlx::postgres::PgConnection::connect(db.url.expose_secret()).await.unwrap();
    let name = format!("plain_{}", uuid::Uuid::now_v7().simple());
    for statement in [
        format!("create role {name} login password 'x'"),
        format!("grant create on database {} to {name}", one::<String>(&admin, "select current_database()::text").await),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut owner).await.unwrap();
    }
    let address = db.address();
    let database = one::<String>(&admin, "select current_database()::text").await;
    let url = SecretString::from(format!("postgres://{name}:x@{address}/{database}"));
    for _ in 0..2 {
        let store = Store::connect(&config("roleless", &url), &sets()).await.unwrap();
        assert_eq!(one::<String>(&store, "select current_user::text").await, name);
        assert_eq!(one::<String>(&store, "select current_schema()::text").await, "drover_roleless");
    }
    owner.close().await.unwrap();
}

#[derive(Debug, PartialEq)]
enum Refused {
    Taken,
    TooBig,
    Other(String),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Other(error.to_string())
    }
}

#[tokio::test]
async fn constraint_violations_become_domain_errors() {
    let db = test_db().await;
    let store = Store::connect(&config("placement", &db.url), &sets()).await.unwrap();
    let add = async || {
        sqlx::query("insert into document values ('a')")
            .execute(&mut *store.acquire().await.unwrap())
            .await
            .on_constraint("document_pkey", || Refused::Taken)
            .map(drop)
    };
    assert_eq!(add().await, Ok(()));
    assert_eq!(add().await, Err(Refused::Taken));
    let claim = async |statement: &'static str| {
        let refused = |name: &str| (name == "claim_is_small").then_some(Refused::TooBig);
        sqlx::query(statement).execute(&mut *store.acquire().await.unwrap()).await.map_constraint(refused).map(drop)
    };
    assert_eq!(claim("insert into claim values (11)").await, Err(Refused::TooBig));
    assert_eq!(
        claim("insert into claim values (1, 'nobody')").await,
        Err(Refused::Other("constraint claim_document_fkey is violated".into()))
    );
}

#[tokio::test]
async fn conflict_is_told_from_a_lost_connection() {
    let db = test_db().await;
    let store = Store::connect(&config("placement", &db.url), &sets()).await.unwrap();
    sqlx::query("insert into document values ('0')").execute(&mut *store.acquire().await.unwrap()).await.unwrap();
    // Serializable read-modify-writes of one row at the same time: conflicts are repeated, and each of them counts.
    let increment = || {
        let store = store.clone();
        async move {
            retry_contended(50, StoreError::is_contended, || async {
                let mut tx = store.begin().await?;
                sqlx::query("set transaction isolation level serializable").execute(&mut *tx).await?;
                let value: String = sqlx::query_scalar("select name from document").fetch_one(&mut *tx).await?;
                tokio::task::yield_now().await;
                sqlx::query("update document set name = $1")
                    .bind((value.parse::<i32>().unwrap() + 1).to_string())
                    .execute(&mut *tx)
                    .await?;
                Ok(tx.commit().await?)
            })
            .await
        }
    };
    let all = (0..8).map(|_| tokio::spawn(increment())).collect::<Vec<_>>();
    for one in all {
        one.await.unwrap().unwrap();
    }
    assert_eq!(one::<String>(&store, "select name from document").await, "8");

    let proxy = ChaosProxy::start(db.address()).await;
    // So that it gives up soon while the connection is cut. A slow machine may need another attempt before.
    let impatient = StoreConfig { acquire_timeout: Duration::from_millis(500), ..config("placement", &db.url_through(proxy.address())) };
    let distant = eventually(Duration::from_secs(60), async || Store::connect(&impatient, &sets()).await.ok()).await;
    let mut tx = eventually(Duration::from_secs(60), async || distant.begin().await.ok()).await;
    proxy.cut();
    let error = StoreError::from(sqlx::query("select 1").execute(&mut *tx).await.unwrap_err());
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    drop(tx);
    assert!(matches!(distant.check().await.unwrap_err(), StoreError::Unavailable(_)));
    proxy.restore();
    eventually(Duration::from_secs(60), async || distant.check().await.ok()).await;

    // An administrator ends the session; the next statement fails.
    let mut tx = store.begin().await.unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut *tx).await.unwrap();
    let mut admin = sqlx::PgConnection::connect(db.url.expose_secret()).await.unwrap();
    sqlx::query("select pg_terminate_backend($1)").bind(pid).execute(&mut admin).await.unwrap();
    let error = StoreError::from(sqlx::query("select 1").execute(&mut *tx).await.unwrap_err());
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn connect_waits_for_a_server_that_starts_later() {
    let db = test_db().await;
    let proxy = ChaosProxy::start(db.address()).await;
    proxy.cut();
    let impatient = StoreConfig { startup_timeout: Duration::ZERO, ..config("late", &db.url_through(proxy.address())) };
    assert!(matches!(Store::connect(&impatient, &[]).await.unwrap_err(), StoreError::Unavailable(_)));
    let patient = StoreConfig { startup_timeout: Duration::from_secs(120), ..impatient };
    let refused = proxy.refused();
    let waiting = tokio::spawn(async move { Store::connect(&patient, &[]).await.map(drop) });
    eventually(Duration::from_secs(60), async || (proxy.refused() > refused).then_some(())).await;
    proxy.restore();
    waiting.await.unwrap().unwrap();
    assert!(matches!(Store::connect(&config("x", &"mysql://a:secret@b/c".into()), &[]).await.unwrap_err(), StoreError::Url));
}

#[tokio::test]
async fn timestamps_read_back_as_they_were_written() {
    let db = test_db().await;
    let store = Store::connect(&config("clock", &db.url), &[]).await.unwrap();
    let written = now();
    let (read, text, many): (Timestamp, String, Vec<Timestamp>) =
        sqlx::query_as("select $1, to_char($1 at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), $2")
            .bind(written)
            .bind(vec![written, written])
            .fetch_one(&mut *store.acquire().await.unwrap())
            .await
            .unwrap();
    assert_eq!((read, text.parse::<jiff::Timestamp>().unwrap(), many), (written, *written, vec![written, written]));
    use sqlx::{Executor, Row};
    let raw = store.acquire().await.unwrap().fetch_one("select timestamptz '1999-01-02 03:04:05.678901+00' as t").await.unwrap();
    assert_eq!(raw.get::<Timestamp, _>("t").to_string(), "1999-01-02T03:04:05.678901Z");
    let (before, by_database, after) = (now(), store.now().await.unwrap(), now());
    assert!(before <= by_database && by_database <= after, "the server's clock is this machine's: {before} {by_database} {after}");
}

#[tokio::test]
async fn sealed_column_is_decrypted_only_in_its_place_with_its_key() {
    let db = test_db().await;
    let store = Store::connect(&config("vault", &db.url), &[]).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys/seal");
    let key = SealKey::from_file_or_create(&path).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions()) & 0o777, 0o600);

    let place = Place { table: "member", column: "kubeconfig", row: "7" };
    let sealed: Sealed = sqlx::query_scalar("select $1")
        .bind(key.seal(place, b"apiVersion: v1"))
        .fetch_one(&mut *store.acquire().await.unwrap())
        .await
        .unwrap();
    assert!(!format!("{sealed:?}{key:?}").contains("apiVersion"));
    // The same file, read again, is the same key.
    let again = SealKey::from_file_or_create(&path).unwrap();
    assert_eq!(again.open_text(place, &sealed).unwrap().expose_secret(), "apiVersion: v1");
    for elsewhere in [Place { row: "8", ..place }, Place { column: "token", ..place }, Place { table: "members", ..place }] {
        assert!(again.open(elsewhere, &sealed).is_err());
    }
    assert!(SealKey::generate().open(place, &sealed).unwrap_err().to_string().contains(&sealed.key_id()));

    // Rotation adds a new first line: old values can be decrypted and are known to be stale.
    let old = std::fs::read_to_string(&path).unwrap();
    let fresh = directory.path().join("fresh");
    SealKey::from_file_or_create(&fresh).unwrap();
    let rotated = SealKey::parse(&SecretString::from(format!("{}{old}", std::fs::read_to_string(&fresh).unwrap()))).unwrap();
    assert!(rotated.is_stale(&sealed) && rotated.open(place, &sealed).is_ok());
    assert!(!rotated.is_stale(&rotated.seal(place, b"x")));
    assert!(SealKey::parse(&SecretString::from("c2hvcnQ=")).is_err());
}

/// A process that is stopped in the middle of a transaction (SIGSTOP, a frozen virtual machine) sends nothing more to the server.
#[tokio::test]
async fn idle_transaction_loses_its_locks() {
    let db = test_db().await;
    let others = Store::connect(&config("placement", &db.url), &sets()).await.unwrap();
    let impatient = StoreConfig { idle_transaction_timeout: Duration::from_millis(300), ..config("placement", &db.url) };
    let store = Store::connect(&impatient, &sets()).await.unwrap();
    sqlx::query("insert into document values ('wanted')").execute(&mut *others.acquire().await.unwrap()).await.unwrap();

    // A machine that pauses may make it idle before the update, too; then it has no lock to lose.
    let silent = eventually(Duration::from_secs(60), async || {
        let mut tx = store.begin().await.ok()?;
        sqlx::query("update document set name = 'lost' where name = 'wanted'").execute(&mut *tx).await.ok()?;
        Some(tx)
    })
    .await;
    let mut other = others.acquire().await.unwrap();
    let change = sqlx::query("update document set name = 'changed' where name = 'wanted'").execute(&mut *other);
    let changed = tokio::time::timeout(Duration::from_secs(60), change).await.expect("the lock is released").unwrap();
    assert_eq!(changed.rows_affected(), 1);
    assert!(silent.commit().await.is_err(), "its commit comes too late");
    assert_eq!(one::<String>(&others, "select name from document").await, "changed");
}
