//! Bundles: rendered objects by digest. A bundle never changes, so writing it twice has no effect. Objects may be Secrets, so they are sealed.
//! Which bundles may call a Service is found by keyed hashes of the names of hosts in them.

use std::collections::{BTreeMap, HashMap};

use drover_api::scheduling::MemberKey;
use drover_manifest::callers;
use drover_store::{Derived, SealKey, Sealed, SealedTable, Store, StoreError, StoreResult};
use serde_json::Value;
use sqlx::{FromRow, PgConnection};
use uuid::Uuid;

use crate::render::{Rendered, is_per_member};

const BUNDLES: SealedTable = SealedTable { table: "bundle", row: "digest", plain: "objects", bytes: "convert_to(objects::text, 'UTF8')" };
const VARIANTS: SealedTable =
    SealedTable { table: "bundle_variant", row: "digest || '/' || member", plain: "objects", bytes: "convert_to(objects::text, 'UTF8')" };

/// A value in either form.
type Forms = (Option<Sealed>, Option<Vec<u8>>);

/// The row that the objects of a bundle in a member are sealed for, if they differ there.
fn variant_row(digest: &str, member: &str) -> String {
    format!("{digest}/{member}")
}

fn bytes_of(objects: &[Value]) -> StoreResult<Vec<u8>> {
    serde_json::to_vec(objects).map_err(|error| sqlx::Error::Encode(error.into()).into())
}

fn objects_of(bytes: &[u8]) -> StoreResult<Vec<Value>> {
    serde_json::from_slice(bytes).map_err(|error| StoreError::from(sqlx::Error::Decode(error.into())))
}

fn open(key: &SealKey, of: &SealedTable, row: &str, (sealed, plain): Forms) -> StoreResult<Vec<Value>> {
    objects_of(&of.open(key, row, sealed, plain)?)
}

/// Hashes of the names of hosts in objects.
fn hosts<'o>(key: &SealKey, objects: impl IntoIterator<Item = &'o Value>) -> Vec<i64> {
    callers::hosts(objects).into_iter().map(|host| key.word(host)).collect()
}

/// Seals what is not sealed with the newest key.
///
/// # Errors
/// The query failed, or objects were sealed with a key that is not in the key file.
pub async fn seal_all(store: &Store) -> StoreResult<()> {
    let of = |key: &SealKey, bytes: &[u8]| objects_of(bytes).map(|objects| hosts(key, &objects)).unwrap_or_default();
    let derived = Derived { column: "hosts", of: &of };
    BUNDLES.seal_all(store, Some(&derived)).await?;
    VARIANTS.seal_all(store, Some(&derived)).await?;
    Ok(())
}

