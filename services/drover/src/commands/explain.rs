//! `drover explain`: why here, and why not elsewhere.

use anyhow::Result;
use drover_api::ledger::Explanation;
use drover_api::scheduling::AppDecision;
use drover_api::words;

use super::Session;
use crate::client::segment;
use crate::output;

/// Runs it.
pub async fn run(session: &Session, app: &str) -> Result<()> {
    let app: Vec<String> = app.split('/').map(segment).collect();
    let path = format!("/v2/explain?app={}&project={}", app.join("%2F"), segment(&session.project));
    let explanation: Explanation = session.client.get(&path).await?;
    let decisions = explanation.decided.iter().chain(&explanation.now).map(|decided| &decided.decision);
    output::print(session.format, &explanation, |_| (vec!["APP", "CLUSTER", "PRIORITY", "VERDICT", "WHY"], rows(decisions)))
}

/// A row per member considered.
pub fn rows<'a>(decisions: impl IntoIterator<Item = &'a AppDecision>) -> Vec<Vec<String>> {
    let row = |c: words::Considered<'_>| {
        vec![c.app.to_owned(), c.member.to_owned(), c.priority.to_string(), c.verdict.to_owned(), c.reason.to_owned()]
    };
    decisions.into_iter().flat_map(words::considered).map(row).collect()
}
