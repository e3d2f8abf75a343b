//! `drover explain`: why here, and why not elsewhere.

use anyhow::Result;
use serde_json::Value;

use super::Session;
use crate::client::segment;
use crate::output;

/// Runs it.
pub async fn run(session: &Session, app: &str) -> Result<()> {
    let app: Vec<String> = app.split('/').map(segment).collect();
    let path = format!("/v2/explain?app={}&project={}", app.join("%2F"), segment(&session.project));
    let explanation: Value = session.client.get(&path).await?;
    output::print(session.format, &explanation, |_| (vec!["APP", "CLUSTER", "PRIORITY", "VERDICT", "WHY"], rows(&explanation)))
}

/// A row per member considered, from a decision (or a list of them) anywhere in the explanation.
pub fn rows(explanation: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    collect(explanation, &mut rows);
    rows
}

fn collect(value: &Value, rows: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(map) if map.contains_key("app") && map.contains_key("groups") => {
            let app = value["app"].as_str().unwrap_or_default();
            for considered in
                value["groups"].as_array().into_iter().flatten().flat_map(|g| g["considered"].as_array().into_iter().flatten())
            {
                let text = |key: &str| considered[key].as_str().unwrap_or_default().to_owned();
                rows.push(vec![app.to_owned(), text("member"), considered["priority"].to_string(), text("verdict"), text("reason")]);
            }
        }
        Value::Object(map) => map.values().for_each(|inner| collect(inner, rows)),
        Value::Array(list) => list.iter().for_each(|inner| collect(inner, rows)),
        _ => {}
    }
}
