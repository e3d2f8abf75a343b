//! Bundles. Their objects may be Secrets, so they are sealed.

use std::collections::HashMap;

use drover_api::bindings::Bundle;
use drover_store::{Sealed, SealedTable, Store, StoreError, StoreResult};
use serde_json::Value;

const BUNDLES: SealedTable = SealedTable { table: "bundle", row: "digest", plain: "objects", bytes: "convert_to(objects::text, 'UTF8')" };

/// Digest, and the objects in either form.
type Row = (String, Option<Sealed>, Option<Vec<u8>>);

/// Whether an object of a bundle exports the Service of its name (KEP-1645).
pub fn is_export(object: &Value) -> bool {
    object["kind"] == "ServiceExport" && object["apiVersion"].as_str().is_some_and(|version| version.starts_with("multicluster.x-k8s.io/"))
}

/// Seals what is not sealed with the newest key.
pub async fn seal_all(store: &Store) -> StoreResult<()> {
    BUNDLES.seal_all(store, None).await.map(drop)
}

/// A bundle as it is stored.
pub struct SealedBundle<'a> {
    pub digest: &'a str,
    pub objects: Sealed,
    pub exports: bool,
    /// Size of the objects in bytes.
    pub bytes: usize,
}

impl<'a> SealedBundle<'a> {
    /// Seals a bundle; `exports`: whether it exports Services.
    pub fn of(store: &Store, bundle: &'a Bundle, exports: bool) -> StoreResult<Self> {
        let plain = serde_json::to_vec(&bundle.objects).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let objects = store.key()?.seal(BUNDLES.place(&bundle.digest), &plain);
        Ok(Self { digest: &bundle.digest, objects, exports, bytes: plain.len() })
    }
}

/// Whether a bundle is stored.
pub async fn exists(store: &Store, digest: &str) -> StoreResult<bool> {
    Ok(sqlx::query_scalar("select exists (select from bundle where digest = $1)")
        .bind(digest)
        .fetch_one(&mut *store.acquire().await?)
        .await?)
}

/// The objects of a bundle; `None` if it is not stored.
pub async fn get(store: &Store, digest: &str) -> StoreResult<Option<Vec<Value>>> {
    // Not as a list of one: Postgres would plan the statement each time.
    let sql = "select digest, sealed, convert_to(objects::text, 'UTF8') from bundle where digest = $1";
    let row: Option<Row> = sqlx::query_as(sql).bind(digest).fetch_optional(&mut *store.acquire().await?).await?;
    row.map(|row| Ok(open(store, row)?.1)).transpose()
}

/// The objects of these bundles, by digest; bundles that are not stored are left out.
pub async fn get_all(store: &Store, digests: impl IntoIterator<Item = &str>) -> StoreResult<HashMap<String, Vec<Value>>> {
    let digests: Vec<&str> = digests.into_iter().collect();
    let sql = "select digest, sealed, convert_to(objects::text, 'UTF8') from bundle where digest = any($1)";
    let rows: Vec<Row> = sqlx::query_as(sql).bind(digests).fetch_all(&mut *store.acquire().await?).await?;
    rows.into_iter().map(|row| open(store, row)).collect()
}

fn open(store: &Store, (digest, sealed, plain): Row) -> StoreResult<(String, Vec<Value>)> {
    let bytes = BUNDLES.open(store.key()?, &digest, sealed, plain)?;
    let objects = serde_json::from_slice(&bytes).map_err(|error| StoreError::from(sqlx::Error::Decode(error.into())))?;
    Ok((digest, objects))
}
