//! A database for every test, on a temporary server per test process.
//!
//! The server is started on a copy of prepared data, because initdb takes seconds and a copy a tenth of one. The server and its files
//! are removed when the process ends, even by SIGKILL. `DROVER_TEST_DATABASE_URL` (a superuser's) names another server to use.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use drover_store::Store;
use drover_store::private_postgres::{Durability, PrivatePostgres, PrivatePostgresError};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::OnceCell;

/// A seal key for services in tests. It is always the same, because a service that is started again must open what it sealed before.
pub fn seal_key() -> SecretString {
    SecretString::from("RHJvdmVyIHRlc3RzIHNlYWwgd2l0aCB0aGlzIGtleSE=")
}

static SERVER: OnceCell<Server> = OnceCell::const_new();

enum Server {
    Ours(PrivatePostgres),
    Given(SecretString),
}

impl Server {
    fn url(&self, database: &str) -> SecretString {
        match self {
            Self::Ours(server) => server.url(database),
            Self::Given(url) => {
                let options = PgConnectOptions::from_str(url.expose_secret()).expect("DROVER_TEST_DATABASE_URL must be a Postgres URL");
                SecretString::from(sqlx::ConnectOptions::to_url_lossy(&options.database(database)).to_string())
            }
        }
    }
}

/// A database that is dropped with this value.
#[derive(Debug)]
pub struct TestDb {
    /// The URL of a superuser, which services get as their database URL.
    pub url: SecretString,
    name: String,
    server: SecretString,
}

/// Creates an empty database.
pub async fn test_db() -> TestDb {
    create("template1").await
}

/// Creates a copy of the database that `prepare` fills once per process. It is for tests that need many databases, where migrating each of them
/// would be most of the work. `prepare` gets a URL and must leave no connection open.
pub async fn prepared_db<F: Future<Output = ()> + Send>(what: &'static str, prepare: impl FnOnce(SecretString) -> F) -> TestDb {
    type Prepared = HashMap<&'static str, Arc<OnceCell<TestDb>>>;
    static PREPARED: LazyLock<Mutex<Prepared>> = LazyLock::new(Mutex::default);
    let cell = PREPARED.lock().expect("no test panics in here").entry(what).or_default().clone();
    let original = cell.get_or_init(|| async {
        let db = test_db().await;
        prepare(db.url.clone()).await;
        db
    });
    create(&original.await.name).await
}

async fn create(template: &str) -> TestDb {
    let server = SERVER.get_or_init(start).await;
    let name = format!("t_{}", uuid::Uuid::now_v7().simple());
    let admin = server.url("postgres");
    let mut connection = PgConnection::connect(admin.expose_secret()).await.expect("the test server answers");
    // Copied as files, a database takes a quarter less time than through the log.
    sqlx::query(AssertSqlSafe(format!("create database {name} template {template} strategy file_copy")))
        .execute(&mut connection)
        .await
        .expect("a database can be created");
    connection.close().await.expect("the test server answers");
    TestDb { url: server.url(&name), name, server: admin }
}

impl TestDb {
    /// The URL with another host and port, for a [`crate::ChaosProxy`] between a service and its database.
    pub fn url_through(&self, address: std::net::SocketAddr) -> SecretString {
        let options = PgConnectOptions::from_str(self.url.expose_secret()).expect("it was made here");
        let options = options.host(&address.ip().to_string()).port(address.port());
        SecretString::from(sqlx::ConnectOptions::to_url_lossy(&options).to_string())
    }

    /// The address of the database's server.
    pub fn address(&self) -> std::net::SocketAddr {
        let options = PgConnectOptions::from_str(self.url.expose_secret()).expect("it was made here");
        std::net::ToSocketAddrs::to_socket_addrs(&(options.get_host(), options.get_port()))
            .ok()
            .and_then(|mut found| found.next())
            .expect("the host resolves")
    }
}

