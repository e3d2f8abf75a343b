//! `drover cluster invite|accept|revoke`: clusters that Drover cannot reach, whose agent (`drover-link`) connects to Drover.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use drover_api::links::{LinkInvitation, LinkPhase, LinkState};
use serde_json::json;

use super::account::write_private;
use crate::clusters::find;
use crate::hub::segment;
use crate::session::Session;

/// `drover cluster invite`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover cluster kubeconfig --from edge > edge.kubeconfig            where you reach the cluster: an account for Drover
  drover cluster invite edge --provider onprem --kubeconfig edge.kubeconfig --out edge.json
  drover-link --invitation edge.json --state /var/lib/drover-link    in the cluster or beside it; prints a fingerprint
  drover cluster accept edge --fingerprint SHA256:...

The invitation holds a token that one agent can use. Made again, it replaces the earlier one.")]
pub struct InviteArgs {
    /// Name of the cluster.
    name: String,
    /// Provider of the cluster.
    #[arg(long)]
    provider: String,
    /// Kubeconfig with certificates and tokens inline, as for `drover cluster add`; its server is not connected to but may be an address that
    /// only the agent reaches. Not needed for a cluster that is registered.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Label; may be repeated.
    #[arg(long = "label", value_name = "LABEL", requires = "kubeconfig")]
    labels: Vec<String>,
    /// Priority of the provider, 1 (filled first) to 10 [default: as it is; 10 for a new provider].
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=10), requires = "kubeconfig")]
    priority: Option<u8>,
    /// For how many hours the invitation can be used, 1 to 720.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=720))]
    hours: u32,
    /// Write the invitation to this file, readable only by you, instead of to stdout.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Registers a cluster that is reached through its link, if it is not registered yet, and prints or writes an invitation for its agent.
///
/// # Errors
/// A file cannot be read or written, the cluster is registered without a link, or a request is refused or fails.
pub async fn invite(session: &Session, args: &InviteArgs) -> Result<()> {
    let path = format!("/v2/cluster-providers/{}/clusters/{}", segment(&args.provider), segment(&args.name));
    match (session.client.find(&path).await?, &args.kubeconfig) {
        (Some(_), None) => {}
        (Some(_), Some(_)) => {
            bail!("{} is registered already; `drover cluster update {0} --kubeconfig FILE` replaces its kubeconfig", args.name)
        }
        (None, None) => bail!("{} of {} is not registered yet: give --kubeconfig FILE", args.name, args.provider),
        (None, Some(kubeconfig)) => {
            let text = super::read(kubeconfig)?;
            super::register(session, &args.name, &args.provider, text.as_bytes(), &args.labels, args.priority, true).await?;
        }
    }
    let answer = session.client.post(&format!("{path}/link/invitation"), Some(&json!({"hours": args.hours}))).await?;
    let invitation: LinkInvitation = serde_json::from_value(answer.body).context("unexpected answer")?;
    let text = serde_json::to_string_pretty(&invitation)? + "\n";
    match &args.out {
        None => crate::output::write_stdout(&text)?,
        Some(file) => write_private(file, &text).with_context(|| format!("cannot write {}", file.display()))?,
    }
    eprintln!("give this to drover-link of {}; it can be used until {}", args.name, invitation.expires);
    Ok(())
}

/// Accepts the agent with this key; without a fingerprint, says how far the link of the cluster is.
///
/// # Errors
/// There is no such cluster, another key asks, or a request fails.
pub async fn accept(session: &Session, name: &str, fingerprint: Option<&str>) -> Result<()> {
    let (path, name) = link_of(session, name).await?;
    let Some(fingerprint) = fingerprint else {
        let state: LinkState = session.client.get(&path).await?;
        return crate::output::write_stdout(&(told(&name, &state) + "\n"));
    };
    session.client.put(&format!("{path}/acceptance"), &json!({"fingerprint": fingerprint})).await?;
    eprintln!("the agent of {name} is accepted; `drover get clusters` shows when the cluster is Ready");
    Ok(())
}

/// Takes back the access of a cluster's agent.
///
/// # Errors
/// There is no such cluster, or a request fails.
pub async fn revoke(session: &Session, name: &str) -> Result<()> {
    let (path, name) = link_of(session, name).await?;
    session.client.call(reqwest::Method::DELETE, &path, None).await?;
    eprintln!(
        "the agent of {name} has no access any more; what runs there goes on running. `drover cluster invite` lets an agent in again"
    );
    Ok(())
}

/// The path of a cluster's link, and the cluster's name. With `provider/name`, also of a cluster that placement does not know yet.
async fn link_of(session: &Session, name: &str) -> Result<(String, String)> {
    let (provider, cluster) = match name.split_once('/') {
        Some((provider, cluster)) => (provider.to_owned(), cluster.to_owned()),
        None => {
            let found = find(session, name).await?;
            (found.provider, found.cluster)
        }
    };
    Ok((format!("/v2/cluster-providers/{}/clusters/{}/link", segment(&provider), segment(&cluster)), cluster))
}

fn told(name: &str, state: &LinkState) -> String {
    let connected = match &state.connected_since {
        Some(since) => {
            let version = state.version.as_ref().map(|version| format!(" (drover-link {version})")).unwrap_or_default();
            format!("connected since {since}{version}")
        }
        None => "not connected".to_owned(),
    };
    match state.phase {
        LinkPhase::Waiting => {
            let fingerprint = state.fingerprint.as_deref().unwrap_or_default();
            format!(
                "an agent asks to be {name}, with the key {fingerprint}\nif drover-link prints the same there: drover cluster accept {name} \
                 --fingerprint {fingerprint}"
            )
        }
        LinkPhase::Accepted => {
            let until = state.certificate_expires.as_deref().unwrap_or("unknown");
            format!("the agent of {name} is accepted and {connected}; its certificate is valid until {until}")
        }
        LinkPhase::Invited => {
            let until = state.invitation_expires.as_deref().unwrap_or("unknown");
            format!("no agent has asked yet; the invitation of {name} can be used until {until}")
        }
        LinkPhase::Revoked => format!(
            "the access of the agent of {name} was taken back; `drover cluster invite {name} --provider PROVIDER` lets one in again"
        ),
        LinkPhase::NotInvited => {
            format!("no agent is invited for {name}; `drover cluster invite {name} --provider PROVIDER` makes an invitation")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_that_waits_is_told_with_the_command_that_accepts_it() {
        let state = LinkState { phase: LinkPhase::Waiting, fingerprint: Some("SHA256:x".into()), ..LinkState::default() };
        assert!(told("edge", &state).ends_with("drover cluster accept edge --fingerprint SHA256:x"));
        let accepted = LinkState { phase: LinkPhase::Accepted, ..LinkState::default() };
        assert!(told("edge", &accepted).contains("not connected"));
        let connected = LinkState { connected_since: Some("2026-11-25T10:00:00Z".into()), version: Some("1.2.3".into()), ..accepted };
        assert!(told("edge", &connected).contains("is accepted and connected since 2026-11-25T10:00:00Z (drover-link 1.2.3)"));
    }
}
