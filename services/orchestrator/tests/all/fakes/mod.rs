//! The services that orchestrator writes into, in memory: placement with the ledger code of production, migration with the plans of
//! the test, members with the behaviour that the test sets.

mod ledger;
mod members;
mod plans;

use std::sync::Arc;

use drover_api::scheduling::{Amounts, Capacity, FleetMember, MemberKey, MemberState, Node};
use drover_orchestrator::peers::{PeerError, Services};
use drover_service::ProblemDocument;

pub use ledger::{FakeLedger, ReleaseFault};
pub use members::{Behaviour, FakeMembers};
pub use plans::FakePlans;

#[derive(Clone, Default)]
pub struct Fakes {
    pub ledger: Arc<FakeLedger>,
    pub plans: Arc<FakePlans>,
    pub members: Arc<FakeMembers>,
}

impl Fakes {
    /// Members of one node each: `(provider, cluster, priority, cpu)`.
    pub fn with(members: &[(&str, &str, u8, i64)]) -> Self {
        let fakes = Self::default();
        for (provider, cluster, priority, cpu) in members {
            let key = MemberKey::new(provider, cluster);
            let member = FleetMember { key: key.clone(), priority: *priority, state: MemberState::Ready, ..FleetMember::default() };
            let allocatable = Amounts { cpu: *cpu, memory: 1 << 40, pods: 100, ..Amounts::default() };
            let node = Node { name: format!("{cluster}-1"), allocatable, ..Node::default() };
            fakes.ledger.add_member(member, Capacity { nodes: Arc::new(vec![node]), ..Capacity::default() });
        }
        fakes
    }

    pub fn services(&self) -> Services {
        Services {
            placement: self.ledger.clone(),
            migration: self.plans.clone(),
            synchronizer: self.members.clone(),
            cluster_manager: self.ledger.clone(),
        }
    }
}

/// A refusal by a peer.
pub fn refused(peer: &'static str, status: u16, code: &str, reasons: Vec<String>) -> PeerError {
    let problem = ProblemDocument { status, code: code.to_owned(), detail: code.to_owned(), reasons, ..ProblemDocument::default() };
    PeerError::Refused { peer, status: http::StatusCode::from_u16(status).unwrap(), problem: Box::new(problem) }
}
