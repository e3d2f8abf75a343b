//! Classifies database errors, by SQLSTATE, into those that services decide by: constraint names, and whether a repetition can help.
//!
//! What a client sees (503 `store_unavailable`, 507 `store_full`, …) is decided elsewhere, where errors become problem+json.

use sqlx::Error as SqlxError;

/// The result of a store call.
pub type StoreResult<T> = Result<T, StoreError>;

/// Why a database operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The server does not answer, shuts down, has no free connection, or closed the connection; or the pool had no free connection in
    /// time. The statement may or may not have been executed. A repetition helps once the server is back.
    #[error("the database cannot be reached")]
    Unavailable(#[source] SqlxError),
    /// The server's disk is full. Reads work; writes fail until there is room again.
    #[error("the disk of the database is full")]
    Full(#[source] SqlxError),
    /// Serialization failure, deadlock or lock timeout. Nothing was written; repeating the whole transaction helps.
    #[error("the transaction conflicts with a concurrent one")]
    Contended(#[source] SqlxError),
    /// A constraint refused the row.
    #[error("constraint {name} is violated")]
    Constraint {
        /// The name of the constraint or unique index.
        name: String,
        #[source]
        source: SqlxError,
    },
    /// A query that must return a row returned none.
    #[error("no such row")]
    NotFound,
    /// A sealed column could not be decrypted.
    #[error(transparent)]
    Seal(#[from] crate::SealError),
    /// The schema of the service could not be prepared.
    #[error("cannot prepare the schema {schema}")]
    Schema {
        schema: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database URL cannot be parsed. The error does not contain it, because it may contain a password.
    #[error("the database URL is not a Postgres URL")]
    Url,
    /// Any other error: a wrong statement, or a value that cannot be decoded.
    #[error("a database statement failed")]
    Other(#[source] SqlxError),
}

impl StoreError {
    /// Whether nothing was written and repeating the same transaction at once may succeed.
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Contended(_))
    }

    /// Whether repeating the same request later may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Full(_) | Self::Contended(_) => true,
            Self::Constraint { .. } | Self::NotFound | Self::Seal(_) | Self::Schema { .. } | Self::Url | Self::Other(_) => false,
        }
    }

    /// The name of the violated constraint.
    pub fn constraint(&self) -> Option<&str> {
        match self {
            Self::Constraint { name, .. } => Some(name),
            _ => None,
        }
    }
}

impl From<SqlxError> for StoreError {
    fn from(error: SqlxError) -> Self {
        let database = match &error {
            SqlxError::Database(database) => database,
            SqlxError::RowNotFound => return Self::NotFound,
            // A broken connection appears as any of these, depending on what the driver was doing.
            SqlxError::Io(_)
            | SqlxError::Tls(_)
            | SqlxError::Protocol(_)
            | SqlxError::PoolTimedOut
            | SqlxError::PoolClosed
            | SqlxError::WorkerCrashed
            | SqlxError::BeginFailed => {
                return Self::Unavailable(error);
            }
            _ => return Self::Other(error),
        };
        if let Some(name) = database.constraint() {
            return Self::Constraint { name: name.to_owned(), source: error };
        }
        match database.code().as_deref() {
            Some("40001" | "40P01" | "55P03") => Self::Contended(error),
            // disk_full and io_error (the server could not write).
            Some("53100" | "58030") => Self::Full(error),
            // Classes 08 (connection), 57P0x (shutdown, crash, starting up), 53 (resources, connections), and 25P03 (idle in
            // transaction for too long).
            Some(code) if code.starts_with("08") || code.starts_with("57P0") || code.starts_with("53") || code == "25P03" => {
                Self::Unavailable(error)
            }
            _ => Self::Other(error),
        }
    }
}

/// Turns violated constraints into errors of the caller's domain.
pub trait ResultExt<T> {
    /// Converts a violation of the constraint `name` into `domain_error`.
    ///
    /// # Errors
    /// The domain's error after that violation, any other error converted from [`StoreError`].
    fn on_constraint<E: From<StoreError>>(self, name: &str, domain_error: impl FnOnce() -> E) -> Result<T, E>;
    /// As [`ResultExt::on_constraint`], for a statement that may violate several constraints: the function gets the name.
    ///
    /// # Errors
    /// The domain's error where the function returns one, any other error converted from [`StoreError`].
    fn map_constraint<E: From<StoreError>>(self, domain_error: impl FnOnce(&str) -> Option<E>) -> Result<T, E>;
}

impl<T, F: Into<StoreError>> ResultExt<T> for Result<T, F> {
    fn on_constraint<E: From<StoreError>>(self, name: &str, domain_error: impl FnOnce() -> E) -> Result<T, E> {
        self.map_constraint(|violated| (violated == name).then(domain_error))
    }

    fn map_constraint<E: From<StoreError>>(self, domain_error: impl FnOnce(&str) -> Option<E>) -> Result<T, E> {
        self.map_err(|error| {
            let error = error.into();
            error.constraint().and_then(domain_error).unwrap_or_else(|| E::from(error))
        })
    }
}

/// Runs a whole transaction up to `attempts` times, as long as it fails because of concurrent ones.
///
/// `contended` tells such an error; for a plain [`StoreError`] pass [`StoreError::is_contended`].
///
/// # Errors
/// Any other error at once, and the error of the last attempt.
pub async fn retry_contended<T, E, F, Fut>(attempts: usize, contended: impl Fn(&E) -> bool, mut transaction: F) -> Result<T, E>
where
    // Not `AsyncFnMut`: its futures cannot be required to be `Send`, which handlers need.
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    for _ in 1..attempts {
        match transaction().await {
            Err(error) if contended(&error) => {
                // A random pause, so that the same transactions do not collide again.
                tokio::time::sleep(std::time::Duration::from_millis(rand::random_range(1..20))).await;
            }
            outcome => return outcome,
        }
    }
    transaction().await
}
