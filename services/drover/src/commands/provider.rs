//! `drover provider …`.

use anyhow::Result;
use clap::Subcommand;
use serde_json::{Value, json};

use super::Session;
use crate::client::segment;
use crate::output;

/// `drover provider …`.
#[derive(Debug, Subcommand)]
pub enum ProviderCommand {
    /// Create a provider, or change its priority.
    #[command(after_help = "Example:\n  drover provider set onprem --priority 1")]
    Set {
        /// Name.
        name: String,
        /// 1 (filled first) to 10.
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=10))]
        priority: u8,
    },
    /// List providers.
    List,
    /// Remove a provider that has no clusters.
    #[command(alias = "rm")]
    Remove {
        /// Name.
        name: String,
    },
}

const PROVIDERS: &str = "/v2/cluster-providers";

/// Runs it.
pub async fn run(session: &Session, command: ProviderCommand) -> Result<()> {
    match command {
        ProviderCommand::Set { name, priority } => {
            set(session, &name, priority).await?;
            eprintln!("provider {name}: priority {priority}");
            Ok(())
        }
        ProviderCommand::Remove { name } => {
            session.client.call(reqwest::Method::DELETE, &format!("{PROVIDERS}/{}", segment(&name)), None).await.map(drop)
        }
        ProviderCommand::List => {
            let mut providers: Vec<Value> = session.client.get(PROVIDERS).await?;
            let priority = |p: &Value| p["spec"]["priority"].as_u64().unwrap_or(10);
            providers.sort_by_key(|p| (priority(p), p["metadata"]["name"].as_str().map(str::to_owned)));
            output::print(session.format, &providers, |_| {
                let row = |p: &Value| vec![p["metadata"]["name"].as_str().unwrap_or_default().to_owned(), priority(p).to_string()];
                (vec!["NAME", "PRIORITY"], providers.iter().map(row).collect())
            })
        }
    }
}

/// Creates the provider, or changes its priority and keeps the rest of its document.
///
/// # Errors
/// A request fails.
pub async fn set(session: &Session, name: &str, priority: u8) -> Result<()> {
    let path = format!("{PROVIDERS}/{}", segment(name));
    match session.client.find(&path).await? {
        None => {
            let body = json!({"metadata": {"name": name}, "spec": {"priority": priority}});
            session.client.post(PROVIDERS, Some(&body)).await?;
        }
        Some(mut provider) => {
            provider["spec"]["priority"] = priority.into();
            session.client.put(&path, &provider).await?;
        }
    }
    Ok(())
}
