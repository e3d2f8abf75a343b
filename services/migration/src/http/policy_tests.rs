//! Route of policy tests.

use axum::extract::State;
use drover_service::{Json, Problem};

use crate::app::{App, PolicyTest, PolicyTestResult};

/// Returns the current candidates on a cluster with their scores under a policy. The policy need not be active.
#[utoipa::path(post, path = "/v2/policy-tests", operation_id = "policy_test", tag = "migration-policies", request_body = PolicyTest,
    responses((status = 200, description = "The candidates", body = PolicyTestResult)))]
pub async fn post(State(app): State<App>, Json(test): Json<PolicyTest>) -> Result<Json<PolicyTestResult>, Problem> {
    Ok(Json(app.test_policy(test).await?))
}
