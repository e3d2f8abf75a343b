//! Handlers of everything that is not a document. A handler extracts its parameters, calls `app` and converts the result.

pub mod agents;
pub mod apps;
pub mod explain;
pub mod intents;
pub mod internal;
pub mod lifecycle;
pub mod logical_clouds;
pub mod operations;
pub mod plans;
pub mod routes;
pub mod status;
pub mod traces;

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use drover_service::{Json, Problem, asks_dry_run, codes};
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::App;

/// 202 with the operation, after waiting for its end for up to `wait`, and its address in Location.
async fn accepted(app: &App, id: Uuid, wait: Duration) -> Result<Response, Problem> {
    let operation = app.operation(id, wait).await?;
    let mut response = (StatusCode::ACCEPTED, Json(operation)).into_response();
    let location = HeaderValue::from_str(&format!("/v2/operations/{id}")).expect("a path with a uuid is a header value");
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// Query of all verbs.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct VerbQuery {
    /// `All`: return what would be done and write nothing.
    #[serde(rename = "dryRun")]
    pub dry_run: Option<String>,
    /// Wait this long for the end of the operation, such as `30s`; at most a minute.
    pub wait: Option<String>,
}

impl VerbQuery {
    /// Whether a dry run is requested.
    pub fn dry(&self) -> Result<bool, Problem> {
        asks_dry_run(self.dry_run.as_deref())
    }

    /// How long to wait for the end of the operation: at most a minute, which is below the time limit of a request.
    pub fn wait(&self) -> Result<Duration, Problem> {
        let Some(text) = self.wait.as_deref().filter(|text| !text.is_empty()) else { return Ok(Duration::ZERO) };
        let wrong = || codes::INVALID.problem(format!("wait must be a number of seconds such as 30s, not {text:?}"));
        let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let factor = match unit {
            "" | "s" => 1.0,
            "ms" => 0.001,
            "m" => 60.0,
            _ => return Err(wrong()),
        };
        let seconds = number * factor;
        if !seconds.is_finite() || seconds < 0.0 {
            return Err(wrong());
        }
        Ok(Duration::from_secs_f64(seconds.min(60.0)))
    }
}
