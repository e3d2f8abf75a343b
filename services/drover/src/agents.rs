//! The agents in the clusters, as lists and explanations show them.

use anyhow::Result;
use drover_api::agents::{AgentCopy, AgentList, AgentView};
use drover_api::words;

use crate::hub::Client;

/// All agents.
///
/// # Errors
/// The request fails.
pub async fn all(client: &Client) -> Result<Vec<AgentView>> {
    Ok(client.get::<AgentList>("/v2/agent-copies").await?.items)
}

type Rows = (Vec<&'static str>, Vec<Vec<String>>);

/// A row per agent and cluster.
pub fn rows(items: &[AgentView], wide: bool) -> Rows {
    let mut head = vec!["AGENT", "ROLLOUT", "CLUSTER", "VERSION", "STATE", "HEALTHY SINCE"];
    if wide {
        head.extend(["REPORTS", "OPERATION", "REASON"]);
    }
    let second =
        |since: &Option<String>| since.as_ref().map_or_else(|| "-".into(), |at| at.split('.').next().unwrap_or_default().to_owned());
    let row = |agent: &AgentView, copy: Option<&AgentCopy>| {
        let mut row = vec![
            agent.name.clone(),
            format!("{} {}", agent.version, agent.state),
            copy.map_or_else(|| "-".into(), |copy| copy.member.0.clone()),
            copy.and_then(|copy| copy.version.clone()).unwrap_or_else(|| "-".into()),
            copy.map_or_else(|| "-".into(), |copy| copy.state.clone()),
            copy.map_or_else(|| "-".into(), |copy| second(&copy.healthy_since)),
        ];
        if wide {
            let operation = copy.and_then(|copy| copy.operation).map_or_else(|| "-".into(), |id| id.to_string());
            let why = copy.and_then(|copy| copy.reason.clone()).or_else(|| agent.reason.clone());
            let report = copy.and_then(|copy| copy.report.as_ref()).map_or_else(|| "-".into(), words::agent_report);
            row.extend([report, operation, why.unwrap_or_default()]);
        }
        row
    };
    let rows = items.iter().flat_map(|agent| match agent.copies.is_empty() {
        true => vec![row(agent, None)],
        false => agent.copies.iter().map(|copy| row(agent, Some(copy))).collect(),
    });
    (head, rows.collect())
}
