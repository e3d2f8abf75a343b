//! Explicit changes of claims.

use axum::extract::State;
use drover_api::ledger::{LedgerReceipt, LedgerTransaction};
use drover_service::{Json, Path, Problem};
use uuid::Uuid;

use crate::app::App;

/// Returns what a transaction would be answered now, without writing.
#[utoipa::path(post, path = "/internal/transactions/dry-run", operation_id = "transaction_dry_run", tag = "peer",
    request_body = LedgerTransaction, responses((status = 200, description = "What would be written now", body = LedgerReceipt)))]
pub async fn dry_run(State(app): State<App>, Json(transaction): Json<LedgerTransaction>) -> Result<Json<LedgerReceipt>, Problem> {
    Ok(Json(app.try_transaction(&transaction)?))
}

/// Makes all changes or none. A repeated id gets the stored answer. A refusal names every difference.
#[utoipa::path(put, path = "/internal/transactions/{id}", operation_id = "transaction_put", tag = "peer", params(("id" = Uuid, Path)),
    request_body = LedgerTransaction, responses((status = 200, description = "Written", body = LedgerReceipt)))]
pub async fn put(
    State(app): State<App>,
    Path(id): Path<Uuid>,
    Json(transaction): Json<LedgerTransaction>,
) -> Result<Json<LedgerReceipt>, Problem> {
    Ok(Json(app.transact(id, transaction).await?))
}
