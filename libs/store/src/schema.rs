//! A service's own corner of the database: its schema, its role, its migrations, its pool.
//!
//! Every connection is opened with `search_path` and `role` set, so that a service cannot see or touch another's tables even
//! by mistake. Where the connecting user may not create roles, the schema is used without one and a log line says so.
//! Several processes may start at once: one advisory lock covers creation and migration.

use std::borrow::Cow;
use std::str::FromStr;
use std::time::{Duration, Instant};

use secrecy::{ExposeSecret, SecretString};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

use crate::{StoreError, StoreResult, Timestamp, Tx};

/// Held while a schema is created and migrated; any constant does, as long as nobody else in the database uses it.
const BOOTSTRAP_LOCK: i64 = 0x0064_726f_7665_7200;

/// A connection that did nothing for so long is tried before it is used: the server may have been restarted meanwhile.
const RESTED: Duration = Duration::from_millis(100);

/// And given up if it says nothing for so long.
const SILENT: Duration = Duration::from_secs(5);

/// How to reach the database and which corner of it is meant.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// `postgres://user:password@host:port/database`.
    pub url: SecretString,
    /// The service's name as in migrations/ and in its crate: `placement`, `cluster-manager`.
    pub service: &'static str,
    /// Too low: requests queue for connections. Too high: Postgres (100 by default for everybody) refuses other services.
    pub max_connections: u32,
    /// How long a request waits for a connection before it answers that the store is unavailable.
    pub acquire_timeout: Duration,
    /// How long a transaction may do nothing before the server ends it. A process that was stopped in mid-transaction keeps its
    /// rows locked for that long; too low, and a transaction on a busy machine is cut.
    pub idle_transaction_timeout: Duration,
    /// How long start-up waits for a server that does not answer yet (a container that starts beside this one).
    pub startup_timeout: Duration,
}

impl StoreConfig {
    /// The configuration with the defaults that fit one replica.
    pub fn new(service: &'static str, url: SecretString) -> Self {
        Self {
            url,
            service,
            max_connections: 10,
            acquire_timeout: Duration::from_secs(5),
            idle_transaction_timeout: Duration::from_secs(15),
            startup_timeout: Duration::from_secs(30),
        }
    }

    /// The schema's and the role's name, e.g. `drover_cluster_manager`.
    pub fn schema(&self) -> String {
        format!("drover_{}", self.service.replace('-', "_"))
    }
}

/// Migrations that are versioned together. Several sets live in one schema: each remembers what it applied in a table of its
/// own (`_migrations_<name>`), so that their version numbers never clash.
#[derive(Debug)]
pub struct MigrationSet {
    migrator: Migrator,
}

impl MigrationSet {
    /// `MigrationSet::new("placement", sqlx::migrate!("../../migrations/placement"))`
    pub fn new(name: &str, migrator: Migrator) -> Self {
        let table_name = Cow::Owned(format!("_migrations_{}", name.replace('-', "_")));
        // The bootstrap lock already keeps others out, and sqlx's own would be taken once per set.
        Self { migrator: Migrator { table_name, locking: false, ..migrator } }
    }
}

/// The pool of one service, in its schema.
#[derive(Clone, Debug)]
pub struct Store {
    pool: PgPool,
    schema: String,
}

impl Store {
    /// Waits for the server, creates what is missing, applies the sets in order, and opens the pool.
    pub async fn connect(config: &StoreConfig, migrations: &[MigrationSet]) -> StoreResult<Self> {
        let schema = config.schema();
        let url = config.url.expose_secret();
        // sqlx parses any scheme.
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(StoreError::Url);
        }
        let options = PgConnectOptions::from_str(url)
            .map_err(|_| StoreError::Url)?
            .application_name(&format!("drover-{}", config.service))
            .options([("idle_in_transaction_session_timeout", format!("{}ms", config.idle_transaction_timeout.as_millis()))]);

        let mut connection = first_connection(&options, config.startup_timeout).await?;
        sqlx::query("select pg_advisory_lock($1)").bind(BOOTSTRAP_LOCK).execute(&mut connection).await?;
        let owner = create_schema(&mut connection, &schema).await.map_err(|error| in_schema(&schema, error))?;
        let options = options.options([("search_path", schema.as_str())]);
        let options = match owner {
            Some(role) => options.options([("role", role)]),
            None => options,
        };
        if !migrations.is_empty() {
            let mut inside = PgConnection::connect_with(&options).await?;
            for set in migrations {
                set.migrator.run_direct(None, &mut inside, false).await.map_err(|error| in_schema(&schema, error))?;
            }
            inside.close().await?;
        }
        // Ends the session and with it the lock.
        connection.close().await?;

