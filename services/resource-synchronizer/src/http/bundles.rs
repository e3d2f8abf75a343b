//! Bundles: rendered objects, stored once per digest.

use axum::extract::State;
use drover_api::bindings::Bundle;
use drover_service::{Json, Path, Problem};
use serde_json::Value;

use crate::app::App;

/// Stores a bundle. Storing the same digest again changes nothing.
#[utoipa::path(put, path = "/internal/bundles/{digest}", operation_id = "bundle_put", tag = "peer",
    params(("digest" = String, Path)), request_body = Bundle, responses((status = 200, description = "Stored", body = Value)))]
pub async fn put(State(app): State<App>, Path(digest): Path<String>, Json(bundle): Json<Bundle>) -> Result<Json<Value>, Problem> {
    app.put_bundle(&digest, bundle).await?;
    Ok(Json(Value::Null))
}
