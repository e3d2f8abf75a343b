//! One client per member, built when first needed and again when its credential changes.
//!
//! Building one takes 5 ms and a pool of connections, so it is never done per request. Invariant: a client of an older
//! credential version is never returned after a newer version was asked for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use drover_scheduling::MemberKey;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::member::lock;
use crate::reach::Reach;
use crate::transport;
use crate::{KubeconfigError, VettedKubeconfig};

/// A member that accepts no connection for this long is unreachable.
const CONNECT: Duration = Duration::from_secs(5);
/// A member to which a request cannot be sent for this long is unreachable.
const WRITE: Duration = Duration::from_secs(10);

/// How many members are listed at the same time after a start or an outage. With more, each list would exceed its time limit.
const LISTED_AT_ONCE: usize = 16;

struct Entry {
    version: i64,
    client: kube::Client,
}

/// A cache of one client per member; share it behind an `Arc`.
pub struct Clients {
    built: Mutex<HashMap<MemberKey, Entry>>,
    injected: std::sync::Mutex<HashMap<MemberKey, kube::Client>>,
    listing: Arc<Semaphore>,
    reach: Reach,
}

impl Clients {
    /// An empty cache of clients for members within `reach`.
    pub fn new(reach: Reach) -> Self {
        Self { built: Mutex::default(), injected: Default::default(), listing: Arc::new(Semaphore::new(LISTED_AT_ONCE)), reach }
    }

    /// Where members may be.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Uses this client for `member` from now on, whatever its kubeconfig says: for a simulator in the same process.
    pub fn inject(&self, member: MemberKey, client: kube::Client) {
        self.injected().insert(member, client);
    }

    /// The client of `member` for this version of its credential; `kubeconfig` is used only if the client must be built.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used, see [`connect`].
    pub async fn get(&self, member: &MemberKey, version: i64, kubeconfig: &VettedKubeconfig) -> Result<kube::Client, KubeconfigError> {
        if let Some(client) = self.cached(member, version).await {
            return Ok(client);
        }
        let client = connect(kubeconfig, self.reach).await?;
        let mut built = self.built.lock().await;
        match built.get(member) {
            Some(entry) if entry.version >= version => Ok(entry.client.clone()),
            _ => {
                built.insert(member.clone(), Entry { version, client: client.clone() });
                Ok(client)
            }
        }
    }

    /// The client if it has been built for this version or a newer one, so that the caller need not fetch a kubeconfig.
    pub async fn cached(&self, member: &MemberKey, version: i64) -> Option<kube::Client> {
        if let Some(client) = self.injected().get(member) {
            return Some(client.clone());
        }
        self.built.lock().await.get(member).filter(|entry| entry.version >= version).map(|entry| entry.client.clone())
    }

    /// Waits until a whole member may be listed. Dropping the permit lets the next one begin.
    pub async fn turn_to_list(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.listing).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Removes the client of a member that was deregistered.
    pub async fn forget(&self, member: &MemberKey) {
        self.built.lock().await.remove(member);
    }

    fn injected(&self) -> std::sync::MutexGuard<'_, HashMap<MemberKey, kube::Client>> {
        lock(&self.injected)
    }
}

/// A client outside any cache, for a first probe.
///
/// # Errors
/// When the kubeconfig has no usable server, certificate or key, or leads out of `reach`.
pub async fn connect(kubeconfig: &VettedKubeconfig, reach: Reach) -> Result<kube::Client, KubeconfigError> {
    reach.check(kubeconfig)?;
    // kube's own message may quote the kubeconfig, which holds secrets, so it is not passed on.
    let invalid = |reason: &str| KubeconfigError::Invalid { field: "kubeconfig".into(), reason: reason.into() };
    let parsed = Kubeconfig::from_yaml(kubeconfig.expose()).map_err(|_| invalid("cannot be read"))?;
    let mut config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .map_err(|_| invalid("has no usable server, certificate or key"))?;
    config.connect_timeout = Some(CONNECT);
    config.write_timeout = Some(WRITE);
    if config.cluster_url.scheme_str() == Some("http") {
        // No server is verified: otherwise each client would read and keep all certificates that this machine trusts.
        config.root_cert = Some(Vec::new());
    }
    transport::client(&config, reach).map_err(|_| invalid("has a certificate or key that cannot be used"))
}
