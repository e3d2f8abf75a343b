//! The webhook's certificate: made by the agents themselves, shared by a Secret, and noted in the webhook configuration.
//!
//! It certifies itself: the API server believes exactly this one, because its configuration says so. If it cannot be noted there, the API
//! server reaches nobody that it believes, and admits objects as they are.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_tasks::TaskHandle;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use p256::ecdsa::{DerSignature, SigningKey};
use p256::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use x509_cert::Certificate;
use x509_cert::builder::{Builder, CertificateBuilder, Profile};
use x509_cert::der::asn1::{Ia5String, OctetString};
use x509_cert::der::{Decode, DecodePem, EncodePem};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::SubjectPublicKeyInfoOwned;
use x509_cert::time::{Time, Validity};

use super::Shared;

/// For how long it is valid. It is made anew after two thirds of that.
const LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// Clocks differ: it is valid from a little before now.
const EARLIER: Duration = Duration::from_secs(3600);
/// Time between two looks at the Secret and the configuration.
const PERIOD: Duration = Duration::from_secs(30);
/// The same while something is missing.
const SOON: Duration = Duration::from_secs(3);
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Where it is kept, and for which names.
#[derive(Clone)]
pub struct Kept {
    pub namespace: String,
    /// Of the Secret and of the configuration.
    pub name: String,
    pub names: Vec<String>,
}

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq)]
struct Pair {
    certificate: String,
    key: String,
}

