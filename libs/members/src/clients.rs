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

use crate::links::{LinkConnector, Links};
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
    links: Option<Arc<dyn Links>>,
}

impl Clients {
    /// An empty cache of clients for members within `reach`.
    pub fn new(reach: Reach) -> Self {
        let listing = Arc::new(Semaphore::new(LISTED_AT_ONCE));
        Self { built: Mutex::default(), injected: Default::default(), listing, reach, links: None }
    }

    /// Reaches linked members through these links.
    pub fn through(self, links: Arc<dyn Links>) -> Self {
        Self { links: Some(links), ..self }
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
        let client = match kubeconfig.is_linked() {
            false => connect(kubeconfig, self.reach).await?,
            true => {
                let links = self.links.clone().ok_or_else(|| invalid("belongs to a member that this service has no link to"))?;
                let connector = LinkConnector { links, member: member.clone() };
                transport::client(&configuration(kubeconfig).await?, connector).map_err(unusable)?
            }
        };
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
/// When the kubeconfig has no usable server, certificate or key, leads out of `reach`, or belongs to a member that is reached through its link.
pub async fn connect(kubeconfig: &VettedKubeconfig, reach: Reach) -> Result<kube::Client, KubeconfigError> {
    if kubeconfig.is_linked() {
        return Err(invalid("belongs to a member that is reached through its link only"));
    }
    reach.check(kubeconfig)?;
    transport::client(&configuration(kubeconfig).await?, transport::direct(reach)).map_err(unusable)
}

// kube's own messages may quote the kubeconfig, which holds secrets, so they are not passed on.
fn invalid(reason: &str) -> KubeconfigError {
    KubeconfigError::Invalid { field: "kubeconfig".into(), reason: reason.into() }
}

fn unusable(_: kube::Error) -> KubeconfigError {
    invalid("has a certificate or key that cannot be used")
}

async fn configuration(kubeconfig: &VettedKubeconfig) -> Result<kube::Config, KubeconfigError> {
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
    Ok(config)
}
