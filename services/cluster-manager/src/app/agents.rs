//! The clusters that the documents of agents mean.

use drover_api::agents::{AgentDocument, AgentMember, AgentOrders};
use drover_scheduling::MemberState;
use drover_service::Problem;

use super::App;
use crate::resources::agent::{AGENT, AgentSpec};
use crate::store::registered;

impl App {
    /// The orders of all agents. A cluster that is being deregistered runs none.
    ///
    /// # Errors
    /// The store fails.
    pub async fn agent_orders(&self) -> Result<AgentOrders, Problem> {
        let mut db = self.store.acquire().await?;
        let documents = drover_resources::of_kind::<AgentSpec>(&mut db, &AGENT).await?;
        if documents.is_empty() {
            return Ok(AgentOrders::default());
        }
        let mut members = registered::all(&mut db).await?;
        members.sort_by_key(registered::Registered::key);
        let items = documents.into_iter().map(|document| {
            let order = document.spec.0;
            let meant = members.iter().filter(|member| order.includes(&member.key(), &member.labels)).map(|member| {
                let key = member.key();
                let report = self.fleet.report(&key, &document.name);
                AgentMember { state: self.fleet.state(&key).state, cordoned: member.cordon().is_some(), report, member: key }
            });
            let members = meant.filter(|member| member.state != MemberState::Deregistering).collect();
            AgentDocument { name: document.name, generation: document.version, order, members }
        });
        Ok(AgentOrders { items: items.collect() })
    }
}
