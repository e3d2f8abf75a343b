//! Does a member answer, and does it let us in? One request with a deadline, and errors in words for people.

use std::time::Duration;

use drover_members::trimmed::Node;
use drover_scheduling::MemberState;
use drover_service::problem::chain;
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client};

/// No single answer may take longer.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// What a member is taken to be after something failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Unreachable or Unauthorized.
    pub state: MemberState,
    /// Why, for people.
    pub reason: String,
}

impl Failure {
    /// It does not answer as it should.
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
            kube::Error::Api(status) => Self::unreachable(format!("it answers {}: {}", status.code, status.message)),
            other => Self::unreachable(chain(other)),
        }
    }
}

/// A watch that could not go on: `None` where it goes on by itself.
pub fn broken(error: watcher::Error, what: &str) -> Option<Failure> {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            let failure = Failure::from(error);
            Some(Failure { reason: format!("cannot watch {what}: {}", failure.reason), ..failure })
        }
        watcher::Error::WatchError(_) | watcher::Error::WatchFailed(_) => None,
        watcher::Error::NoResourceVersion => Some(Failure::unreachable(format!("cannot watch {what}: its answers carry no version"))),
    }
}

/// Asks for one node: proves the address, the credential and a right that is needed anyway.
pub async fn probe(client: &Client) -> Result<(), Failure> {
    let nodes = Api::<Node>::all(client.clone());
    let one = ListParams::default().limit(1);
    match tokio::time::timeout(DEADLINE, nodes.list(&one)).await {
        Ok(answer) => Ok(answer.map(drop)?),
        Err(_) => Err(Failure::unreachable(format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}