/// Stores a bundle unless there is one of its digest.
///
/// # Errors
/// The query failed.
pub async fn put(tx: &mut PgConnection, key: &SealKey, rendered: &Rendered) -> StoreResult<()> {
    let sealed = key.seal(BUNDLES.place(&rendered.digest), &bytes_of(&rendered.objects)?);
    sqlx::query("insert into bundle (digest, sealed, hosts) values ($1, $2, $3) on conflict do nothing")
        .bind(&rendered.digest)
        .bind(sealed)
        .bind(hosts(key, &rendered.objects))
        .execute(&mut *tx)
        .await?;
    for (member, objects) in &rendered.variants {
        let sealed = key.seal(VARIANTS.place(&variant_row(&rendered.digest, &member.0)), &bytes_of(objects)?);
        sqlx::query("insert into bundle_variant (digest, member, sealed, hosts) values ($1, $2, $3, $4) on conflict do nothing")
            .bind(&rendered.digest)
            .bind(&member.0)
            .bind(sealed)
            .bind(hosts(key, objects))
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

/// The objects of a bundle, as they are in clusters without a variant.
///
/// # Errors
/// The query failed, there is no bundle of that digest, or it is sealed with another key.
pub async fn objects(tx: &mut PgConnection, key: &SealKey, digest: &str) -> StoreResult<Vec<Value>> {
    let sql = "select sealed, convert_to(objects::text, 'UTF8') from bundle where digest = $1";
    open(key, &BUNDLES, digest, sqlx::query_as(sql).bind(digest).fetch_one(tx).await?)
}

/// The objects of bundles by digest, as [`objects`] has them of one. Digests without a bundle are left out.
///
/// # Errors
/// The query failed, or a bundle is sealed with another key.
pub async fn objects_of_all(tx: &mut PgConnection, key: &SealKey, digests: &[String]) -> StoreResult<HashMap<String, Vec<Value>>> {
    let sql = "select digest, sealed, convert_to(objects::text, 'UTF8') from bundle where digest = any($1)";
    let rows: Vec<(String, Option<Sealed>, Option<Vec<u8>>)> = sqlx::query_as(sql).bind(digests).fetch_all(tx).await?;
    let opened = rows.into_iter().map(|(digest, sealed, plain)| {
        let objects = open(key, &BUNDLES, &digest, (sealed, plain))?;
        Ok((digest, objects))
    });
    opened.collect()
}

/// The objects of a bundle in this member.
///
/// # Errors
/// As [`objects`].
pub async fn objects_in(tx: &mut PgConnection, key: &SealKey, digest: &str, member: &MemberKey) -> StoreResult<Vec<Value>> {
    if !is_per_member(digest) {
        return objects(tx, key, digest).await;
    }
    let sql = "select sealed, convert_to(objects::text, 'UTF8') from bundle_variant where digest = $1 and member = $2";
    match sqlx::query_as(sql).bind(digest).bind(&member.0).fetch_optional(&mut *tx).await? {
        Some(forms) => open(key, &VARIANTS, &variant_row(digest, &member.0), forms),
        None => objects(tx, key, digest).await,
    }
}

/// The clusters in which the objects of a bundle differ, with the objects there.
///
/// # Errors
/// The query failed, or the objects are sealed with another key.
pub async fn variants(tx: &mut PgConnection, key: &SealKey, digest: &str) -> StoreResult<BTreeMap<MemberKey, Vec<Value>>> {
    let sql = "select member, sealed, convert_to(objects::text, 'UTF8') from bundle_variant where digest = $1";
    let rows: Vec<(String, Option<Sealed>, Option<Vec<u8>>)> = sqlx::query_as(sql).bind(digest).fetch_all(tx).await?;
    let opened = rows.into_iter().map(|(member, sealed, plain)| {
        let objects = open(key, &VARIANTS, &variant_row(digest, &member), (sealed, plain))?;
        Ok((MemberKey(member), objects))
    });
    opened.collect()
}

/// An app that runs, with its objects.
#[derive(Debug)]
pub struct Running {
    pub composite_app: String,
    pub app: String,
    /// Namespace of objects that name none.
    pub namespace: String,
    /// Also those that it has in single clusters only.
    pub objects: Vec<Value>,
}

#[derive(FromRow)]
struct RunningRow {
    composite_app: String,
    app: String,
    namespace: String,
    digest: String,
    sealed: Option<Sealed>,
    plain: Option<Vec<u8>>,
}

/// The running apps of other groups of which the workloads or ConfigMaps name one of these Services (`namespace/name`) as a host, and some
/// that do not.
///
/// # Errors
/// The query failed, or the objects are sealed with another key.
pub async fn running_elsewhere(tx: &mut PgConnection, key: &SealKey, dig: Uuid, services: &[String]) -> StoreResult<Vec<Running>> {
    let names = services.iter().flat_map(|service| callers::names(service));
    let hashes: Vec<i64> = names.flat_map(|name| key.words(&name).collect::<Vec<_>>()).collect();
    let rows: Vec<RunningRow> = sqlx::query_as(
        "select running.*, bundle.sealed, convert_to(bundle.objects::text, 'UTF8') as plain
         from (select distinct dig_id, composite_app, app, namespace, digest from binding where role = 'current' and dig_id <> $1) running
         join bundle on bundle.digest = running.digest
         where bundle.hosts && $2 or bundle.sealed is null
            or exists (select from bundle_variant variant
                       where variant.digest = bundle.digest and (variant.hosts is null or variant.hosts && $2))",
    )
    .bind(dig)
    .bind(hashes)
    .fetch_all(&mut *tx)
    .await?;
    let mut running = Vec::new();
    for RunningRow { composite_app, app, namespace, digest, sealed, plain } in rows {
        let mut objects = open(key, &BUNDLES, &digest, (sealed, plain))?;
        objects.extend(variants(tx, key, &digest).await?.into_values().flatten());
        running.push(Running { composite_app, app, namespace, objects });
    }
    Ok(running)
}
