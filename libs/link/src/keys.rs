//! Keys (P-256), requests for certificates, and what is read from certificates.
//!
//! A key is known by its fingerprint, which people compare: `SHA256:` and the digest of the public key in base64.

use std::str::FromStr;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use p256::ecdsa::signature::Verifier;
use p256::ecdsa::{DerSignature, SigningKey, VerifyingKey};
use p256::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey, LineEnding};
use secrecy::zeroize::Zeroizing;
use sha2::{Digest, Sha256};
use x509_cert::Certificate;
use x509_cert::builder::{Builder, RequestBuilder};
use x509_cert::der::{Decode, DecodePem, Encode, EncodePem};
use x509_cert::name::Name;
use x509_cert::request::CertReq;
use x509_cert::spki::SubjectPublicKeyInfoOwned;

/// Why a key, a request or a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct KeyError {
    what: &'static str,
    why: String,
}

fn failed<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> KeyError {
    move |error| KeyError { what, why: error.to_string() }
}

/// A new key, which has never been anywhere else.
pub fn new_key() -> SigningKey {
    // Nearly every 32 random bytes are a valid key of P-256; others are drawn again.
    loop {
        if let Ok(key) = SigningKey::from_slice(Zeroizing::new(rand::random::<[u8; 32]>()).as_slice()) {
            return key;
        }
    }
}

/// A key in PEM.
///
/// # Errors
/// The key cannot be written, which does not happen.
pub fn to_pem(key: &SigningKey) -> Result<Zeroizing<String>, KeyError> {
    key.to_pkcs8_pem(LineEnding::LF).map_err(failed("the key cannot be written"))
}

/// Reads a key.
///
/// # Errors
/// The text is not a key of P-256 in PEM.
pub fn from_pem(pem: &str) -> Result<SigningKey, KeyError> {
    SigningKey::from_pkcs8_pem(pem).map_err(failed("the key cannot be read"))
}

/// A request for a certificate for this key, in PEM.
///
/// # Errors
/// The name cannot be part of a certificate.
pub fn request(key: &SigningKey, common_name: &str) -> Result<String, KeyError> {
    const WHAT: &str = "the request for a certificate cannot be made";
    let subject = Name::from_str(&format!("CN={common_name}")).map_err(failed(WHAT))?;
    let request = RequestBuilder::new(subject, key).map_err(failed(WHAT))?.build::<DerSignature>().map_err(failed(WHAT))?;
    request.to_pem(LineEnding::LF).map_err(failed(WHAT))
}

/// The fingerprint of a key.
///
/// # Errors
/// The public key cannot be written, which does not happen.
pub fn fingerprint(key: &SigningKey) -> Result<String, KeyError> {
    let public = key.verifying_key().to_public_key_der().map_err(failed("the public key cannot be written"))?;
    Ok(fingerprint_of(public.as_bytes()))
}

fn fingerprint_of(public: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(public)))
}

/// What a request asks for: a certificate for this key. Its name counts for nothing.
pub struct Requested {
    pub public: SubjectPublicKeyInfoOwned,
    pub fingerprint: String,
}

/// Reads a request.
///
/// # Errors
/// It is not one, not for a key of P-256, or was not signed with that key.
pub fn read_request(pem: &str) -> Result<Requested, KeyError> {
    const WHAT: &str = "this is no request for a certificate";
    let request = CertReq::from_pem(pem).map_err(failed(WHAT))?;
    let public = request.info.public_key.to_der().map_err(failed(WHAT))?;
    let key = VerifyingKey::from_public_key_der(&public).map_err(failed("the key is not one of P-256"))?;
    let signature = DerSignature::from_bytes(request.signature.raw_bytes()).map_err(failed(WHAT))?;
    let signed = request.info.to_der().map_err(failed(WHAT))?;
    key.verify(&signed, &signature).map_err(failed("the request was not signed with its key"))?;
    Ok(Requested { fingerprint: fingerprint_of(&public), public: request.info.public_key })
}

/// What is read from the certificate of an agent. That it is genuine is not looked at here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The common name: the id of the member.
    pub common_name: String,
    /// The fingerprint of its key.
    pub fingerprint: String,
    /// From when it is valid.
    pub from: SystemTime,
    /// Until when it is valid.
    pub until: SystemTime,
}

impl Shown {
    /// When it is to be renewed: after two thirds of its time.
    pub fn due(&self) -> SystemTime {
        let whole = self.until.duration_since(self.from).unwrap_or_default();
        self.from + whole * 2 / 3
    }
}

/// Reads a certificate in DER.
///
/// # Errors
/// It is not one.
pub fn read_certificate(der: &[u8]) -> Result<Shown, KeyError> {
    const WHAT: &str = "this is no certificate";
    let certificate = Certificate::from_der(der).map_err(failed(WHAT))?;
    let about = certificate.tbs_certificate;
    let name = about.subject.to_string();
    Ok(Shown {
        common_name: name.strip_prefix("CN=").unwrap_or(&name).to_owned(),
        fingerprint: fingerprint_of(&about.subject_public_key_info.to_der().map_err(failed(WHAT))?),
        from: about.validity.not_before.to_system_time(),
        until: about.validity.not_after.to_system_time(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn request_is_for_the_key_that_signed_it() {
        let key = new_key();
        let read = read_request(&request(&key, "anybody").unwrap()).unwrap();
        assert_eq!(read.fingerprint, fingerprint(&key).unwrap());
        let again = from_pem(&to_pem(&key).unwrap()).unwrap();
        assert_eq!(fingerprint(&again).unwrap(), read.fingerprint);
        assert_ne!(fingerprint(&new_key()).unwrap(), read.fingerprint);
    }

    #[test]
    fn request_with_the_key_of_another_is_refused() {
        let (own, other) = (request(&new_key(), "a").unwrap(), new_key());
        let mut forged = CertReq::from_pem(own).unwrap();
        let public = other.verifying_key().to_public_key_der().unwrap();
        forged.info.public_key = SubjectPublicKeyInfoOwned::from_der(public.as_bytes()).unwrap();
        assert!(read_request(&forged.to_pem(LineEnding::LF).unwrap()).is_err());
        assert!(read_request("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n").is_err());
    }

    #[test]
    fn certificate_is_due_after_two_thirds_of_its_time() {
        let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let shown = Shown { common_name: String::new(), fingerprint: String::new(), from: at(30), until: at(120) };
        assert_eq!(shown.due(), at(90));
    }
}
