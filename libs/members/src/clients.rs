//! One client per member, built when first needed and again when its credential changes.
//!
//! Building one costs 5 ms and a pool of connections, so it is never done per request. Invariant: a client of an older
//! credential version is never handed out after a newer one was asked for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use drover_scheduling::MemberKey;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::member::lock;
use crate::transport;
use crate::{KubeconfigError, VettedKubeconfig};

/// No answer to a connection attempt for so long: unreachable.
const CONNECT: Duration = Duration::from_secs(5);
/// A request that cannot be sent for so long: unreachable.
const WRITE: Duration = Duration::from_secs(10);

/// Members that are listed at the same time after a start or an outage: of more at once each would take longer than it may.
const LISTED_AT_ONCE: usize = 16;

struct Entry {
    version: i64,
    client: kube::Client,
}

/// The cache. Cheap to share behind an `Arc`.
pub struct Clients {
    built: Mutex<HashMap<MemberKey, Entry>>,
    injected: std::sync::Mutex<HashMap<MemberKey, kube::Client>>,
    listing: Arc<Semaphore>,
}

impl Default for Clients {
    fn default() -> Self {
        Self { built: Mutex::default(), injected: Default::default(), listing: Arc::new(Semaphore::new(LISTED_AT_ONCE)) }
    }
}

impl Clients {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on `member` is reached by this client, whatever its kubeconfig says (the simulator in the same process).
    pub fn inject(&self, member: MemberKey, client: kube::Client) {
        self.injected().insert(member, client);
    }

    /// The client of `member` for this version of its credential; `kubeconfig` is only read when it must be built.
    pub async fn get(&self, member: &MemberKey, version: i64, kubeconfig: &VettedKubeconfig) -> Result<kube::Client, KubeconfigError> {
        if let Some(client) = self.cached(member, version).await {
            return Ok(client);
        }
        let client = connect(kubeconfig).await?;
        let mut built = self.built.lock().await;
        match built.get(member) {
            Some(entry) if entry.version >= version => Ok(entry.client.clone()),
            _ => {
                built.insert(member.clone(), Entry { version, client: client.clone() });
                Ok(client)
            }
        }
    }

    /// The client if it is there already, so that the caller need not fetch a kubeconfig.
    pub async fn cached(&self, member: &MemberKey, version: i64) -> Option<kube::Client> {
        if let Some(client) = self.injected().get(member) {
            return Some(client.clone());
        }
        self.built.lock().await.get(member).filter(|entry| entry.version >= version).map(|entry| entry.client.clone())
    }

    /// Waits for its turn to list a whole member, which ends when the answer is dropped.
    pub async fn turn_to_list(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.listing).acquire_owned().await.expect("nobody closes it")
    }

    /// Drops the client of a member that is gone.
    pub async fn forget(&self, member: &MemberKey) {
        self.built.lock().await.remove(member);
    }

    fn injected(&self) -> std::sync::MutexGuard<'_, HashMap<MemberKey, kube::Client>> {
        lock(&self.injected)
    }
}

/// A client outside any cache, for a first probe.
pub async fn connect(kubeconfig: &VettedKubeconfig) -> Result<kube::Client, KubeconfigError> {
    // What kube says is about the kubeconfig's form and may quote it: told is only that it cannot be used.
    let invalid = |reason: &str| KubeconfigError::Invalid { field: "kubeconfig".into(), reason: reason.into() };
    let parsed = Kubeconfig::from_yaml(kubeconfig.expose()).map_err(|_| invalid("cannot be read"))?;
    let mut config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .map_err(|_| invalid("has no usable server, certificate or key"))?;
    config.connect_timeout = Some(CONNECT);
    config.write_timeout = Some(WRITE);
    if config.cluster_url.scheme_str() == Some("http") {
        // There is nobody to verify: else each client reads and keeps all certificates that this machine trusts.
        config.root_cert = Some(Vec::new());
    }
    transport::client(&config).map_err(|_| invalid("has a certificate or key that cannot be used"))
}
