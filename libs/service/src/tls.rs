//! TLS of a service: the certificate that it shows to clients and, as its identity, to other services, and the authority whose certificates
//! it believes.
//!
//! An identity is a DNS name in a certificate: the name of the service. Whoever calls `placement` demands a certificate of `placement`, at
//! whatever address; the called service looks up in [`may_call`] what the caller may do. The files are read again when they change, so that
//! certificates are renewed without a restart; files that do not fit together leave the old certificate in use.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use clap::Args;
use http::Method;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme, SupportedProtocolVersion,
};
use tokio_util::sync::CancellationToken;

/// Settings of TLS.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsSettings {
    /// PEM file with the certificate of this service, followed by those that lead to its authority; read again when it changes
    #[arg(long = "tls-cert-file", env = "DROVER_TLS_CERT_FILE", value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// PEM file with the key of the certificate
    #[arg(long = "tls-key-file", env = "DROVER_TLS_KEY_FILE", value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// PEM file with the authority of the services' certificates: services then know each other by certificates instead of the peer token
    #[arg(long = "tls-ca-file", env = "DROVER_TLS_CA_FILE", value_name = "FILE", requires = "cert")]
    pub ca: Option<PathBuf>,
}

/// The services that certificates can name.
const SERVICES: [&str; 7] = ["gateway", "cluster-manager", "orchestrator", "placement", "migration", "resource-synchronizer", "traffic"];

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The service that sends a request, as its certificate says. In the extensions of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerName(pub &'static str);

/// Whether a service may send this request to another: only the orchestrator changes anything below `/internal`, and the gateway has
/// nothing to do there.
pub fn may_call(caller: &str, method: &Method, path: &str) -> bool {
    let internal = matches!(path.split('/').nth(1), Some("internal" | "debug"));
    match caller {
        "orchestrator" => true,
        "gateway" => !internal,
        _ => method.is_safe(),
    }
}

/// Certificates and what is made of them; cheap to clone.
#[derive(Clone)]
pub struct Tls(Arc<Parts>);

struct Parts {
    cert: PathBuf,
    key: PathBuf,
    ca: Option<PathBuf>,
    loaded: RwLock<Loaded>,
    clients: Mutex<HashMap<&'static str, reqwest::Client>>,
}

#[derive(Clone)]
struct Loaded {
    own: Arc<CertifiedKey>,
    peers: Option<Verifiers>,
    stamp: Vec<Option<(SystemTime, u64)>>,
}

#[derive(Clone)]
struct Verifiers {
    of_servers: Arc<WebPkiServerVerifier>,
    of_clients: Arc<dyn ClientCertVerifier>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({})", self.0.cert.display())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

const VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

impl TlsSettings {
    /// Reads the files, if they are set.
    ///
    /// # Errors
    /// A file cannot be read, or key and certificate do not fit.
    pub fn load(&self) -> anyhow::Result<Option<Tls>> {
        let (Some(cert), Some(key)) = (self.cert.clone(), self.key.clone()) else {
            ensure!(self.cert.is_none() && self.key.is_none() && self.ca.is_none(), "--tls-cert-file and --tls-key-file belong together");
            return Ok(None);
        };
        let loaded = load(&cert, &key, self.ca.as_ref())?;
        Ok(Some(Tls(Arc::new(Parts { cert, key, ca: self.ca.clone(), loaded: RwLock::new(loaded), clients: Mutex::default() }))))
    }
}

fn load(cert: &PathBuf, key: &PathBuf, ca: Option<&PathBuf>) -> anyhow::Result<Loaded> {
    // Before the files: what changes while they are read is seen the next time.
    let stamp = stamp(cert, key, ca);
    let certificates = |path: &PathBuf| -> anyhow::Result<Vec<CertificateDer<'static>>> {
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let read = read.with_context(|| format!("cannot read certificates from {}", path.display()))?;
        ensure!(!read.is_empty(), "{} holds no certificate", path.display());
        Ok(read)
    };
    let secret = PrivateKeyDer::from_pem_file(key).with_context(|| format!("cannot read a key from {}", key.display()))?;
    let own = CertifiedKey::from_der(certificates(cert)?, secret, &provider());
    let own = Arc::new(own.with_context(|| format!("{} and {} do not fit", cert.display(), key.display()))?);
    let peers = match ca {
        None => None,
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(path)? {
                roots.add(root).with_context(|| format!("{} holds something that is no authority", path.display()))?;
            }
            let roots = Arc::new(roots);
            let of_servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider()).build()?;
            let of_clients = WebPkiClientVerifier::builder_with_provider(roots, provider()).allow_unauthenticated().build()?;
            Some(Verifiers { of_servers, of_clients })
        }
    };
    Ok(Loaded { own, peers, stamp })
}

