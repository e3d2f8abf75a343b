//! Seals what is not sealed yet, or with a retired key: the rows of an earlier version, and all rows after `drover keys rotate`.
//!
//! A service does this when it starts, before it serves, in batches of which each is a transaction. If it ends in the middle the next start
//! goes on with the rest. Rows are read in both forms until then.

use secrecy::ExposeSecret;
use sqlx::AssertSqlSafe;

use crate::seal::{Place, SealKey, Sealed};
use crate::{Store, StoreResult};

/// How many rows one transaction seals; the values of all of them are in memory.
const BATCH: usize = 16;

/// Where a row is, its id, and its value in one of the two forms.
type Row = (String, String, Option<Sealed>, Option<Vec<u8>>);

/// A table with a column `sealed` (bytea), and perhaps one that had the same in clear text. One of them is null in each row.
#[derive(Clone, Copy, Debug)]
pub struct SealedTable {
    pub table: &'static str,
    /// SQL of the row's id as text, which the value is bound to.
    pub row: &'static str,
    /// The column in clear text; empty: there is none.
    pub plain: &'static str,
    /// SQL of its value as bytea.
    pub bytes: &'static str,
}

/// A column beside the sealed one that follows from the value and the key.
pub struct Derived<'a> {
    pub column: &'static str,
    pub of: &'a (dyn Fn(&SealKey, &[u8]) -> Vec<i64> + Sync),
}

impl SealedTable {
    /// A table that never had the value in clear text.
    pub const fn without_plain(table: &'static str, row: &'static str) -> Self {
        Self { table, row, plain: "", bytes: "null::bytea" }
    }

    /// Where the value of a row is sealed.
    pub fn place<'a>(&self, row: &'a str) -> Place<'a> {
        Place { table: self.table, column: "sealed", row }
    }

    /// The value of a row in either form.
    ///
    /// # Errors
    /// The value is sealed with a key that this process does not have, or for another row.
    pub fn open(&self, key: &SealKey, row: &str, sealed: Option<Sealed>, plain: Option<Vec<u8>>) -> StoreResult<Vec<u8>> {
        Ok(match sealed {
            Some(sealed) => key.open(self.place(row), &sealed)?.expose_secret().to_vec(),
            None => plain.unwrap_or_default(),
        })
    }

    /// Seals all rows that are not sealed with the current key; returns how many.
    ///
    /// # Errors
    /// The store fails or has no key, or a value was sealed with a key that is not in the key file.
    pub async fn seal_all(&self, store: &Store, derived: Option<&Derived<'_>>) -> StoreResult<usize> {
        let key = store.key()?;
        let stale = "(sealed is null or substring(sealed from 2 for 8) <> $1)";
        let Self { table, row, plain, bytes } = self;
        let find = format!("select ctid::text from {table} where {stale}");
        let places: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(find)).bind(key.current_id()).fetch_all(&mut *store.acquire().await?).await?;
        // Whoever wrote a row meanwhile has sealed it.
        let read = format!("select ctid::text, {row}, sealed, {bytes} from {table} where ctid = any($2::tid[]) and {stale} for update");
        let (set, as_well) = derived.map_or((String::new(), None), |derived| (format!(", {} = $3", derived.column), Some(derived.of)));
        let clear = if plain.is_empty() { String::new() } else { format!(", {plain} = null") };
        let write = format!("update {table} set sealed = $2{clear}{set} where ctid = $1::tid");
        let mut count = 0;
        for batch in places.chunks(BATCH) {
            let mut tx = store.begin().await?;
            let rows: Vec<Row> = sqlx::query_as(AssertSqlSafe(read.clone())).bind(key.current_id()).bind(batch).fetch_all(&mut *tx).await?;
            for (at, row, sealed, plain) in rows {
                let value = self.open(key, &row, sealed, plain)?;
                let update = sqlx::query(AssertSqlSafe(write.clone())).bind(at).bind(key.seal(self.place(&row), &value));
                let update = match as_well {
                    Some(of) => update.bind(of(key, &value)),
                    None => update,
                };
                update.execute(&mut *tx).await?;
                count += 1;
            }
            tx.commit().await?;
        }
        if count > 0 {
            tracing::info!(table, count, "rows were sealed with the newest key");
        }
        Ok(count)
    }
}