        let pool = PgPoolOptions::new()
            .max_connections(config.max_connections)
            .acquire_timeout(config.acquire_timeout)
            .test_before_acquire(false)
            .before_acquire(|connection, meta| Box::pin(async move { Ok(works_after(meta.idle_for, connection).await) }))
            .connect_with(options)
            .await?;
        Ok(Self { pool, schema })
    }

    /// The pool; unqualified names mean the service's schema.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The schema's name.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// A connection beside the pool, in the same schema, with settings of its own.
    pub async fn connection<const N: usize>(&self, settings: [(&str, &str); N]) -> StoreResult<PgConnection> {
        let options = (*self.pool.connect_options()).clone().options(settings);
        let connected = tokio::time::timeout(self.pool.options().get_acquire_timeout(), PgConnection::connect_with(&options));
        Ok(connected.await.unwrap_or(Err(sqlx::Error::PoolTimedOut))?)
    }

    /// Starts a transaction.
    pub async fn begin(&self) -> StoreResult<Tx> {
        begin(&self.pool).await
    }

    /// The database's clock: the one that leases and deadlines of several processes are measured by.
    pub async fn now(&self) -> StoreResult<Timestamp> {
        Ok(sqlx::query_scalar("select now()").fetch_one(&self.pool).await?)
    }

    /// For `/readyz`: does the server answer?
    pub async fn check(&self) -> StoreResult<()> {
        sqlx::query("select 1").execute(&self.pool).await?;
        Ok(())
    }

    /// Waits until every connection has been returned and closed.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// A server that refuses connections may only be starting; one that refuses the password will not change its mind.
async fn first_connection(options: &PgConnectOptions, patience: Duration) -> StoreResult<PgConnection> {
    let give_up = Instant::now() + patience;
    let mut told = false;
    loop {
        match PgConnection::connect_with(options).await.map_err(StoreError::from) {
            Err(StoreError::Unavailable(error)) if Instant::now() < give_up => {
                if !told {
                    tracing::info!(%error, "the database does not answer yet, waiting for it");
                    told = true;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            outcome => return outcome,
        }
    }
}

/// Makes schema and role where allowed. Returns the role to use, which is the schema's owner or nobody.
async fn create_schema(connection: &mut PgConnection, schema: &str) -> Result<Option<String>, sqlx::Error> {
    let role_exists = "select exists (select from pg_roles where rolname = $1)";
    let mut have_role: bool = sqlx::query_scalar(role_exists).bind(schema).fetch_one(&mut *connection).await?;
    if !have_role {
        // Roles belong to the whole server, the lock only to this database: losing a race against another database is fine.
        if let Err(error) = execute(connection, format!("create role {schema} nologin")).await {
            tracing::debug!(%error, role = schema, "the role was not created");
        }
        have_role = sqlx::query_scalar(role_exists).bind(schema).fetch_one(&mut *connection).await?;
    }
    let mut usable = have_role && may_become(connection, schema).await;
    if have_role && !usable {
        // Since Postgres 16 even the creator of a role must first give himself the right to become it.
        let _ = execute(connection, format!("grant {schema} to current_user")).await;
        usable = may_become(connection, schema).await;
    }

    let owner_of = "select pg_get_userbyid(nspowner)::text from pg_namespace where nspname = $1";
    let mut owner: Option<String> = sqlx::query_scalar(owner_of).bind(schema).fetch_optional(&mut *connection).await?;
    if owner.is_none() {
        // Looked up first, because `if not exists` asks for the right to create even when there is nothing to create.
        let clause = if usable { format!("create schema {schema} authorization {schema}") } else { format!("create schema {schema}") };
        execute(connection, clause).await?;
        owner = sqlx::query_scalar(owner_of).bind(schema).fetch_optional(&mut *connection).await?;
    }
    // A schema that an earlier, less privileged start made belongs to the connecting user, and so do its tables.
    if usable && owner.as_deref() == Some(schema) {
        return Ok(Some(schema.to_owned()));
    }
    tracing::warn!(schema, "the connecting user may not use a role of its own for this schema; continuing without one");
    Ok(None)
}

/// Starts a transaction; the way to do it everywhere.
///
/// sqlx 0.9.0 (issue 4393) gives a connection back to the pool inside a transaction when the future of `begin` is dropped at
/// the wrong moment, as a handler is whose client hangs up. Whoever gets it next would write into a transaction that nobody
/// commits. So it is never dropped: it is begun to its end in a task of its own, and a transaction that nobody waits for any
/// more is rolled back. Remove the task with the fixed sqlx.
pub async fn begin(pool: &PgPool) -> StoreResult<Tx> {
    let pool = pool.clone();
    let begun = tokio::spawn(async move { pool.begin().await });
    // The task is ended only with the whole process.
    Ok(begun.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))?)
}

/// Whether a connection still works, asked only where there is reason to: every statement would pay for it.
pub async fn works_after(rest: Duration, connection: &mut PgConnection) -> bool {
    rest < RESTED || matches!(tokio::time::timeout(SILENT, connection.ping()).await, Ok(Ok(())))
}

async fn may_become(connection: &mut PgConnection, role: &str) -> bool {
    let able = execute(connection, format!("set role {role}")).await.is_ok();
    able && execute(connection, "reset role".to_owned()).await.is_ok()
}

/// `statement` is built from schema names only, which come from service names in the source.
async fn execute(connection: &mut PgConnection, statement: String) -> Result<(), sqlx::Error> {
    sqlx::query(AssertSqlSafe(statement)).execute(connection).await.map(drop)
}

fn in_schema(schema: &str, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Schema { schema: schema.to_owned(), source: Box::new(error) }
}
