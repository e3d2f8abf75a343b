//! A member that is registered as one that Drover cannot reach: its agent runs in this process and connects to Drover.

use std::time::Duration;

use base64::Engine;
use drover::hub::Client;
use drover_api::links::{LinkInvitation, LinkState};
use drover_testkit::{ChaosProxy, eventually};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::members::Member;

/// The member of the default ones that is linked, where one is: the one to which most apps are moved.
pub const LINKED: &str = "public-c";

/// The agent of a member; it ends with the value.
pub struct Linked {
    /// Between the agent and Drover.
    pub way: ChaosProxy,
    agent: JoinHandle<anyhow::Result<()>>,
    _state: tempfile::TempDir,
}

impl Drop for Linked {
    fn drop(&mut self) {
        self.agent.abort();
    }
}

/// Says that the data path reaches the pods of a linked member although Drover does not reach its API server.
pub async fn reach_pods(member: &Member, drover: &Client) {
    let labels = format!("/v2/cluster-providers/{}/clusters/{}/labels", member.provider, member.name);
    let label = json!({"clusterLabel": "reachability=podNetwork"});
    drover.post(&labels, Some(&label)).await.expect("the label is accepted");
}

impl Linked {
    /// Registers the member, starts its agent, and accepts it.
    pub async fn register(member: &Member, drover: &Client) -> Self {
        let file = base64::engine::general_purpose::STANDARD.encode(&member.kubeconfig);
        let cluster = json!({"metadata": {"name": member.name}, "spec": {"link": true}, "file": file});
        member.register_as(drover, &cluster).await;
        let link = format!("/v2/cluster-providers/{}/clusters/{}/link", member.provider, member.name);
        let invitation = drover.post(&format!("{link}/invitation"), Some(&json!({}))).await.expect("agents are taken").body;
        let invitation: LinkInvitation = serde_json::from_value(invitation).expect("an invitation");
        let way = ChaosProxy::start(invitation.hub.parse().expect("an address")).await;
        let state = tempfile::tempdir().expect("a temporary folder");
        let path = state.path().join("invitation.json");
        std::fs::write(&path, serde_json::to_string(&invitation).expect("JSON")).expect("the folder can be written");
        let config = drover_link_agent::Config {
            invitation: Some(path),
            state: state.path().join("state"),
            api_server: Some(member.api_server()),
            hub: Some(way.address().to_string()),
            drill: Default::default(),
        };
        let agent = tokio::spawn(drover_link_agent::run(config));
        let asking = async || drover.get::<LinkState>(&link).await.expect("the link is known").fingerprint;
        let fingerprint = eventually(Duration::from_secs(120), asking).await;
        drover.put(&format!("{link}/acceptance"), &json!({"fingerprint": fingerprint})).await.expect("it is accepted");
        Self { way, agent, _state: state }
    }
}