/// What changes when one of the files does.
fn stamp(cert: &PathBuf, key: &PathBuf, ca: Option<&PathBuf>) -> Vec<Option<(SystemTime, u64)>> {
    let of = |path: &PathBuf| std::fs::metadata(path).and_then(|about| Ok((about.modified()?, about.len()))).ok();
    [Some(cert), Some(key), ca].into_iter().flatten().map(of).collect()
}

impl Tls {
    /// Whether services know each other by certificates.
    pub fn is_mutual(&self) -> bool {
        self.0.ca.is_some()
    }

    fn loaded(&self) -> Loaded {
        self.0.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again whenever they have changed, until `stop`.
    pub(crate) async fn follow(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            let Parts { cert, key, ca, .. } = &*self.0;
            if stamp(cert, key, ca.as_ref()) == self.loaded().stamp {
                continue;
            }
            match load(cert, key, ca.as_ref()) {
                Ok(loaded) => {
                    *self.0.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
                    tracing::info!(cert = %cert.display(), "the certificate has changed and is in use");
                }
                // Perhaps only one of the files has been replaced yet.
                Err(error) => tracing::warn!("the changed certificate is not used: {error:#}"),
            }
        }
    }

    /// For a listener. `peers`: certificates of clients are looked at.
    ///
    /// # Errors
    /// The provider of cryptography knows none of the versions.
    pub(crate) fn server(&self, peers: bool) -> anyhow::Result<Arc<ServerConfig>> {
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(VERSIONS)?;
        let builder = match peers && self.is_mutual() {
            true => builder.with_client_cert_verifier(Arc::new(PeersOnly(self.clone()))),
            false => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(Own(self.clone())));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// For connections to the service of this name.
    ///
    /// # Errors
    /// The provider of cryptography knows none of the versions, or the name is no DNS name.
    pub fn connector(&self, service: &'static str) -> anyhow::Result<ClientConfig> {
        let verifier = ServiceOnly { tls: self.clone(), name: ServerName::try_from(service)? };
        let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(VERSIONS)?;
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = builder.with_client_cert_resolver(Arc::new(Own(self.clone())));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// A client of the service of this name, with one pool of connections per service.
    pub(crate) fn client(&self, service: &'static str, make: impl FnOnce(ClientConfig) -> reqwest::Client) -> Option<reqwest::Client> {
        if !self.is_mutual() {
            return None;
        }
        let mut clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(service) {
            return Some(client.clone());
        }
        let client = make(self.connector(service).ok()?);
        clients.insert(service, client.clone());
        Some(client)
    }
}

/// The service that a certificate names.
pub(crate) fn service_of(certificate: &CertificateDer<'_>) -> Option<PeerName> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let is = |name: &str| ServerName::try_from(name).is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok());
    SERVICES.into_iter().find(|name| is(name)).map(PeerName)
}

/// Shows the certificate of this service, as it is now.
#[derive(Debug)]
struct Own(Tls);

impl ResolvesServerCert for Own {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.loaded().own)
    }
}

impl ResolvesClientCert for Own {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.loaded().own)
    }
    fn has_certs(&self) -> bool {
        true
    }
}

fn no_authority() -> Error {
    Error::General("there is no authority".to_owned())
}

/// Accepts certificates of the authority, as it is now, and clients without any.
#[derive(Debug)]
struct PeersOnly(Tls);

impl PeersOnly {
    fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        self.0.loaded().peers.map(|peers| peers.of_clients).ok_or_else(no_authority)
    }
}

impl ClientCertVerifier for PeersOnly {
    fn client_auth_mandatory(&self) -> bool {
        false
    }
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verifier()?.verify_client_cert(end_entity, intermediates, now)
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier()?.verify_tls12_signature(message, cert, dss)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier()?.verify_tls13_signature(message, cert, dss)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts a certificate of the authority that names this service, at whatever address the service is.
#[derive(Debug)]
struct ServiceOnly {
    tls: Tls,
    name: ServerName<'static>,
}

impl ServiceOnly {
    fn verifier(&self) -> Result<Arc<WebPkiServerVerifier>, Error> {
        self.tls.loaded().peers.map(|peers| peers.of_servers).ok_or_else(no_authority)
    }
}

impl ServerCertVerifier for ServiceOnly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier()?.verify_server_cert(end_entity, intermediates, &self.name, ocsp, now)
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier()?.verify_tls12_signature(message, cert, dss)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier()?.verify_tls13_signature(message, cert, dss)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_orchestrator_writes_into_other_services() {
        assert!(may_call("orchestrator", &Method::PUT, "/internal/bindings/x"));
        assert!(may_call("migration", &Method::GET, "/internal/feeds/fleet"));
        assert!(!may_call("migration", &Method::PUT, "/internal/bindings/x"));
        assert!(may_call("gateway", &Method::POST, "/v2/projects"));
        assert!(!may_call("gateway", &Method::GET, "/internal/members/a/credential"));
    }
}
