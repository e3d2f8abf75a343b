//! Explicit changes of the ledger.

use axum::extract::State;
use drover_api::ledger::{LedgerReceipt, LedgerTransaction};
use drover_service::{Json, Path, Problem};
use uuid::Uuid;

use crate::app::App;

/// Makes all changes or none; the same id again is answered as before. What does not hold is named, each point.
#[utoipa::path(put, path = "/internal/transactions/{id}", operation_id = "transaction_put", tag = "peer", params(("id" = Uuid, Path)),
    request_body = LedgerTransaction, responses((status = 200, description = "Written", body = LedgerReceipt)))]
pub async fn put(
    State(app): State<App>,
    Path(id): Path<Uuid>,
    Json(transaction): Json<LedgerTransaction>,
) -> Result<Json<LedgerReceipt>, Problem> {
    Ok(Json(app.transact(id, transaction).await?))
}
