//! Status of a deployment intent group, in EMCO's format.

use axum::extract::State;
use drover_api::status::DigStatus;
use drover_service::{Json, Path, Problem, Query};

use crate::app::status_view::StatusQuery;
use crate::app::{App, GroupPath};

/// Status of a group. A filter that names something that does not exist is answered with 404. The deployed status is
/// `WaitingForRoom` while other apps are being moved to make room for the group.
#[utoipa::path(get, operation_id = "deployment-intent-group_status", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/status",
    params(GroupPath,
        ("output" = Option<String>, Query, description = "`summary`, `all` (default) or `detail`"),
        ("app" = Option<Vec<String>>, Query, description = "Only these apps; may repeat"),
        ("cluster" = Option<Vec<String>>, Query, description = "Only these clusters, as `provider%2Bcluster`; may repeat"),
        ("resource" = Option<Vec<String>>, Query, description = "Only resources of these names; may repeat"),
        ("apps" = Option<String>, Query, description = "Only the names of the apps"),
        ("clusters" = Option<String>, Query, description = "Only the clusters by app"),
        ("resources" = Option<String>, Query, description = "Only the names of the resources by app and cluster"),
        ("status" = Option<String>, Query, description = "`deployed` or `ready`; both are always shown"),
        ("instance" = Option<String>, Query, description = "Operation; only the latest is kept")),
    responses((status = 200, description = "The status", body = DigStatus)))]
pub async fn status(
    State(app): State<App>,
    Path(path): Path<GroupPath>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Json<DigStatus>, Problem> {
    Ok(Json(app.status(&path, &StatusQuery::parse(&query)?).await?))
}
