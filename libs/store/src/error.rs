//! Database errors in words that services decide by: constraint names, and whether trying again can help.
//!
//! Not transport: what a client sees (503 `store_unavailable`, 507 `store_full`, …) is decided where errors become
//! problem+json. The exhaustive split is made once, here, from SQLSTATE codes.

use sqlx::Error as SqlxError;

/// The result of a store call.
pub type StoreResult<T> = Result<T, StoreError>;

/// Why the database did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The server is away, shutting down, full of connections, or cut the connection. The statement may or may not have
    /// been done; a repeat helps once the server is back.
    #[error("the database cannot be reached")]
    Unavailable(#[source] SqlxError),
    /// The server has no room left on its disk. Reads go on, writes fail until somebody makes room.
    #[error("the database has no room left")]
    Full(#[source] SqlxError),
    /// Serialization failure, deadlock or lock timeout: nothing was done, and a repeat of the whole transaction helps.
    #[error("the transaction lost against a concurrent one")]
    Contended(#[source] SqlxError),
    /// A constraint refused the row; `name` tells which.
    #[error("constraint {name} is violated")]
    Constraint {
        /// The constraint's (or unique index's) name.
        name: String,
        /// What Postgres said.
        #[source]
        source: SqlxError,
    },
    /// A row that must exist does not.
    #[error("no such row")]
    NotFound,
    /// A sealed column did not open.
    #[error(transparent)]
    Seal(#[from] crate::SealError),
    /// The schema of the service could not be prepared.
    #[error("cannot prepare the schema {schema}")]
    Schema {
        /// Which schema.
        schema: String,
        /// What went wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database URL is not one. Its text is not repeated, for it may hold a password.
    #[error("the database URL is not a Postgres URL")]
    Url,
    /// Everything else: a programming error in a statement, or data that does not decode.
    #[error("a database statement failed")]
    Other(#[source] SqlxError),
}

impl StoreError {
    /// Repeating the same transaction at once may succeed, and nothing of it was done.
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Contended(_))
    }

    /// Repeating later may succeed without anybody changing the request.
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
            // A cut connection surfaces as whichever of these the driver was doing at that moment.
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
            // disk_full, and the server's own failures to write (58030 io_error).
            Some("53100" | "58030") => Self::Full(error),
            // Classes 08 (connection), 57P0x (shutdown, crash, starting up), 53 (resources, connections), 25P03 (idle timeout).
            Some(code) if code.starts_with("08") || code.starts_with("57P0") || code.starts_with("53") || code == "25P03" => {
                Self::Unavailable(error)
            }
            _ => Self::Other(error),
        }
    }
}

/// Turns violated constraints into the errors of a domain.
pub trait ResultExt<T> {
    /// The domain's error when the constraint `name` was violated; any other store error is converted.
    fn on_constraint<E: From<StoreError>>(self, name: &str, domain_error: impl FnOnce() -> E) -> Result<T, E>;
    /// As [`ResultExt::on_constraint`], for a statement that several constraints guard.
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

/// Runs a whole transaction again (at most `attempts` times) while it loses against concurrent ones.
///
/// `contended` says whether the error is one; for a plain [`StoreError`] pass [`StoreError::is_contended`].
pub async fn retry_contended<T, E, F, Fut>(attempts: usize, contended: impl Fn(&E) -> bool, mut transaction: F) -> Result<T, E>
where
    // Not `AsyncFnMut`: futures of those cannot be shown to be `Send`, which handlers need.
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    for _ in 1..attempts {
        match transaction().await {
            Err(error) if contended(&error) => {
                // Spread the losers, so that they do not meet again at once.
                tokio::time::sleep(std::time::Duration::from_millis(rand::random_range(1..20))).await;
            }
            outcome => return outcome,
        }
    }
    transaction().await
}
