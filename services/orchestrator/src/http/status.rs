//! Status of a deployment intent group, in EMCO's format.

use axum::Extension;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use drover_api::status::DigStatus;
use drover_service::{Json, Path, Problem, Query};
use futures::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;

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
        ("type" = Option<String>, Query, description = "`rsync` or `cluster`: also the fields of EMCO's older form (`status`, `rsyncStatus`, `clusterStatus`)"),
        ("status" = Option<String>, Query, description = "`deployed` or `ready`; both are always shown"),
        ("instance" = Option<String>, Query, description = "An instance of the history; of earlier ones only the state is kept")),
    responses((status = 200, description = "The status", body = DigStatus)))]
pub async fn status(
    State(app): State<App>,
    Path(path): Path<GroupPath>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Json<DigStatus>, Problem> {
    Ok(Json(app.status(&path, &StatusQuery::parse(&query)?).await?))
}

/// The status as server-sent events: as it is now, and after each change. The query is that of the status.
#[utoipa::path(get, operation_id = "deployment-intent-group_status_events", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/status/events",
    params(GroupPath),
    responses((status = 200, description = "Each event's data is the status", body = DigStatus, content_type = "text/event-stream")))]
pub async fn events(
    State(app): State<App>,
    Path(path): Path<GroupPath>,
    Query(query): Query<Vec<(String, String)>>,
    Extension(shutdown): Extension<CancellationToken>,
) -> Result<Sse<impl Stream<Item = Result<Event, axum::Error>>>, Problem> {
    let statuses = app.watch_status(path, StatusQuery::parse(&query)?).await?;
    let events = statuses.map(|status| Event::default().json_data(&status)).take_until(shutdown.cancelled_owned());
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
