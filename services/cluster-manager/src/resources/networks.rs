//! EMCO's networks of clusters (ncm) and certificates (ca-certs): stored as they were sent, so that EMCO's scripts run. Drover attaches no
//! additional networks to pods and distributes no certificates, and the response to each write says so.

use drover_resources::{AnySpec, DocumentKind, Echo, Put};

use super::cluster::CLUSTER;
use super::provider::PROVIDER;

const NETWORKS: &str = "Drover attaches no additional networks to pods";
const CERTIFICATES: &str = "Drover distributes no certificates";

const fn kept(
    name: &'static str,
    title: &'static str,
    segment: &'static str,
    key: &'static [&'static str],
    parent: &'static DocumentKind,
    why: &'static str,
) -> DocumentKind {
    DocumentKind::of::<AnySpec>(name, title, segment, key).below(parent).put(Put::Upsert).echo(Echo::IfSent).tag("kept").kept(why)
}

/// `…/clusters/{cluster}/networks/{network}`
pub static NETWORK: DocumentKind = kept("network", "Network", "networks", &["network"], &CLUSTER, NETWORKS);

/// `…/clusters/{cluster}/provider-networks/{providerNetwork}`
pub static PROVIDER_NETWORK: DocumentKind =
    kept("provider-network", "ProviderNetwork", "provider-networks", &["providerNetwork"], &CLUSTER, NETWORKS);

/// `…/cluster-providers/{clusterProvider}/ca-certs/{caCert}`
pub static CA_CERT: DocumentKind = kept("provider-ca-cert", "ProviderCaCert", "ca-certs", &["caCert"], &PROVIDER, CERTIFICATES);

/// `…/ca-certs/{caCert}/clusters/{certCluster}`
pub static CA_CERT_CLUSTER: DocumentKind =
    kept("provider-ca-cert-cluster", "ProviderCaCertCluster", "clusters", &["certCluster"], &CA_CERT, CERTIFICATES);
