//! Documents of EMCO's controllers that Drover has nothing to do with: they are stored as they were sent, so that EMCO's scripts run, and the
//! response to each write says that nothing is done about them.

use drover_resources::DocumentKind;

use crate::resources::{DIG, PROJECT};

const NETWORKS: &str = "Drover attaches no additional networks to pods";
const CHAINS: &str = "Drover builds no chains of network functions";
const CERTIFICATES: &str = "Drover distributes no certificates";
const TEMPORAL: &str = "Drover calls no Temporal workflows";
const POLICIES: &str = "Drover has no policy agent; migration policies are Drover's own";

static NETWORK_INTENT: DocumentKind = DocumentKind::stored(
    "network-controller-intent",
    "NetworkControllerIntent",
    "network-controller-intent",
    &["netControllerIntent"],
    &DIG,
    NETWORKS,
);
static WORKLOAD_INTENT: DocumentKind =
    DocumentKind::stored("workload-intent", "WorkloadIntent", "workload-intents", &["workloadIntent"], &NETWORK_INTENT, NETWORKS);
static INTERFACE_INTENT: DocumentKind =
    DocumentKind::stored("interface-intent", "InterfaceIntent", "interfaces", &["interfaceIntent"], &WORKLOAD_INTENT, NETWORKS);
static NETWORK_CHAIN: DocumentKind = DocumentKind::stored("network-chain", "NetworkChain", "network-chains", &["sfcIntent"], &DIG, CHAINS);
static CHAIN_LINK: DocumentKind =
    DocumentKind::stored("network-chain-link", "NetworkChainLink", "links", &["sfcLink"], &NETWORK_CHAIN, CHAINS);
static CHAIN_CLIENT: DocumentKind =
    DocumentKind::stored("network-chain-client", "NetworkChainClient", "client-selectors", &["sfcClientSelector"], &NETWORK_CHAIN, CHAINS);
static CHAIN_NETWORK: DocumentKind = DocumentKind::stored(
    "network-chain-network",
    "NetworkChainNetwork",
    "provider-networks",
    &["sfcProviderNetwork"],
    &NETWORK_CHAIN,
    CHAINS,
);
static CHAIN_USER: DocumentKind = DocumentKind::stored("sfc-client", "SfcClient", "sfc-clients", &["sfcClientIntent"], &DIG, CHAINS);
static TEMPORAL_ACTION: DocumentKind =
    DocumentKind::stored("temporal-action", "TemporalAction", "temporal-action-controller", &["tacIntent"], &DIG, TEMPORAL);
static TEMPORAL_WORKER: DocumentKind =
    DocumentKind::stored("temporal-worker", "TemporalWorker", "workers", &["worker"], &TEMPORAL_ACTION, TEMPORAL);
static TEMPORAL_WORKFLOW: DocumentKind =
    DocumentKind::stored("temporal-workflow", "TemporalWorkflow", "temporal-workflow-intents", &["workflowIntent"], &DIG, TEMPORAL);
static POLICY_INTENT: DocumentKind =
    DocumentKind::stored("policy-intent", "PolicyIntent", "policy-intents", &["policyIntent"], &DIG, POLICIES);
static CA_CERT: DocumentKind = DocumentKind::stored("project-ca-cert", "ProjectCaCert", "ca-certs", &["caCert"], &PROJECT, CERTIFICATES);
static CA_CERT_CLOUD: DocumentKind =
    DocumentKind::stored("project-ca-cert-cloud", "ProjectCaCertCloud", "logical-clouds", &["certLogicalCloud"], &CA_CERT, CERTIFICATES);
static CA_CERT_CLUSTER: DocumentKind =
    DocumentKind::stored("project-ca-cert-cluster", "ProjectCaCertCluster", "clusters", &["certCluster"], &CA_CERT_CLOUD, CERTIFICATES);

/// All of them, parents first.
pub static KEPT: [&DocumentKind; 15] = [
    &NETWORK_INTENT,
    &WORKLOAD_INTENT,
    &INTERFACE_INTENT,
    &NETWORK_CHAIN,
    &CHAIN_LINK,
    &CHAIN_CLIENT,
    &CHAIN_NETWORK,
    &CHAIN_USER,
    &TEMPORAL_ACTION,
    &TEMPORAL_WORKER,
    &TEMPORAL_WORKFLOW,
    &POLICY_INTENT,
    &CA_CERT,
    &CA_CERT_CLOUD,
    &CA_CERT_CLUSTER,
];
