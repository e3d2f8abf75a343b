//! What happens when documents change: kubeconfigs are sealed, members in use are not deleted.

use std::sync::Arc;

use async_trait::async_trait;
use drover_api::clients::placement;
use drover_members::kubeconfig::vet;
use drover_resources::{Change, Document, Hooks, Verb};
use drover_scheduling::MemberKey;
use drover_service::{Answer, Peer, Problem, codes};
use drover_store::{SealKey, Tx};
use tokio::sync::Notify;

use super::Fleet;
use crate::resources::cluster::{CLUSTER, ClusterSpec};
use crate::store::{credentials, labels};

/// The hooks of cluster-manager's documents.
pub struct ClusterHooks {
    fleet: Fleet,
    key: Arc<SealKey>,
    changed: Arc<Notify>,
    placement: placement::Client,
}

impl ClusterHooks {
    /// Hooks that tell `changed` and ask `placement`.
    pub fn new(fleet: Fleet, key: Arc<SealKey>, changed: Arc<Notify>, placement: Peer) -> Self {
        // A request waits for this inside its transaction: better a quick 503 than a long wait.
        let placement = placement.attempts(2).timeout(std::time::Duration::from_secs(3)).client();
        Self { fleet, key, changed, placement }
    }

    /// EMCO's rule: without GitOps the kubeconfig is how the cluster is reached.
    fn reachable(change: &Change<'_>, cluster: &Document) -> Result<(), Problem> {
        let spec: ClusterSpec = cluster.spec().map_err(Problem::internal)?;
        if change.verb == Verb::Create && change.file.is_none() && spec.git_ops.kind.is_empty() {
            return Err(codes::MALFORMED_UPLOAD.problem("Unable to process file: the kubeconfig is missing"));
        }
        Ok(())
    }

    /// Nothing new comes to the member from now on, and nothing may be left there.
    async fn leaves_nothing(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        let labels = labels::of(tx, change.id()).await?;
        if !labels.is_empty() {
            let problem = codes::HAS_CHILDREN.problem("Cannot delete parent without deleting child references first");
            return Err(problem.reasons(labels.into_iter().map(|label| format!("{}/labels/{label}", change.path))));
        }
        let key = member_key(change.path);
        self.fleet.deregister(&key);
        let claims = self.placement.claim_list(None, Some(&key.0), None).await.answer(&self.placement);
        let left = match claims {
            Ok(claims) if claims.items.is_empty() => {
                if change.dry_run {
                    self.fleet.stay(&key);
                }
                return Ok(());
            }
            Ok(claims) => claims.items,
            Err(error) => {
                self.fleet.stay(&key);
                return Err(error.into());
            }
        };
        self.fleet.stay(&key);
        let whose = left.iter().map(|claim| format!("{} of {} {}", claim.request.app, claim.dig.project, claim.dig.name));
        Err(codes::CLAIMS_LEFT
            .problem(format!("{} applications still have room in {key}; terminate them or drain the cluster first", left.len()))
            .reasons(whose))
    }
}

/// The member of a cluster's path.
pub(crate) fn member_key(path: &str) -> MemberKey {
    let mut parts = path.split('/').skip(3);
    let provider = parts.next().unwrap_or_default();
    MemberKey::new(provider, parts.nth(1).unwrap_or_default())
}

#[async_trait]
impl Hooks for ClusterHooks {
    async fn guard(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        match (change.kind.name == CLUSTER.name, change.after) {
            (false, _) => Ok(()),
            (true, Some(cluster)) => Self::reachable(change, cluster),
            (true, None) => self.leaves_nothing(tx, change).await,
        }
    }

    async fn written(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        let Some(file) = change.file.filter(|_| change.kind.name == CLUSTER.name) else { return Ok(()) };
        // Vetted before, when the body was read; what is kept is the reduced form.
        let text = String::from_utf8_lossy(file);
        let vetted = vet(&text).map_err(|error| codes::KUBECONFIG_INVALID.problem(error.to_string()))?;
        credentials::put(tx, &self.key, change.id(), vetted.expose()).await?;
        Ok(())
    }

    async fn committed(&self, _: &Change<'_>) {
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_member() {
        assert_eq!(member_key("/v2/cluster-providers/aws/clusters/c1"), MemberKey::new("aws", "c1"));
    }
}
