//! The list of apps.

use axum::extract::State;
use drover_api::apps::{AppList, AppView};
use drover_service::{Json, Problem, Query, codes};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;

/// Query of the list of apps.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AppsQuery {
    /// Only apps of this project.
    pub project: Option<String>,
    /// Number of apps at most, 1 to 10000; all if absent.
    #[param(minimum = 1, maximum = 10000)]
    pub limit: Option<usize>,
    /// Only apps behind this one: the last of the previous page, as `project/compositeApp/version/dig/app`.
    pub after: Option<String>,
}

/// Apps of every deployment intent group that was approved at least once, with their copies.
#[utoipa::path(get, path = "/v2/apps", operation_id = "apps_list", tag = "apps", params(AppsQuery),
    responses((status = 200, description = "The apps", body = AppList)))]
pub async fn list(State(app): State<App>, Query(query): Query<AppsQuery>) -> Result<Json<AppList>, Problem> {
    if query.limit.is_some_and(|limit| !(1..=10_000).contains(&limit)) {
        return Err(codes::INVALID.problem("limit must be 1 to 10000"));
    }
    let mut list = app.apps(query.project.as_deref().filter(|project| !project.is_empty())).await?;
    page(&mut list.items, query.limit, query.after.as_deref());
    Ok(Json(list))
}

/// Leaves what is behind `after`, and of that the first `limit`. The order is that of the names, so that an app that has gone meanwhile has
/// a place in it too.
fn page(apps: &mut Vec<AppView>, limit: Option<usize>, after: Option<&str>) {
    fn place(app: &AppView) -> [&str; 5] {
        [&app.project, &app.composite_app, &app.version, &app.dig, &app.app]
    }
    apps.sort_by(|a, b| place(a).cmp(&place(b)));
    if let Some(after) = after {
        let after: Vec<&str> = after.split('/').collect();
        apps.retain(|app| place(app)[..] > after[..]);
    }
    apps.truncate(limit.unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_together_are_the_whole_list() {
        let app = |project: &str, composite_app: &str, app: &str| AppView {
            project: project.into(),
            composite_app: composite_app.into(),
            version: "v1".into(),
            dig: "run".into(),
            app: app.into(),
            state: "Instantiated".into(),
            reason: None,
            operation: None,
            bindings: Vec::new(),
            refused: Vec::new(),
            suffering: Vec::new(),
        };
        let all = [app("p", "a", "y"), app("p-2", "a", "x"), app("p", "a", "x"), app("p", "a-b", "x")];
        let (mut seen, mut after): (Vec<String>, Option<String>) = Default::default();
        loop {
            let mut items = all.to_vec();
            page(&mut items, Some(1), after.as_deref());
            let Some(last) = items.pop() else { break };
            after = Some([&last.project, &last.composite_app, &last.version, &last.dig, &last.app].map(String::as_str).join("/"));
            seen.extend(after.clone());
        }
        assert_eq!(seen, ["p/a/v1/run/x", "p/a/v1/run/y", "p/a-b/v1/run/x", "p-2/a/v1/run/x"]);
        let mut behind_one_that_has_gone = all.to_vec();
        page(&mut behind_one_that_has_gone, None, Some("p/a/v1/run/xx"));
        assert_eq!(behind_one_that_has_gone.len(), 3);
    }
}