/// Removes the rows of all tables of a store, except what its migrations recorded about themselves, in one statement. For tests that use a
/// database again. Rows that migrations insert are removed too; sequences go on.
///
/// The statement waits for transactions that have touched the tables, so what it leaves empty stays so if nothing uses the store any more.
pub async fn truncate(store: &Store) {
    const TRUNCATE: &str = "do $$ begin execute (select 'truncate ' || string_agg(quote_ident(tablename), ', ')
        from pg_tables where schemaname = current_schema() and not starts_with(tablename, '_migrations_')); end $$";
    sqlx::query(TRUNCATE)
        .execute(&mut *store.acquire().await.expect("the test server answers"))
        .await
        .expect("the tables can be truncated");
}

impl Drop for TestDb {
    fn drop(&mut self) {
        // Drop is not async and the runtime of the test may be gone, so a thread with a runtime of its own drops the database. It is
        // not joined: a connection that is just logging in delays the drop, and could not continue if its runtime were blocked here.
        let (server, name) = (self.server.clone(), self.name.clone());
        std::thread::spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            runtime.block_on(async {
                if let Ok(mut connection) = PgConnection::connect(server.expose_secret()).await {
                    let _ = sqlx::query(AssertSqlSafe(format!("drop database {name} with (force)"))).execute(&mut connection).await;
                }
            });
        });
    }
}

async fn start() -> Server {
    if let Ok(url) = std::env::var("DROVER_TEST_DATABASE_URL") {
        return Server::Given(SecretString::from(url));
    }
    let directory = prepared_copy_below(&place()).await;
    Server::Ours(PrivatePostgres::start(&directory, Durability::ThrowAway).await.expect("a private Postgres starts"))
}

/// Where servers of tests keep their files: in memory where there is much of it. A database has a thousand files, and on a disk making and
/// removing them is most of what a short test costs.
pub(crate) fn place() -> PathBuf {
    const NEEDED: u64 = 6 << 30;
    let shared = Path::new("/dev/shm");
    let in_memory = statfs(shared).is_ok_and(|found| {
        found.filesystem_type() == TMPFS_MAGIC && found.blocks_available().saturating_mul(found.block_size().cast_unsigned()) >= NEEDED
    });
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    match in_memory && available.is_some_and(|kilobytes| kilobytes >= NEEDED >> 10) {
        true => shared.to_owned(),
        false => std::env::temp_dir(),
    }
}

/// A directory below `place` in which a server can be started at once.
pub(crate) async fn prepared_copy_below(place: &Path) -> PathBuf {
    let directory = place.join(format!("drover-test-postgres-{}", uuid::Uuid::now_v7().simple()));
    prepared_cluster(&directory).await;
    directory
}

/// Puts the files of a new server into this directory: [`PrivatePostgres::start`] then finds them there and needs no initdb.
pub async fn prepared_cluster(directory: &Path) {
    // Not below the target directory: when the tests run as root, the server runs as another user, who must be able to reach its files.
    let prepared = std::env::temp_dir().join(format!("drover-test-cluster-{}", nix::unistd::Uid::effective()));
    prepare(&prepared).await;
    copy(&prepared, directory);
}

/// Prepares the data. When several test processes start at the same time, one of them does it and the others wait.
async fn prepare(prepared: &Path) {
    // Not `eventually`, whose future is not `Send`: fixtures need this one to be.
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        match PrivatePostgres::prepare(prepared, Durability::ThrowAway).await {
            Ok(()) => return,
            Err(PrivatePostgresError::InUse(_)) if Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            // Data of another Postgres version is prepared again.
            Err(PrivatePostgresError::OtherVersion { .. }) => {
                std::fs::remove_dir_all(prepared).expect("the temporary directory is ours");
            }
            Err(error) => panic!("no private Postgres for tests: {error}"),
        }
    }
}

/// Copies by `cp`, which keeps the owner and can share blocks.
fn copy(prepared: &Path, directory: &Path) {
    std::fs::create_dir_all(directory).expect("the temporary directory is writable");
    let sources: Vec<PathBuf> = ["data", "password"].iter().map(|name| prepared.join(name)).collect();
    let status = Command::new("cp").args(["-a", "--reflink=auto"]).args(sources).arg(directory).status().expect("cp exists");
    assert!(status.success(), "the prepared cluster can be copied");
}
