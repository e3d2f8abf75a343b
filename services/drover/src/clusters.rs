//! The registered clusters, as every command asks for them.

use anyhow::{Result, bail};
use drover_api::ledger::ClusterCapacity;

use crate::session::Session;

/// All clusters, most preferred first.
///
/// # Errors
/// The request fails.
pub async fn all(session: &Session) -> Result<Vec<ClusterCapacity>> {
    session.client.read(session.client.api.cluster_capacity_list(Some("capacity"))).await
}

/// The cluster called `name` or `provider/name`.
///
/// # Errors
/// No cluster or several clusters have that name, or the request fails.
pub async fn find(session: &Session, name: &str) -> Result<ClusterCapacity> {
    let clusters = all(session).await?;
    let known = clusters.iter().map(|c| format!("{}/{}", c.provider, c.cluster)).collect::<Vec<_>>().join(", ");
    let mut found: Vec<_> = clusters
        .into_iter()
        .filter(|c| c.cluster == name || format!("{}/{}", c.provider, c.cluster) == name || c.member.0 == name)
        .collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => bail!("no cluster is called {name}; registered are: {known}"),
        _ => bail!("several providers have a cluster {name}; give it as provider/{name} ({known})"),
    }
}
