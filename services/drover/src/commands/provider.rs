//! `drover provider …`.

use anyhow::Result;
use clap::Subcommand;
use serde_json::{Value, json};

use crate::hub;
use crate::output;
use crate::session::Session;

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

/// Runs the subcommand.
///
/// # Errors
/// A request is refused or fails.
pub async fn run(session: &Session, command: ProviderCommand) -> Result<()> {
    match command {
        ProviderCommand::Set { name, priority } => {
            set(session, &name, priority).await?;
            eprintln!("provider {name}: priority {priority}");
            Ok(())
        }
        ProviderCommand::Remove { name } => {
            session.client.answer(session.client.api.cluster_provider_delete(&name, None, None)).await.map(drop)
        }
        ProviderCommand::List => {
            let mut providers: Vec<Value> = session.client.read(session.client.api.cluster_provider_list(None, None)).await?;
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
    let (client, api) = (&session.client, &session.client.api);
    let known: Option<Value> = client.read_if_there(api.cluster_provider_get(name)).await?;
    match known {
        None => {
            let provider = hub::body(json!({"metadata": {"name": name}, "spec": {"priority": priority}}))?;
            client.answer(api.cluster_provider_create(None, None, &provider)).await?;
        }
        Some(mut provider) => {
            provider["spec"]["priority"] = priority.into();
            client.answer(api.cluster_provider_put(name, None, None, None, &hub::body(provider)?)).await?;
        }
    }
    Ok(())
}
