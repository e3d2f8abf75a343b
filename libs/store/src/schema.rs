//! The schema of a service: creates it with its role, applies its migrations, and opens its connection pool.
//!
//! Every connection has `search_path` and `role` set, so that a service can neither read nor write another service's tables, not even by
//! mistake. Where the connecting user may not create roles, the schema is used without one, which is logged. Several processes may
//! start at the same time: an advisory lock is held during creation and migration.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::pool::{Pool, connect, open};
use crate::{PooledConnection, SealError, SealKey, StoreError, StoreResult, Timestamp, Tx};

/// The advisory lock that is held while a schema is created and migrated. Any number does that nothing else in the database uses.
const BOOTSTRAP_LOCK: i64 = 0x0064_726f_7665_7200;

/// How to reach the database, and for which service.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// `postgres://user:password@host:port/database`.
    pub url: SecretString,
    /// The name of the service as in migrations/ and in its crate: `placement`, `cluster-manager`.
    pub service: &'static str,
    /// The size of the pool. Too low: requests wait for connections. Too high: Postgres (100 connections for all services by default)
    /// refuses other services. A workflow engine has one more connection of its own, and a store that is [`Store::planned_once`] up to two.
    pub max_connections: u32,
    /// How long a statement waits for a free connection before it fails as unavailable.
    pub acquire_timeout: Duration,
    /// How long a transaction may be idle before the server ends it. A process that is stopped in the middle of a transaction keeps its
    /// rows locked for that long. Too low: transactions on a busy machine are ended.
    pub idle_transaction_timeout: Duration,
    /// How long start-up waits for a server that does not answer yet, for example in a container that starts at the same time.
    pub startup_timeout: Duration,
}

impl StoreConfig {
    /// The default configuration for one process of a service.
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

    /// The name of both the schema and the role, for example `drover_cluster_manager`.
    pub fn schema(&self) -> String {
        format!("drover_{}", self.service.replace('-', "_"))
    }
}

/// Migrations with one sequence of versions. A schema can have several sets: each records what was applied in a table of its own
/// (`_migrations_<name>`), so that equal version numbers do not collide.
#[derive(Debug)]
pub struct MigrationSet {
    migrator: Migrator,
}

impl MigrationSet {
    /// A set with this name: `MigrationSet::new("placement", sqlx::migrate!("../../migrations/placement"))`.
    pub fn new(name: &str, migrator: Migrator) -> Self {
        let table_name = Cow::Owned(format!("_migrations_{}", name.replace('-', "_")));
        // The bootstrap lock already excludes other processes; sqlx would take its own lock once per set.
        Self { migrator: Migrator { table_name, locking: false, ..migrator } }
    }
}

/// The database of a service: its schema, and the connections to it. Unqualified names are resolved in the schema.
#[derive(Clone, Debug)]
pub struct Store {
    pool: Pool,
    schema: String,
    key: Option<Arc<SealKey>>,
}

impl Store {
    /// Waits for the server, creates schema and role if they are missing, applies the migration sets in order, and opens the pool.
    ///
    /// # Errors
    /// The URL is not a Postgres URL, the server does not answer within [`StoreConfig::startup_timeout`] or refuses the login, or the schema
    /// cannot be created or migrated.
    pub async fn connect(config: &StoreConfig, migrations: &[MigrationSet]) -> StoreResult<Self> {
        let schema = config.schema();
        let url = config.url.expose_secret();
        // sqlx does not check the scheme.
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(StoreError::Url);
        }
        let options = PgConnectOptions::from_str(url)
            .map_err(|_| StoreError::Url)?
            .application_name(&format!("drover-{}", config.service))
            .options([("idle_in_transaction_session_timeout", format!("{}ms", config.idle_transaction_timeout.as_millis()))]);

        let mut connection = connect(&options, config.startup_timeout).await?;
        sqlx::query("select pg_advisory_lock($1)").bind(BOOTSTRAP_LOCK).execute(&mut connection).await?;
        let owner = create_schema(&mut connection, &schema).await.map_err(|error| in_schema(&schema, error))?;
        if !migrations.is_empty() {
            execute(&mut connection, format!("set search_path to {schema}")).await?;
            if let Some(role) = &owner {
                execute(&mut connection, format!("set role {role}")).await?;
            }
            for set in migrations {
                set.migrator.run_direct(None, &mut connection, false).await.map_err(|error| in_schema(&schema, error))?;
            }
        }
        // Ends the session and with it the lock.
        connection.close().await?;

