//! The authority of links with its key, and the certificates of those before it.

use drover_store::{SealKey, Sealed, SealedTable, StoreResult, Timestamp};
use secrecy::SecretString;
use sqlx::PgConnection;

/// The authority's key.
pub const SEALED: SealedTable = SealedTable::without_plain("link_authority", "id");
/// The id of the one authority.
const AUTHORITY: &str = "links";

/// The authority as it is stored; certificates and key in PEM.
pub struct Stored {
    pub certificate: String,
    /// As the one before it has signed it.
    pub crossed: Option<String>,
    pub secret: SecretString,
    /// Its key is sealed with a key that was replaced since.
    pub stale: bool,
    /// Those before it, the latest first.
    pub earlier: Vec<Earlier>,
}

/// An authority that was replaced. Its key is gone.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Earlier {
    pub certificate: String,
    pub crossed: Option<String>,
    pub replaced_at: Timestamp,
}

/// A new authority, in PEM.
pub struct New<'a> {
    pub certificate: &'a str,
    pub crossed: Option<&'a str>,
    pub secret: &'a str,
}

/// The authority, locked until the end of the transaction; none before the first start of a process that takes agents.
///
/// # Errors
/// The store fails, or the key was sealed with a key that this process does not have.
pub async fn get(db: &mut PgConnection, key: &SealKey) -> StoreResult<Option<Stored>> {
    let query = sqlx::query_as("select certificate, crossed, sealed from link_authority where id = $1 for update");
    let found: Option<(String, Option<String>, Sealed)> = query.bind(AUTHORITY).fetch_optional(&mut *db).await?;
    let Some((certificate, crossed, sealed)) = found else { return Ok(None) };
    let earlier = sqlx::query_as("select certificate, crossed, replaced_at from link_authority_earlier order by replaced_at desc");
    let earlier = earlier.fetch_all(db).await?;
    let secret = key.open_text(SEALED.place(AUTHORITY), &sealed)?;
    Ok(Some(Stored { certificate, crossed, secret, stale: key.is_stale(&sealed), earlier }))
}

/// Stores the first authority, unless there is one.
///
/// # Errors
/// The store fails.
pub async fn begin(db: &mut PgConnection, key: &SealKey, new: &New<'_>) -> StoreResult<()> {
    sqlx::query("insert into link_authority (id, certificate, crossed, sealed) values ($1, $2, $3, $4) on conflict do nothing")
        .bind(AUTHORITY)
        .bind(new.certificate)
        .bind(new.crossed)
        .bind(key.seal(SEALED.place(AUTHORITY), new.secret.as_bytes()))
        .execute(db)
        .await?;
    Ok(())
}

/// Puts a new authority in the place of the present one, whose certificate is kept and whose key is gone. Those that were replaced before
/// `kept_since` are forgotten, and of the others all but the latest `most`.
///
/// # Errors
/// The store fails.
pub async fn replace(db: &mut PgConnection, key: &SealKey, new: &New<'_>, kept_since: Timestamp, most: usize) -> StoreResult<()> {
    sqlx::query(
        "insert into link_authority_earlier (certificate, crossed, replaced_at)
        select certificate, crossed, now() from link_authority where id = $1",
    )
    .bind(AUTHORITY)
    .execute(&mut *db)
    .await?;
    sqlx::query("update link_authority set certificate = $2, crossed = $3, sealed = $4 where id = $1")
        .bind(AUTHORITY)
        .bind(new.certificate)
        .bind(new.crossed)
        .bind(key.seal(SEALED.place(AUTHORITY), new.secret.as_bytes()))
        .execute(&mut *db)
        .await?;
    sqlx::query(
        "delete from link_authority_earlier where replaced_at < $1 or certificate not in
            (select certificate from link_authority_earlier order by replaced_at desc limit $2)",
    )
    .bind(kept_since)
    .bind(i64::try_from(most).unwrap_or(i64::MAX))
    .execute(db)
    .await?;
    Ok(())
}
