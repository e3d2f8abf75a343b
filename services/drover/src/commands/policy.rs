//! `drover policy …`.

use anyhow::Result;
use clap::Subcommand;
use drover_api::scheduling::Candidate;
use serde_json::{Value, json};

use crate::clusters;
use crate::session::Session;
use crate::{hub, output};

/// `drover policy …`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Show the scores that a policy, active or not, gives to the apps that could be moved now.
    #[command(after_help = "Example:\n  drover policy test busy-first --on private-a")]
    Test {
        /// Name of the policy.
        name: String,
        /// Cluster whose apps are scored.
        #[arg(long)]
        on: String,
    },
}

/// Prints the candidates on the cluster with their scores under the policy.
///
/// # Errors
/// There is no such cluster or policy, or a request fails.
pub async fn run(session: &Session, command: PolicyCommand) -> Result<()> {
    let PolicyCommand::Test { name, on } = command;
    let member = clusters::find(session, &on).await?.member;
    let body = hub::body(json!({"project": session.project, "policy": name, "member": member}))?;
    let answer = session.client.answer(session.client.api.policy_test(&body)).await?;
    let list = answer.body.get("candidates").cloned().unwrap_or(Value::Array(Vec::new()));
    let candidates: Vec<Candidate> = serde_json::from_value(list)?;
    output::print(session.format, &answer.body, |_| {
        (
            vec!["#", "APP", "PRIORITY", "SCORES", "TOTAL", "STAYS BECAUSE"],
            candidates.iter().enumerate().map(|(i, c)| crate::plans::candidate_row(i, c)).collect(),
        )
    })
}