        let options = options.options([("search_path", schema.as_str())]);
        let options = match owner {
            Some(role) => options.options([("role", role)]),
            None => options,
        };
        let pool = Pool::new(options, config.max_connections, config.acquire_timeout);
        // Whether the role may be used is known now and not at the first request.
        pool.acquire().await?;
        Ok(Self { pool, schema, key: None })
    }

    /// The store of a service that has sealed columns.
    #[must_use]
    pub fn with_key(self, key: Arc<SealKey>) -> Self {
        Self { key: Some(key), ..self }
    }

    /// The key of sealed columns.
    ///
    /// # Errors
    /// The service was started without one.
    pub fn key(&self) -> StoreResult<&SealKey> {
        Ok(self.key.as_deref().ok_or(SealError::NoKey)?)
    }

    /// The name of the schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The same database by connections of its own, for statements that each find their rows by keys and of which one runs at a time.
    /// Postgres plans each of them once. Otherwise it plans a statement with lists as parameters for each execution, which can take longer
    /// than to carry it out. The connections are closed with the last clone of the returned store. Must be called in a runtime.
    #[must_use]
    pub fn planned_once(&self) -> Self {
        let (options, limit) = self.pool.options();
        // A plan that was made when a table was small must not read the table when it is large.
        let options = options.clone().options([("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off")]);
        // A second one, because a statement that was given up can occupy the first for a while.
        Self { pool: Pool::new(options, 2, limit), ..self.clone() }
    }

    /// Opens a connection that is not part of the pool, in the same schema, with server settings of its own.
    ///
    /// # Errors
    /// The server cannot be reached within [`StoreConfig::acquire_timeout`], or refuses the connection.
    pub async fn connection<const N: usize>(&self, settings: [(&str, &str); N]) -> StoreResult<PgConnection> {
        let (options, limit) = self.pool.options();
        let options = options.clone().options(settings);
        let connected = tokio::time::timeout(limit, open(options));
        Ok(connected.await.unwrap_or(Err(sqlx::Error::PoolTimedOut))?)
    }

    /// A connection for statements that each stand alone: reads, or a single write. A read sees what is committed when it begins, as in a
    /// transaction; the two round trips that begin and end one are saved.
    ///
    /// # Errors
    /// There is no free connection within [`StoreConfig::acquire_timeout`], or the server cannot be reached.
    pub async fn acquire(&self) -> StoreResult<PooledConnection> {
        self.pool.acquire().await
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// There is no free connection within [`StoreConfig::acquire_timeout`], or the server cannot be reached.
    pub async fn begin(&self) -> StoreResult<Tx> {
        self.pool.begin().await
    }

    /// The time of the database's clock, by which leases and deadlines of several processes are compared.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn now(&self) -> StoreResult<Timestamp> {
        Ok(sqlx::query_scalar("select now()").fetch_one(&mut *self.acquire().await?).await?)
    }

    /// Checks that the server answers, for `/readyz`.
    ///
    /// # Errors
    /// It does not.
    pub async fn check(&self) -> StoreResult<()> {
        sqlx::query("select 1").execute(&mut *self.acquire().await?).await?;
        Ok(())
    }

    /// Closes the idle connections, and each of the others when it is given back. The store cannot be used any more.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Creates the schema, and the role where that is allowed. Returns the role to use: the schema's owner, or none.
async fn create_schema(connection: &mut PgConnection, schema: &str) -> Result<Option<String>, sqlx::Error> {
    let role_exists = "select exists (select from pg_roles where rolname = $1)";
    let mut have_role: bool = sqlx::query_scalar(role_exists).bind(schema).fetch_one(&mut *connection).await?;
    if !have_role {
        // Roles belong to the whole server but the lock only to this database: a start in another database may create the role first.
        if let Err(error) = execute(connection, format!("create role {schema} nologin")).await {
            tracing::debug!(%error, role = schema, "the role was not created");
        }
        have_role = sqlx::query_scalar(role_exists).bind(schema).fetch_one(&mut *connection).await?;
    }
    let mut usable = have_role && may_become(connection, schema).await;
    if have_role && !usable {
        // Since Postgres 16 even the creator of a role must be granted the role before it can be set.
        let _ = execute(connection, format!("grant {schema} to current_user")).await;
        usable = may_become(connection, schema).await;
    }

    let owner_of = "select pg_get_userbyid(nspowner)::text from pg_namespace where nspname = $1";
    let mut owner: Option<String> = sqlx::query_scalar(owner_of).bind(schema).fetch_optional(&mut *connection).await?;
    if owner.is_none() {
        // Checked first, because `if not exists` needs the right to create even when the schema exists.
        let clause = if usable { format!("create schema {schema} authorization {schema}") } else { format!("create schema {schema}") };
        execute(connection, clause).await?;
        owner = sqlx::query_scalar(owner_of).bind(schema).fetch_optional(&mut *connection).await?;
    }
    // A schema created by an earlier start with fewer rights belongs to the connecting user, and so do its tables.
    if usable && owner.as_deref() == Some(schema) {
        return Ok(Some(schema.to_owned()));
    }
    tracing::warn!(schema, "the connecting user may not use a role of its own for this schema; continuing without one");
    Ok(None)
}

async fn may_become(connection: &mut PgConnection, role: &str) -> bool {
    let able = execute(connection, format!("set role {role}")).await.is_ok();
    able && execute(connection, "reset role".to_owned()).await.is_ok()
}

/// Executes a statement that is built from schema names only; those come from service names in the source.
async fn execute(connection: &mut PgConnection, statement: String) -> Result<(), sqlx::Error> {
    sqlx::query(AssertSqlSafe(statement)).execute(connection).await.map(drop)
}

fn in_schema(schema: &str, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Schema { schema: schema.to_owned(), source: Box::new(error) }
}