/// Keeps a valid certificate in use and in the configuration; never returns.
pub async fn keep(shared: Arc<Shared>, kept: Kept, task: TaskHandle) {
    let mut used: Option<Pair> = None;
    let mut failing = false;
    loop {
        task.active();
        let pause = match look(&shared, &kept, &mut used).await {
            Ok(()) => {
                failing = false;
                PERIOD
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!("the API server cannot call the webhook yet: {error:#}");
                }
                SOON
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn look(shared: &Shared, kept: &Kept, used: &mut Option<Pair>) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(shared.client.clone(), &kept.namespace);
    let pair = current(&secrets, kept).await?;
    if used.as_ref() != Some(&pair) {
        shared.set_tls(Arc::new(server_config(&pair)?));
        *used = Some(pair.clone());
    }
    let api: Api<MutatingWebhookConfiguration> = Api::all(shared.client.clone());
    let found = api.get_opt(&kept.name).await.context("the webhook configuration cannot be read")?;
    let found = found.with_context(|| {
        format!("there is no MutatingWebhookConfiguration {}: deploy/autoscaler/webhook/webhook.yaml has it", kept.name)
    })?;
    let bundle = ByteString(pair.certificate.into_bytes());
    let webhooks = found.webhooks.unwrap_or_default();
    let late: Vec<_> = webhooks.iter().filter(|webhook| webhook.client_config.ca_bundle.as_ref() != Some(&bundle)).collect();
    if !late.is_empty() {
        let bundle = STANDARD.encode(&bundle.0);
        let webhooks: Vec<_> = late.iter().map(|webhook| json!({"name": webhook.name, "clientConfig": {"caBundle": bundle}})).collect();
        let patch = Patch::Strategic(json!({"webhooks": webhooks}));
        api.patch(&kept.name, &PatchParams::default(), &patch)
            .await
            .context("the certificate cannot be noted in the webhook configuration")?;
        tracing::info!(configuration = kept.name, "the API server believes the webhook's certificate from now on");
    }
    Ok(())
}

/// The certificate that all agents use: that of the Secret, unless it is missing, other names are wanted, or its time is nearly over.
async fn current(secrets: &Api<Secret>, kept: &Kept) -> Result<Pair> {
    const WHAT: &str = "the Secret with the webhook's certificate cannot be";
    let found = secrets.get_opt(&kept.name).await.with_context(|| format!("{WHAT} read"))?;
    if let Some(pair) = found.as_ref().and_then(pair_of).filter(|pair| serves(pair, &kept.names, SystemTime::now())) {
        return Ok(pair);
    }
    let pair = made(&kept.names, LIFETIME)?;
    let metadata = json!({"name": kept.name, "resourceVersion": found.as_ref().and_then(|found| found.metadata.resource_version.clone())});
    let mut secret: Secret = serde_json::from_value(json!({"metadata": metadata, "type": "kubernetes.io/tls"}))?;
    let data = [(CERTIFICATE, &pair.certificate), (KEY, &pair.key)];
    secret.data = Some(data.map(|(name, pem)| (name.to_owned(), ByteString(pem.clone().into_bytes()))).into());
    // If another agent was earlier, this fails, and the next look finds its certificate.
    match &found {
        Some(_) => secrets.replace(&kept.name, &PostParams::default(), &secret).await,
        None => secrets.create(&PostParams::default(), &secret).await,
    }
    .with_context(|| format!("{WHAT} written"))?;
    Ok(pair)
}

fn pair_of(secret: &Secret) -> Option<Pair> {
    let text = |name: &str| String::from_utf8(secret.data.as_ref()?.get(name)?.0.clone()).ok();
    Some(Pair { certificate: text(CERTIFICATE)?, key: text(KEY)? })
}

/// Whether it is for these names and is not to be renewed yet.
fn serves(pair: &Pair, names: &[String], now: SystemTime) -> bool {
    let Ok(certificate) = Certificate::from_pem(&pair.certificate) else { return false };
    let about = certificate.tbs_certificate;
    let (from, until) = (about.validity.not_before.to_system_time(), about.validity.not_after.to_system_time());
    let due = from + until.duration_since(from).unwrap_or_default() * 2 / 3;
    let found = about.get::<SubjectAltName>().ok().flatten().map(|(_, names)| names);
    now < due && found == alternative_names(names).ok()
}

fn alternative_names(names: &[String]) -> Result<SubjectAltName> {
    let name = |name: &String| -> Result<GeneralName> {
        Ok(match name.parse() {
            Ok(IpAddr::V4(address)) => GeneralName::IpAddress(OctetString::new(address.octets())?),
            Ok(IpAddr::V6(address)) => GeneralName::IpAddress(OctetString::new(address.octets())?),
            Err(_) => GeneralName::DnsName(Ia5String::new(name)?),
        })
    };
    Ok(SubjectAltName(names.iter().map(name).collect::<Result<_>>()?))
}

/// A new certificate for these names.
fn made(names: &[String], lifetime: Duration) -> Result<Pair> {
    let key = new_key();
    let public = SubjectPublicKeyInfoOwned::from_der(key.verifying_key().to_public_key_der()?.as_bytes())?;
    let now = SystemTime::now();
    let validity = Validity { not_before: Time::try_from(now - EARLIER)?, not_after: Time::try_from(now + lifetime)? };
    let serial = SerialNumber::new(uuid::Uuid::new_v4().as_bytes())?;
    let subject = Name::from_str("CN=drover-autoscaler-webhook")?;
    let mut builder = CertificateBuilder::new(Profile::Root, serial, validity, subject, public, &key)?;
    builder.add_extension(&alternative_names(names)?)?;
    let certificate = builder.build::<DerSignature>()?.to_pem(LineEnding::LF)?;
    Ok(Pair { certificate, key: key.to_pkcs8_pem(LineEnding::LF)?.to_string() })
}

fn new_key() -> SigningKey {
    // Nearly every 32 random bytes are a valid key of P-256; others are drawn again.
    loop {
        if let Ok(key) = SigningKey::from_slice(&rand::random::<[u8; 32]>()) {
            return key;
        }
    }
}

fn server_config(pair: &Pair) -> Result<ServerConfig> {
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).context("the webhook's certificate")?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).context("the webhook's key")?;
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_serves_for_its_names_until_two_thirds_of_its_time() {
        let names = ["drover.kube-system.svc".to_owned(), "127.0.0.1".to_owned()];
        let pair = made(&names, LIFETIME).unwrap();
        let now = SystemTime::now();
        assert!(serves(&pair, &names, now) && serves(&pair, &names, now + LIFETIME / 2));
        assert!(!serves(&pair, &names, now + LIFETIME * 7 / 10), "it is to be renewed");
        assert!(!serves(&pair, &names[..1], now), "other names are wanted");
        assert!(!serves(&Pair { certificate: "x".into(), key: String::new() }, &names, now));
        server_config(&pair).unwrap();
        assert!(made(&names, LIFETIME).unwrap() != pair);
    }
}
