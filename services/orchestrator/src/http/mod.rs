//! Verbs that are not documents. A handler extracts, calls `app`, converts.

pub mod apps;
pub mod intents;
pub mod internal;
pub mod lifecycle;
pub mod logical_clouds;
pub mod operations;
pub mod plans;
pub mod status;
pub mod traces;

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use drover_service::{Json, Problem, codes};
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::App;

/// 202 with the operation (after waiting for its end as long as asked) and where to watch it.
async fn accepted(app: &App, id: Uuid, wait: Duration) -> Result<Response, Problem> {
    let operation = app.operation(id, wait).await?;
    let mut response = (StatusCode::ACCEPTED, Json(operation)).into_response();
    let location = HeaderValue::from_str(&format!("/v2/operations/{id}")).expect("a path with a uuid is a header value");
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// Query of every verb.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct VerbQuery {
    /// `All`: say what would be done, write nothing.
    #[serde(rename = "dryRun")]
    pub dry_run: Option<String>,
    /// Wait this long for the end, as `30s`.
    pub wait: Option<String>,
}

impl VerbQuery {
    /// Whether it is a dry run.
    pub fn dry(&self) -> Result<bool, Problem> {
        match self.dry_run.as_deref() {
            None | Some("") => Ok(false),
            Some(word) if word.eq_ignore_ascii_case("all") => Ok(true),
            Some(other) => Err(codes::INVALID.problem(format!("dryRun is All or absent, not {other:?}"))),
        }
    }

    /// How long to wait; at most a minute, below the time limit of a request.
    pub fn wait(&self) -> Result<Duration, Problem> {
        let Some(text) = self.wait.as_deref().filter(|text| !text.is_empty()) else { return Ok(Duration::ZERO) };
        let wrong = || codes::INVALID.problem(format!("wait is a number of seconds as 30s, not {text:?}"));
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
