//! `drover agents …`: Drover's own agents in the clusters. What is asked for is a document; the rollout happens in the service.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use drover_api::agents::{AgentOrder, AgentPlace, AgentView};
use drover_api::scheduling::MemberKey;
use serde_json::{Value, json};

use crate::agents::{all, rows};
use crate::hub::Client;
use crate::output;
use crate::session::Session;

/// How often a rollout that is waited for is looked at.
const POLL: Duration = Duration::from_millis(500);

/// `drover agents …`.
#[derive(Debug, Subcommand)]
pub enum AgentsCommand {
    /// Say which clusters run an agent, in which version and with which settings. What is not given stays as it is.
    #[command(disable_version_flag = true)] // `--version` is that of the agent
    Set(Box<SetArgs>),
    /// Give no further cluster a new version until `resume`.
    Pause {
        #[arg(value_enum)]
        agent: Agent,
    },
    /// Go on with a rollout that was paused.
    Resume {
        #[arg(value_enum)]
        agent: Agent,
    },
    /// Remove an agent from all clusters.
    #[command(alias = "rm")]
    Remove {
        #[arg(value_enum)]
        agent: Agent,
        /// Wait until it is gone everywhere.
        #[arg(long)]
        wait: bool,
    },
    /// List the agents and the clusters in which they run; the same as `drover get agents`.
    List,
}

/// The agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Agent {
    /// Scales workloads by load, also to zero
    Autoscaler,
    /// Keeps the containers of a node from being killed when memory runs out
    MemoryGuard,
}

impl Agent {
    fn path(self) -> String {
        format!("/v2/agents/{}", self.name())
    }
    fn name(self) -> &'static str {
        match self {
            Self::Autoscaler => "autoscaler",
            Self::MemoryGuard => "memory-guard",
        }
    }
}

/// `drover agents set`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover agents set autoscaler --on all --version 0.1.0 --wait
  drover agents set autoscaler --on provider=onprem --on label=gpu --version 0.2.0
  drover agents set memory-guard --on cluster=private-a --version 0.1.0 --set MEMGUARD_MODE=recommend
  drover agents set memory-guard --set-on onprem+private-a:MEMGUARD_MODE=apply
  drover get agents

Clusters get a new version one after the other, each when the one before has been ready for --healthy-seconds. If it fails in one, no
other gets it, and those that have it go back to the version before.")]
pub struct SetArgs {
    #[arg(value_enum)]
    agent: Agent,
    /// Version, which is the tag of the image.
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Image without its tag [default: drover].
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Clusters that run it: `all`, or `provider=NAME`, `cluster=NAME`, `label=LABEL`, several of them separated by commas. May be
    /// repeated: a cluster runs the agent if one of them is true of it.
    #[arg(long, value_name = "PLACE", value_parser = place)]
    on: Vec<AgentPlace>,
    /// A cluster that does not run it although it is meant by --on, as PROVIDER+CLUSTER; may be repeated.
    #[arg(long, value_name = "CLUSTER")]
    except: Vec<String>,
    /// A setting (environment variable) of the agent; an empty value removes it. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// A setting for one cluster; an empty value removes it. May be repeated.
    #[arg(long, value_name = "PROVIDER+CLUSTER:NAME=VALUE", value_parser = setting_of_cluster)]
    set_on: Vec<(String, (String, String))>,
    /// An annotation of its pods; an empty value removes it. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pod_annotation: Vec<(String, String)>,
    /// Seconds for which a cluster must have been ready before the next one gets the version [default: 10].
    #[arg(long, value_name = "SECONDS")]
    healthy_seconds: Option<u32>,
    /// Show what would be stored, and store nothing.
    #[arg(long)]
    dry_run: bool,
    /// Wait until all clusters have it, or it was stopped (exit code 1).
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
}

