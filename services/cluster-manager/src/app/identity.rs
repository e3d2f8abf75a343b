//! Which Kubernetes cluster a kubeconfig leads to, whatever its address: known by the uid of the namespace `kube-system`.
//!
//! A cluster that is registered under two names would have its room given away twice. The check before a registration says so; the
//! worker of a member finds out what was not known then, and does not use the second registration.

use drover_api::members::{ClusterCheck, SecretKubeconfig};
use drover_members::kubeconfig::vet;
use drover_scheduling::{MemberKey, MemberState};
use drover_service::{Problem, codes};
use drover_store::StoreResult;
use uuid::Uuid;

use super::App;
use crate::probe::{identity, probe};
use crate::store::identities;

impl App {
    /// Probes what a kubeconfig leads to. Stores nothing.
    ///
    /// # Errors
    /// `kubeconfig_invalid` or `kubeconfig_refused`; the store fails.
    pub async fn check(&self, kubeconfig: &SecretKubeconfig) -> Result<ClusterCheck, Problem> {
        let vetted = vet(kubeconfig.expose()).map_err(refused)?;
        let client = drover_members::clients::connect(&vetted, self.clients.reach()).await.map_err(refused)?;
        let (state, reason) = match probe(&client).await {
            Ok(()) => (MemberState::Ready, None),
            Err(failure) => (failure.state, Some(failure.reason)),
        };
        let uid = if state == MemberState::Ready { identity(&client).await } else { None };
        let registered_as = match &uid {
            Some(uid) => {
                let mut db = self.store.acquire().await?;
                identities::owner(&mut db, uid).await?
            }
            None => None,
        };
        Ok(ClusterCheck { state, reason, uid, registered_as })
    }

    /// Records which Kubernetes cluster a member is. Returns the member that is the same cluster, if another was registered before.
    ///
    /// # Errors
    /// The store fails.
    pub async fn identify(&self, member: Uuid, uid: &str) -> StoreResult<Option<MemberKey>> {
        let mut db = self.store.acquire().await?;
        match identities::put(&mut db, member, uid).await {
            Err(error) if error.constraint() == Some("member_identity_uid_key") => match identities::owner(&mut db, uid).await? {
                Some(owner) => Ok(Some(owner)),
                // The other one has just been deleted.
                None => identities::put(&mut db, member, uid).await.map(|()| None),
            },
            // It is being deleted.
            Err(error) if error.constraint() == Some("member_identity_cluster_id_fkey") => Ok(None),
            other => other.map(|()| None),
        }
    }

    /// The uid that [`App::identify`] recorded.
    ///
    /// # Errors
    /// The store fails.
    pub async fn identity_of(&self, member: Uuid) -> StoreResult<Option<String>> {
        let mut db = self.store.acquire().await?;
        identities::of(&mut db, member).await
    }
}

fn refused(error: drover_members::KubeconfigError) -> Problem {
    codes::find(error.code()).unwrap_or(codes::KUBECONFIG_INVALID).problem(error.to_string())
}
