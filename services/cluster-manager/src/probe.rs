//! Checks that a member answers and accepts the credential: one request with a deadline, and errors as texts for users.

use std::time::Duration;

use drover_members::trimmed::Node;
use drover_scheduling::MemberState;
use drover_service::problem::chain;
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client};

/// Time limit of one request to a member.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// Said of whatever is at the address of a kubeconfig, if anything.
const NO_API_SERVER: &str = "the API server cannot be reached or does not answer as one; the log of cluster-manager says more";

/// State and reason of a member after a request or a watch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `Unreachable`, `Unauthorized`, or `Unknown` when the fault is in Drover.
    pub state: MemberState,
    /// Explanation for users. It does not tell what is at the address: a kubeconfig may name any.
    pub reason: String,
    /// What happened exactly, for the log.
    pub detail: Option<String>,
}

impl Failure {
    /// The member does not answer, or answers wrongly.
    pub fn unreachable(reason: impl Into<String>) -> Self {
        Self { state: MemberState::Unreachable, reason: reason.into(), detail: None }
    }

    /// The fault is in Drover.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self { state: MemberState::Unknown, reason: reason.into(), detail: None }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        let detail = Some(chain(&error));
        match &error {
            // Only an API server gives these reasons. The text of any other server is not passed on.
            kube::Error::Api(status) if matches!(status.reason.as_str(), "Unauthorized" | "Forbidden") => {
                Self { state: MemberState::Unauthorized, reason: format!("{}: {}", status.code, status.message), detail }
            }
            _ => Self { detail, ..Self::unreachable(NO_API_SERVER) },
        }
    }
}

/// The failure of a member whose watch ended with this error; `None` where the watch recovers by itself.
pub fn watch_failure(error: watcher::Error, what: &str) -> Option<Failure> {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            let failure = Failure::from(error);
            Some(Failure { reason: format!("cannot watch {what}: {}", failure.reason), ..failure })
        }
        watcher::Error::WatchError(_) | watcher::Error::WatchFailed(_) => None,
        watcher::Error::NoResourceVersion => {
            Some(Failure::unreachable(format!("cannot watch {what}: the answers carry no resourceVersion")))
        }
    }
}

/// The uid of the namespace `kube-system`, which identifies a Kubernetes cluster. `None` if it may not be read.
pub async fn identity(client: &Client) -> Option<String> {
    let request = http::Request::get("/api/v1/namespaces/kube-system").body(Vec::new()).ok()?;
    let found = tokio::time::timeout(DEADLINE, client.request::<serde_json::Value>(request)).await.ok()?;
    let namespace = found.inspect_err(|error| tracing::debug!(%error, "the namespace kube-system cannot be read")).ok()?;
    namespace["metadata"]["uid"].as_str().map(str::to_owned)
}

/// Lists one node. That proves the address, the credential and the right to list nodes, which the watches need.
///
/// # Errors
/// The member does not answer within [`DEADLINE`], or refuses the request.
pub async fn probe(client: &Client) -> Result<(), Failure> {
    let nodes = Api::<Node>::all(client.clone());
    let one = ListParams::default().limit(1);
    match tokio::time::timeout(DEADLINE, nodes.list(&one)).await {
        Ok(answer) => Ok(answer.map(drop)?),
        Err(_) => {
            Err(Failure { detail: Some(format!("no answer within {} s", DEADLINE.as_secs())), ..Failure::unreachable(NO_API_SERVER) })
        }
    }
}