fn place(text: &str) -> Result<AgentPlace, String> {
    let mut place = AgentPlace::default();
    if text == "all" {
        return Ok(place);
    }
    for part in text.split(',') {
        let field = match part.split_once('=') {
            Some(("provider", name)) => place.provider.replace(name.to_owned()).map_or(Ok(()), Err),
            Some(("cluster", name)) => place.cluster.replace(name.to_owned()).map_or(Ok(()), Err),
            Some(("label", label)) => place.label.replace(label.to_owned()).map_or(Ok(()), Err),
            _ => return Err(format!("{part:?} is neither all nor provider=NAME, cluster=NAME or label=LABEL")),
        };
        field.map_err(|_| format!("{part:?}: this was given already; repeat --on for other clusters"))?;
    }
    Ok(place)
}

fn setting(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "give NAME=VALUE".to_owned())
}

fn setting_of_cluster(text: &str) -> Result<(String, (String, String)), String> {
    let (cluster, pair) = text.split_once(':').filter(|(cluster, _)| cluster.contains('+')).ok_or("give PROVIDER+CLUSTER:NAME=VALUE")?;
    Ok((cluster.to_owned(), setting(pair)?))
}

/// Runs the subcommand; the exit code of the command.
///
/// # Errors
/// A request is refused or fails.
pub async fn run(session: &Session, command: AgentsCommand) -> Result<ExitCode> {
    let client = &session.client;
    match command {
        AgentsCommand::Set(args) => return set(session, *args).await,
        AgentsCommand::Pause { agent } => pause(client, agent, true).await?,
        AgentsCommand::Resume { agent } => pause(client, agent, false).await?,
        AgentsCommand::Remove { agent, wait } => {
            client.call(reqwest::Method::DELETE, &agent.path(), None).await?;
            while wait && all(client).await?.iter().any(|found| found.name == agent.name()) {
                tokio::time::sleep(POLL).await;
            }
            eprintln!("{} is {} from all clusters", agent.name(), if wait { "removed" } else { "being removed" });
        }
        AgentsCommand::List => {
            let items = all(client).await?;
            output::print(session.format, &items, |wide| rows(&items, wide))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn set(session: &Session, args: SetArgs) -> Result<ExitCode> {
    let (client, path) = (&session.client, args.agent.path());
    let name = args.agent.name();
    let stored = client.find(&path).await?;
    let before = match &stored {
        Some(document) => serde_json::from_value(document["spec"].clone())?,
        None => AgentOrder { image: "drover".to_owned(), healthy_seconds: 10, ..AgentOrder::default() },
    };
    let (wait, dry_run) = (args.wait, args.dry_run);
    let order = changed(before, args)?;
    let mut document = stored.unwrap_or_else(|| json!({"metadata": {"name": name}}));
    document["spec"] = serde_json::to_value(&order)?;
    let earlier = generation(client, name).await?;
    if dry_run {
        let checked = client.put(&format!("{path}?dryRun=All"), &document).await?;
        output::print(session.format, &checked.body, |_| (vec!["AGENT", "VERSION", "IMAGE", "ON"], vec![dry_row(name, &order)]))?;
        return Ok(ExitCode::SUCCESS);
    }
    client.put(&path, &document).await?;
    if !wait {
        eprintln!("{name} {} is being rolled out; `drover get agents --watch` follows it", order.version);
        return Ok(ExitCode::SUCCESS);
    }
    let view = rolled_out(client, name, earlier).await?;
    output::print(session.format, &view, |wide| rows(std::slice::from_ref(&view), wide))?;
    if view.state == "Stopped" {
        eprintln!("error: {name} {} was stopped: {}", order.version, view.reason.unwrap_or_default());
        eprintln!("  next: `drover get agents -o wide` shows what runs where; `drover agents set {name}` again tries again");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The order with what was given.
fn changed(mut order: AgentOrder, args: SetArgs) -> Result<AgentOrder> {
    if let Some(version) = args.version {
        order.version = version;
    }
    if let Some(image) = args.image {
        order.image = image;
    }
    if !args.on.is_empty() {
        order.on = args.on;
        order.except.clear();
    }
    if !args.except.is_empty() {
        order.except = args.except.into_iter().map(MemberKey).collect();
    }
    if let Some(seconds) = args.healthy_seconds {
        order.healthy_seconds = seconds;
    }
    put_all(&mut order.settings, args.set);
    put_all(&mut order.pod_annotations, args.pod_annotation);
    for (cluster, pair) in args.set_on {
        put_all(order.members.entry(cluster).or_default(), vec![pair]);
    }
    order.members.retain(|_, settings| !settings.is_empty());
    if order.version.is_empty() {
        bail!("this agent is in no cluster yet: give its --version and the clusters with --on");
    }
    if order.on.is_empty() {
        bail!("say which clusters are to run it: --on all, --on provider=NAME, --on cluster=NAME or --on label=LABEL");
    }
    Ok(order)
}

fn put_all(map: &mut BTreeMap<String, String>, pairs: Vec<(String, String)>) {
    for (name, value) in pairs {
        if value.is_empty() {
            map.remove(&name)
        } else {
            map.insert(name, value)
        };
    }
}

async fn pause(client: &Client, agent: Agent, paused: bool) -> Result<()> {
    let mut document: Value = client.get(&agent.path()).await?;
    document["spec"]["paused"] = paused.into();
    client.put(&agent.path(), &document).await?;
    eprintln!("the rollout of {} {}", agent.name(), if paused { "is paused" } else { "goes on" });
    Ok(())
}

async fn generation(client: &Client, name: &str) -> Result<i64> {
    Ok(all(client).await?.iter().find(|agent| agent.name == name).map_or(0, |agent| agent.generation))
}

/// Waits until the rollout that began after the one of this generation has ended, and copies that go back have done so.
async fn rolled_out(client: &Client, name: &str, earlier: i64) -> Result<AgentView> {
    let mut said = String::new();
    loop {
        let found = all(client).await?.into_iter().find(|agent| agent.name == name && agent.generation > earlier);
        if let Some(view) = found {
            let moving = view.copies.iter().any(|copy| ["Installing", "Updating", "Removing"].contains(&copy.state.as_str()));
            if view.state == "Done" || (view.state == "Stopped" && !moving && gone_back(&view)) {
                return Ok(view);
            }
            let now = format!("{name} {}: {}{}", view.version, view.state, view.reason.map(|why| format!(", {why}")).unwrap_or_default());
            if now != said {
                eprintln!("{now}");
                said = now;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            _ = tokio::signal::ctrl_c() => bail!("stopped waiting; the rollout goes on: `drover get agents` shows how far it is"),
        }
    }
}

/// Whether no cluster has the version that failed any more, or no version that it could go back to has run anywhere.
fn gone_back(view: &AgentView) -> bool {
    let with = view.copies.iter().filter(|copy| copy.version.as_ref() == Some(&view.version)).count();
    let others = view.copies.iter().filter(|copy| copy.version.as_ref().is_some_and(|version| *version != view.version)).count();
    with == 0 || others == 0
}

fn dry_row(name: &str, order: &AgentOrder) -> Vec<String> {
    let place = |place: &AgentPlace| {
        let parts = [("provider", &place.provider), ("cluster", &place.cluster), ("label", &place.label)];
        let parts: Vec<String> = parts.into_iter().filter_map(|(field, value)| Some(format!("{field}={}", value.as_ref()?))).collect();
        if parts.is_empty() { "all".to_owned() } else { parts.join(",") }
    };
    let on: Vec<String> = order.on.iter().map(place).collect();
    vec![name.to_owned(), order.version.clone(), format!("{}:{}", order.image, order.version), on.join(" or ")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_mistakes_named() {
        assert_eq!(place("all"), Ok(AgentPlace::default()));
        let both = AgentPlace { provider: Some("onprem".into()), label: Some("zone=kr-1".into()), cluster: None };
        assert_eq!(place("provider=onprem,label=zone=kr-1"), Ok(both));
        assert!(place("onprem").unwrap_err().contains("provider=NAME"));
        assert!(place("provider=a,provider=b").unwrap_err().contains("repeat --on"));
        assert_eq!(setting("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert!(setting("A").is_err() && setting_of_cluster("a:A=1").is_err());
        assert_eq!(setting_of_cluster("p+a:A=1"), Ok(("p+a".into(), ("A".into(), "1".into()))));
    }
}
