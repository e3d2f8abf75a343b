//! The authority of links: it certifies agents and the listener that they connect to, and nothing else believes it.
//!
//! It was signed by the one before it, whose certificate is kept for a while (`succession.rs`): the listener shows the chain, so that who
//! knows only an earlier one believes it, and certificates that an earlier one signed are accepted.
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
use secrecy::ExposeSecret;
use secrecy::zeroize::Zeroizing;
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

use super::succession::{self, LIFETIME, LISTENER, is_kept};
use crate::store::authorities::Stored;

const CLIENT: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");
const SERVER: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
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
    valid: (SystemTime, SystemTime),
    /// As the one before it has signed it.
    crossed: Option<CertificateDer<'static>>,
    /// Those before it, the latest first.
    earlier: Vec<Earlier>,
    listener: Mutex<Option<(SystemTime, Arc<ServerConfig>)>>,
}

struct Earlier {
    root: CertificateDer<'static>,
    crossed: Option<CertificateDer<'static>>,
    replaced: SystemTime,
}

/// A new authority, in PEM.
pub struct Made {
    pub certificate: String,
    /// As the one before it has signed it.
    pub crossed: Option<String>,
    pub secret: Zeroizing<String>,
}

impl Authority {
    /// Makes the first one.
    ///
    /// # Errors
    /// It cannot be made, which does not happen.
    pub fn first() -> anyhow::Result<Made> {
        made(None)
    }

    /// Makes one that whoever knows this one believes.
    ///
    /// # Errors
    /// It cannot be made, which does not happen.
    pub fn successor(&self) -> anyhow::Result<Made> {
        made(Some(self))
    }

    /// The authority that is stored.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(stored: &Stored) -> anyhow::Result<Self> {
        const WHAT: &str = "the certificate of the links' authority";
        let about = Certificate::from_pem(&stored.certificate).context(WHAT)?.tbs_certificate;
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).context(WHAT);
        let earlier = stored.earlier.iter().map(|earlier| {
            let crossed = earlier.crossed.as_deref().map(der).transpose()?;
            anyhow::Ok(Earlier { root: der(&earlier.certificate)?, crossed, replaced: earlier.replaced_at.0.into() })
        });
        Ok(Self(Arc::new(Parts {
            root: der(&stored.certificate)?,
            name: about.subject,
            key: keys::from_pem(stored.secret.expose_secret())?,
            valid: (about.validity.not_before.to_system_time(), about.validity.not_after.to_system_time()),
            crossed: stored.crossed.as_deref().map(der).transpose()?,
            earlier: earlier.collect::<Result<_, _>>()?,
            certificate: stored.certificate.clone(),
            listener: Mutex::default(),
        })))
    }

    /// Whether it is time for its successor.
    pub fn is_due(&self, now: SystemTime) -> bool {
        succession::is_due(self.0.valid, now)
    }

    /// Until when it is valid.
    pub fn until(&self) -> SystemTime {
        self.0.valid.1
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
        if let Some((_, config)) = made.as_ref().filter(|(at, _)| at.elapsed().is_ok_and(|age| age < LISTENER.1)) {
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
        let own = CertificateDer::from(self.leaf(subject, public_of(&key)?, LISTENER.0, SERVER, Some(name))?.to_der()?);
        let secret = PrivateKeyDer::from_pem_slice(keys::to_pem(&key)?.as_bytes()).context("the key of the listener of links")?;
        let now = SystemTime::now();
        let earlier = || self.0.earlier.iter().filter(|earlier| is_kept(earlier.replaced, now));
        let mut roots = RootCertStore::empty();
        roots.add(self.0.root.clone())?;
        for earlier in earlier() {
            roots.add(earlier.root.clone())?;
        }
        // From the newest to the oldest that anybody may know.
        let crossed = std::iter::once(&self.0.crossed).chain(earlier().map(|earlier| &earlier.crossed)).take(earlier().count());
        let chain: Vec<_> = std::iter::once(own).chain(crossed.flatten().cloned()).collect();
        let provider = Arc::new(default_provider());
        let agents = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).allow_unauthenticated().build()?;
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
        let mut config = builder.with_client_cert_verifier(agents).with_single_cert(chain, secret)?;
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

fn made(before: Option<&Authority>) -> anyhow::Result<Made> {
    let key = keys::new_key();
    // Names differ, so that who verifies a chain does not have to try each of them.
    let name = Name::from_str(&format!("CN=Drover links {}", &Uuid::new_v4().to_string()[..8]))?;
    let valid = validity(LIFETIME)?;
    let own = CertificateBuilder::new(Profile::Root, serial()?, valid, name.clone(), public_of(&key)?, &key)?;
    let crossed = match before {
        None => None,
        Some(before) => {
            let profile = Profile::SubCA { issuer: before.0.name.clone(), path_len_constraint: None };
            let builder = CertificateBuilder::new(profile, serial()?, valid, name, public_of(&key)?, &before.0.key)?;
            Some(builder.build::<DerSignature>()?.to_pem(LineEnding::LF)?)
        }
    };
    Ok(Made { certificate: own.build::<DerSignature>()?.to_pem(LineEnding::LF)?, crossed, secret: keys::to_pem(&key)? })
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
mod tests;
