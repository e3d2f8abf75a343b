//! Bundles: rendered objects by digest. A bundle never changes, so writing it twice has no effect.

use std::collections::BTreeMap;

use drover_api::scheduling::MemberKey;
use drover_store::StoreResult;
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{FromRow, PgConnection};
use uuid::Uuid;

use crate::render::Rendered;

/// Stores a bundle unless there is one of its digest.
///
/// # Errors
/// The query failed.
pub async fn put(tx: &mut PgConnection, rendered: &Rendered) -> StoreResult<()> {
    sqlx::query("insert into bundle (digest, objects) values ($1, $2) on conflict do nothing")
        .bind(&rendered.digest)
        .bind(Json(&rendered.objects))
        .execute(&mut *tx)
        .await?;
    for (member, objects) in &rendered.variants {
        sqlx::query("insert into bundle_variant (digest, member, objects) values ($1, $2, $3) on conflict do nothing")
            .bind(&rendered.digest)
            .bind(&member.0)
            .bind(Json(objects))
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

/// The objects of a bundle, as they are in clusters without a variant.
///
/// # Errors
/// The query failed, or there is no bundle of that digest.
pub async fn objects(tx: &mut PgConnection, digest: &str) -> StoreResult<Vec<Value>> {
    let Json(objects) =
        sqlx::query_scalar::<_, Json<Vec<Value>>>("select objects from bundle where digest = $1").bind(digest).fetch_one(tx).await?;
    Ok(objects)
}

/// The objects of a bundle in this member.
///
/// # Errors
/// The query failed, or there is no bundle of that digest.
pub async fn objects_in(tx: &mut PgConnection, digest: &str, member: &MemberKey) -> StoreResult<Vec<Value>> {
    let sql = "select coalesce(variant.objects, bundle.objects) from bundle
        left join bundle_variant variant on variant.digest = bundle.digest and variant.member = $2 where bundle.digest = $1";
    let Json(objects) = sqlx::query_scalar::<_, Json<Vec<Value>>>(sql).bind(digest).bind(&member.0).fetch_one(tx).await?;
    Ok(objects)
}

/// The clusters in which the objects of a bundle differ, with the objects there.
///
/// # Errors
/// The query failed.
pub async fn variants(tx: &mut PgConnection, digest: &str) -> StoreResult<BTreeMap<MemberKey, Vec<Value>>> {
    let sql = "select member, objects from bundle_variant where digest = $1";
    let rows: Vec<(String, Json<Vec<Value>>)> = sqlx::query_as(sql).bind(digest).fetch_all(tx).await?;
    Ok(rows.into_iter().map(|(member, Json(objects))| (MemberKey(member), objects)).collect())
}

/// An app that runs, with its objects.
#[derive(Debug, FromRow)]
pub struct Running {
    pub composite_app: String,
    pub app: String,
    /// Namespace of objects that name none.
    pub namespace: String,
    #[sqlx(json)]
    pub objects: Vec<Value>,
}

/// The running apps of other groups whose objects have the name of one of these Services (`namespace/name`) somewhere in their text.
///
/// # Errors
/// The query failed.
pub async fn running_elsewhere(tx: &mut PgConnection, dig: Uuid, services: &[String]) -> StoreResult<Vec<Running>> {
    let names = services.iter().map(|service| service.rsplit('/').next().unwrap_or(service).to_owned()).collect::<Vec<_>>();
    Ok(sqlx::query_as(
        "select running.composite_app, running.app, running.namespace, bundle.objects
         from (select distinct dig_id, composite_app, app, namespace, digest from binding where role = 'current' and dig_id <> $1) running
         join bundle on bundle.digest = running.digest
         where exists (select from unnest($2::text[]) as name where strpos(bundle.objects::text, name) > 0)",
    )
    .bind(dig)
    .bind(names)
    .fetch_all(tx)
    .await?)
}
