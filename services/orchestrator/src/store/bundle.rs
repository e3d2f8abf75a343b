//! Bundles: rendered objects by digest. A bundle never changes, so writing it twice has no effect.

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
        .execute(tx)
        .await?;
    Ok(())
}

/// The objects of a bundle.
///
/// # Errors
/// The query failed, or there is no bundle of that digest.
pub async fn objects(tx: &mut PgConnection, digest: &str) -> StoreResult<Vec<Value>> {
    let Json(objects) =
        sqlx::query_scalar::<_, Json<Vec<Value>>>("select objects from bundle where digest = $1").bind(digest).fetch_one(tx).await?;
    Ok(objects)
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
