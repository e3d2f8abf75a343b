//! Certificates of https routes: from files, chosen by the name that the client asks for (SNI).
//!
//! A file that cannot be read leaves the certificate that was read before. Keys never leave this file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, Result};
use drover_service::TaskHandle;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

/// How often the files are read again.
const PERIOD: Duration = Duration::from_secs(10);

/// The certificates of a process.
#[derive(Debug, Default)]
pub struct Certificates {
    dir: Option<PathBuf>,
    by_host: RwLock<HashMap<String, Arc<CertifiedKey>>>,
}

impl Certificates {
    /// Reads the certificates in a directory.
    pub fn new(dir: Option<PathBuf>) -> Arc<Self> {
        let certificates = Arc::new(Self { dir, by_host: RwLock::default() });
        certificates.read();
        certificates
    }

    /// Accepts TLS connections: HTTP/2 or HTTP/1.1, as the client wants.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor> {
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider())).with_safe_default_protocol_versions()?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Why a host has no certificate; none: it has one.
    pub fn missing(&self, host: Option<&str>) -> Option<String> {
        let Some(host) = host else { return Some("an https route needs a host name".to_owned()) };
        if self.find(host).is_some() {
            return None;
        }
        Some(match &self.dir {
            Some(dir) => format!("there is no usable {host}.crt with {host}.key in {}", dir.display()),
            None => "the data path was started without --tls-dir, so it has no certificates".to_owned(),
        })
    }

    fn find(&self, host: &str) -> Option<Arc<CertifiedKey>> {
        let host = host.to_ascii_lowercase();
        let by_host = self.by_host.read().unwrap_or_else(PoisonError::into_inner);
        let wild = || host.split_once('.').and_then(|(_, rest)| by_host.get(&format!("*.{rest}")));
        by_host.get(&host).or_else(wild).cloned()
    }

    fn read(&self) {
        let Some(dir) = &self.dir else { return };
        let files = match std::fs::read_dir(dir) {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "the directory of certificates cannot be read");
                return;
            }
        };
        let mut new = HashMap::new();
        for file in files.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|kind| kind == "crt")) {
            let Some(host) = file.file_stem().and_then(|name| name.to_str()).map(str::to_ascii_lowercase) else { continue };
            match read(&file) {
                Ok(key) => {
                    new.insert(host, Arc::new(key));
                }
                Err(error) => {
                    tracing::warn!(file = %file.display(), error = format!("{error:#}"), "a certificate cannot be used");
                    if let Some(before) = self.find(&host) {
                        new.insert(host, before);
                    }
                }
            }
        }
        *self.by_host.write().unwrap_or_else(PoisonError::into_inner) = new;
    }

    /// Reads the files again from time to time; never returns.
    pub async fn follow(self: Arc<Self>, task: TaskHandle) {
        loop {
            tokio::time::sleep(PERIOD).await;
            task.active();
            self.read();
        }
    }
}

fn read(file: &Path) -> Result<CertifiedKey> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(file)?.collect::<Result<_, _>>().context("the certificate")?;
    anyhow::ensure!(!chain.is_empty(), "there is no certificate in it");
    let key = PrivateKeyDer::from_pem_file(file.with_extension("key")).context("the key beside it")?;
    let key = aws_lc_rs::sign::any_supported_type(&key).context("the key beside it")?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match().context("certificate and key")?;
    Ok(certified)
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.find(hello.server_name()?)
    }
}
