//! Hooks of document changes: kubeconfigs are sealed, and a cluster in use is not deleted.

use std::sync::Arc;

use async_trait::async_trait;
use drover_members::Reach;
use drover_members::kubeconfig::vet;
use drover_resources::{Change, Document, Hooks, Verb};
use drover_scheduling::MemberKey;
use drover_service::clients::placement;
use drover_service::{Answer, Peer, Problem, codes};
use drover_store::{SealKey, Tx};
use tokio::sync::Notify;

use super::Fleet;
use crate::resources::cluster::{CLUSTER, ClusterSpec};
use crate::store::{cordons, credentials, labels};

/// The hooks of cluster-manager's documents.
pub struct ClusterHooks {
    fleet: Fleet,
    key: Arc<SealKey>,
    changed: Arc<Notify>,
    placement: placement::Client,
    reach: Reach,
}

impl ClusterHooks {
    /// Hooks that notify `changed` and ask `placement` for claims. Kubeconfigs that lead out of `reach` are refused.
    pub fn new(fleet: Fleet, key: Arc<SealKey>, changed: Arc<Notify>, placement: Peer, reach: Reach) -> Self {
        // A user's request waits for the answer inside its transaction: an early 503 is better than a long wait.
        let placement = placement.attempts(2).timeout(std::time::Duration::from_secs(3)).into();
        Self { fleet, key, changed, placement, reach }
    }

    /// EMCO's rule: a new cluster needs a kubeconfig unless it is reached by GitOps.
    fn check_kubeconfig_present(change: &Change<'_>, cluster: &Document) -> Result<(), Problem> {
        let spec: ClusterSpec = cluster.spec().map_err(Problem::internal)?;
        if change.verb == Verb::Create && change.file.is_none() && spec.git_ops.kind.is_empty() {
            return Err(codes::MALFORMED_UPLOAD.problem("Unable to process file: the kubeconfig is missing"));
        }
        Ok(())
    }

    /// How a cluster is reached is fixed: services keep clients of it, and a kubeconfig that was accepted for a link was not checked for more.
    fn check_link(change: &Change<'_>, cluster: &Document) -> Result<(), Problem> {
        let link = |document: &Document| document.spec().map(|spec: ClusterSpec| spec.link).map_err(Problem::internal);
        match change.before {
            Some(before) if link(before)? != link(cluster)? => {
                Err(codes::INVALID.problem("link: cannot be changed; remove the cluster and register it again"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses the deletion of a cluster with labels, or, unless it was given up, with claims. The member is published as `Deregistering` before placement is asked,
    /// so that no new claim appears after the answer.
    async fn check_unused(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        let labels = labels::of(tx, change.id()).await?;
        if !labels.is_empty() {
            let problem = codes::HAS_CHILDREN.problem("Cannot delete parent without deleting child references first");
            return Err(problem.reasons(labels.into_iter().map(|label| format!("{}/labels/{label}", change.path))));
        }
        let key = member_key(change.path);
        if cordons::is_abandoned(tx, change.id()).await? {
            return Ok(());
        }
        self.fleet.deregister(&key);
        let claims = self.placement.claim_list(None, Some(&key.0), None).await.answer(&self.placement);
        let left = match claims {
            Ok(claims) if claims.items.is_empty() => {
                if change.dry_run {
                    self.fleet.cancel_deregistration(&key);
                }
                return Ok(());
            }
            Ok(claims) => claims.items,
            Err(error) => {
                self.fleet.cancel_deregistration(&key);
                return Err(error.into());
            }
        };
        self.fleet.cancel_deregistration(&key);
        let apps = left.iter().map(|claim| format!("{} of {} {}", claim.request.app, claim.dig.project, claim.dig.name));
        let still = match left.len() {
            1 => "1 copy of an application still has room".to_owned(),
            copies => format!("{copies} copies of applications still have room"),
        };
        Err(codes::CLAIMS_LEFT.problem(format!("{still} in {key}; terminate the applications or drain the cluster first")).reasons(apps))
    }
}

/// The member key of a cluster's path.
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
            (true, Some(cluster)) => {
                Self::check_kubeconfig_present(change, cluster)?;
                Self::check_link(change, cluster)
            }
            (true, None) => self.check_unused(tx, change).await,
        }
    }

    async fn written(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        let Some(file) = change.file.filter(|_| change.kind.name == CLUSTER.name) else { return Ok(()) };
        // Checked before, when the body was read; vetted again for its reduced form, which is what is stored.
        let text = String::from_utf8_lossy(file);
        let vetted =
            vet(&text).map_err(|error| codes::find(error.code()).unwrap_or(codes::KUBECONFIG_INVALID).problem(error.to_string()))?;
        // A linked cluster's address is never connected to: its agent connects to the one of its own settings.
        let linked = change.after.map(Document::spec::<ClusterSpec>).transpose().map_err(Problem::internal)?.is_some_and(|spec| spec.link);
        let checked = if linked { Ok(()) } else { self.reach.check(&vetted) };
        checked.map_err(|error| codes::KUBECONFIG_REFUSED.problem(format!("kubeconfig: {error}")))?;
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
    fn member_key_is_read_from_the_path() {
        assert_eq!(member_key("/v2/cluster-providers/aws/clusters/c1"), MemberKey::new("aws", "c1"));
    }
}
