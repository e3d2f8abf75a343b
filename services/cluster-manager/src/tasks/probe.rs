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

/// State and reason of a member after a request or a watch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `Unreachable`, `Unauthorized`, or `Unknown` when the fault is in Drover.
    pub state: MemberState,
    /// Explanation for users.
    pub reason: String,
}

impl Failure {
    /// The member does not answer, or answers wrongly.
    pub fn unreachable(reason: impl Into<String>) -> Self {
        Self { state: MemberState::Unreachable, reason: reason.into() }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
                Self { state: MemberState::Unauthorized, reason: format!("{}: {}", status.code, status.message) }
            }
            kube::Error::Api(status) => Self::unreachable(format!("the API server answers {}: {}", status.code, status.message)),
            other => Self::unreachable(chain(other)),
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

/// Lists one node. That proves the address, the credential and the right to list nodes, which the watches need.
///
/// # Errors
/// The member does not answer within [`DEADLINE`], or refuses the request.
pub async fn probe(client: &Client) -> Result<(), Failure> {
    let nodes = Api::<Node>::all(client.clone());
    let one = ListParams::default().limit(1);
    match tokio::time::timeout(DEADLINE, nodes.list(&one)).await {
        Ok(answer) => Ok(answer.map(drop)?),
        Err(_) => Err(Failure::unreachable(format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}
