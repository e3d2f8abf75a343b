//! The authority of links: it certifies agents and the listener that they connect to, and nothing else believes it.
//!
//! Invariant: the name in an agent's certificate is the id of its member, whatever was requested.

use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use drover_link::{keys, wire};
use p256::ecdsa::{DerSignature, SigningKey};
use p256::pkcs8::{EncodePublicKey, LineEnding};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use uuid::Uuid;
use x509_cert::Certificate;
use x509_cert::builder::{Builder, CertificateBuilder, Profile};
use x509_cert::der::asn1::Ia5String;
use x509_cert::der::{Decode, DecodePem, Encode, EncodePem};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{ExtendedKeyUsage, SubjectAltName};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{ObjectIdentifier, SubjectPublicKeyInfoOwned};
use x509_cert::time::{Time, Validity};

const CLIENT: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");
const SERVER: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
/// For how long the authority's own certificate is valid.
const ROOT: Duration = Duration::from_secs(20 * 365 * 24 * 3600);
/// For how long the listener's certificate is valid; it is made anew each day.
const LISTENER: Duration = Duration::from_secs(7 * 24 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Clocks differ: certificates are valid from a little before now, at most so much.
const EARLIER: Duration = Duration::from_secs(300);

/// The authority, with what is made of it; cheap to clone.
#[derive(Clone)]
pub struct Authority(Arc<Parts>);

struct Parts {
    certificate: String,
    root: CertificateDer<'static>,
    name: Name,
    key: SigningKey,
    listener: Mutex<Option<(SystemTime, Arc<ServerConfig>)>>,
}

impl Authority {
    /// A new certificate and key, in PEM.
    ///
    /// # Errors
    /// They cannot be made, which does not happen.
    pub fn new_pems() -> anyhow::Result<(String, String)> {
        let key = keys::new_key();
        let name = Name::from_str("CN=Drover links")?;
        let public = public_of(&key)?;
        let builder = CertificateBuilder::new(Profile::Root, serial()?, validity(ROOT)?, name, public, &key)?;
        Ok((builder.build::<DerSignature>()?.to_pem(LineEnding::LF)?, keys::to_pem(&key)?.to_string()))
    }

    /// The authority with this certificate and key.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(certificate: String, key: &str) -> anyhow::Result<Self> {
        let name = Certificate::from_pem(&certificate).context("the certificate of the links' authority")?.tbs_certificate.subject;
        let root = CertificateDer::from_pem_slice(certificate.as_bytes()).context("the certificate of the links' authority")?;
        Ok(Self(Arc::new(Parts { root, name, key: keys::from_pem(key)?, certificate, listener: Mutex::default() })))
    }

    /// Its certificate in PEM, which agents believe.
    pub fn certificate(&self) -> &str {
        &self.0.certificate
    }

    /// A certificate for the agent of a member, in PEM, and until when it is valid.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn certify(&self, member: Uuid, public: SubjectPublicKeyInfoOwned, lifetime: Duration) -> anyhow::Result<(String, SystemTime)> {
        let subject = Name::from_str(&format!("CN={member}"))?;
        let certificate = self.leaf(subject, public, lifetime, CLIENT, None)?;
        let until = certificate.tbs_certificate.validity.not_after.to_system_time();
        Ok((certificate.to_pem(LineEnding::LF)?, until))
    }

    /// The TLS settings of the listener. A certificate of an agent is verified if one is shown; an agent that asks for its first one shows none.
    ///
    /// # Errors
    /// The certificate cannot be made.
    pub fn listener(&self) -> anyhow::Result<Arc<ServerConfig>> {
        let mut made = self.0.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, config)) = made.as_ref().filter(|(at, _)| at.elapsed().is_ok_and(|age| age < DAY)) {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(self.server_config()?);
        *made = Some((SystemTime::now(), Arc::clone(&config)));
        Ok(config)
    }

    fn server_config(&self) -> anyhow::Result<ServerConfig> {
        let key = keys::new_key();
        let name = SubjectAltName(vec![GeneralName::DnsName(Ia5String::new(wire::HUB)?)]);
        let subject = Name::from_str(&format!("CN={}", wire::HUB))?;
        let own = CertificateDer::from(self.leaf(subject, public_of(&key)?, LISTENER, SERVER, Some(name))?.to_der()?);
        let secret = PrivateKeyDer::from_pem_slice(keys::to_pem(&key)?.as_bytes()).context("the key of the listener of links")?;
        let mut roots = RootCertStore::empty();
        roots.add(self.0.root.clone())?;
        let provider = Arc::new(default_provider());
        let agents = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).allow_unauthenticated().build()?;
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
        let mut config = builder.with_client_cert_verifier(agents).with_single_cert(vec![own], secret)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A session that is resumed is not asked for its certificate again, which may have expired meanwhile.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn leaf(
        &self,
        subject: Name,
        public: SubjectPublicKeyInfoOwned,
        lifetime: Duration,
        usage: ObjectIdentifier,
        names: Option<SubjectAltName>,
    ) -> anyhow::Result<Certificate> {
        let profile = Profile::Leaf { issuer: self.0.name.clone(), enable_key_agreement: false, enable_key_encipherment: false };
        let mut builder = CertificateBuilder::new(profile, serial()?, validity(lifetime)?, subject, public, &self.0.key)?;
        builder.add_extension(&ExtendedKeyUsage(vec![usage]))?;
        if let Some(names) = names {
            builder.add_extension(&names)?;
        }
        Ok(builder.build::<DerSignature>()?)
    }
}

fn public_of(key: &SigningKey) -> anyhow::Result<SubjectPublicKeyInfoOwned> {
    Ok(SubjectPublicKeyInfoOwned::from_der(key.verifying_key().to_public_key_der()?.as_bytes())?)
}

fn serial() -> anyhow::Result<SerialNumber> {
    Ok(SerialNumber::new(Uuid::new_v4().as_bytes())?)
}

fn validity(lifetime: Duration) -> anyhow::Result<Validity> {
    let now = SystemTime::now();
    // A short life keeps its length.
    let from = now - EARLIER.min(lifetime / 100);
    Ok(Validity { not_before: Time::try_from(from)?, not_after: Time::try_from(now + lifetime)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_names_the_member_whatever_was_requested() {
        let (certificate, key) = Authority::new_pems().unwrap();
        let authority = Authority::read(certificate, &key).unwrap();
        let requested = keys::read_request(&keys::request(&keys::new_key(), "system:masters").unwrap()).unwrap();
        let member = Uuid::new_v4();
        let (issued, until) = authority.certify(member, requested.public, Duration::from_secs(3600)).unwrap();
        let shown = keys::read_certificate(&CertificateDer::from_pem_slice(issued.as_bytes()).unwrap()).unwrap();
        assert_eq!((shown.common_name, shown.fingerprint, shown.until), (member.to_string(), requested.fingerprint, until));
        let left = until.duration_since(SystemTime::now()).unwrap();
        assert!(left > Duration::from_secs(3590) && left <= Duration::from_secs(3600), "{left:?}");
        authority.listener().unwrap();
    }
}
