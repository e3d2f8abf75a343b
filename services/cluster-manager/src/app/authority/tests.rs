use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConnection};
use secrecy::SecretString;

use super::*;
use crate::app::succession::KEPT;
use crate::store::authorities::Earlier as Before;

const HOUR: Duration = Duration::from_secs(3600);

fn first() -> Stored {
    let made = Authority::first().unwrap();
    let secret = SecretString::from(made.secret.to_string());
    Stored { certificate: made.certificate, crossed: None, secret, stale: false, earlier: Vec::new() }
}

/// What is stored when this one was replaced so long ago.
fn next(stored: &Stored, ago: Duration) -> Stored {
    let made = Authority::read(stored).unwrap().successor().unwrap();
    let replaced_at = jiff::Timestamp::try_from(SystemTime::now() - ago).unwrap().into();
    let before = Before { certificate: stored.certificate.clone(), crossed: stored.crossed.clone(), replaced_at };
    let earlier = std::iter::once(before).chain(stored.earlier.iter().cloned()).collect();
    let secret = SecretString::from(made.secret.to_string());
    Stored { certificate: made.certificate, crossed: made.crossed, secret, stale: false, earlier }
}

/// An agent that believes the authority of this certificate, with a certificate that `signer` has signed.
fn agent(believes: &str, signer: &Stored) -> ClientConfig {
    let key = keys::new_key();
    let requested = keys::read_request(&keys::request(&key, "x").unwrap()).unwrap();
    let (certificate, _) = Authority::read(signer).unwrap().certify(Uuid::new_v4(), requested.public, HOUR).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let secret = PrivateKeyDer::from_pem_slice(keys::to_pem(&key).unwrap().as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(believes.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider())).with_protocol_versions(&[&rustls::version::TLS13]);
    let mut config = builder.unwrap().with_root_certificates(roots).with_client_auth_cert(chain, secret).unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

/// A handshake without a network.
fn connect(agent: ClientConfig, hub: &Stored) -> Result<(), rustls::Error> {
    let mut agent = ClientConnection::new(Arc::new(agent), ServerName::try_from(wire::HUB).unwrap()).unwrap();
    let mut hub = ServerConnection::new(Authority::read(hub).unwrap().listener().unwrap()).unwrap();
    for _ in 0..8 {
        let mut bytes = Vec::new();
        while agent.wants_write() {
            agent.write_tls(&mut bytes).unwrap();
        }
        let mut sent = bytes.as_slice();
        while !sent.is_empty() {
            hub.read_tls(&mut sent).unwrap();
            hub.process_new_packets()?;
        }
        let mut bytes = Vec::new();
        while hub.wants_write() {
            hub.write_tls(&mut bytes).unwrap();
        }
        let mut sent = bytes.as_slice();
        while !sent.is_empty() {
            agent.read_tls(&mut sent).unwrap();
            agent.process_new_packets()?;
        }
    }
    assert!(!agent.is_handshaking() && !hub.is_handshaking() && hub.peer_certificates().is_some());
    Ok(())
}

#[test]
fn certificate_names_the_member_whatever_was_requested() {
    let authority = Authority::read(&first()).unwrap();
    let requested = keys::read_request(&keys::request(&keys::new_key(), "system:masters").unwrap()).unwrap();
    let member = Uuid::new_v4();
    let (issued, until) = authority.certify(member, requested.public, HOUR).unwrap();
    let shown = keys::read_certificate(&CertificateDer::from_pem_slice(issued.as_bytes()).unwrap()).unwrap();
    assert_eq!((shown.common_name, shown.fingerprint, shown.until), (member.to_string(), requested.fingerprint, until));
    let left = until.duration_since(SystemTime::now()).unwrap();
    assert!(left > Duration::from_secs(3590) && left <= HOUR, "{left:?}");
}

#[test]
fn agents_of_an_earlier_authority_and_its_successor_believe_each_other() {
    let one = first();
    let two = next(&one, HOUR * 2);
    let three = next(&two, HOUR);
    for (believes, signer) in [(&one, &one), (&one, &two), (&two, &one), (&two, &two), (&three, &three), (&one, &three)] {
        connect(agent(&believes.certificate, signer), &three).unwrap();
    }
    connect(agent(&one.certificate, &one), &one).unwrap();
    let stranger = first();
    assert!(connect(agent(&stranger.certificate, &three), &three).is_err(), "the agent does not believe the hub");
    assert!(connect(agent(&three.certificate, &stranger), &three).is_err(), "the hub does not believe the agent");
    assert!(connect(agent(&three.certificate, &three), &two).is_err(), "a successor says nothing for the one before it");
}

#[test]
fn authority_that_was_replaced_long_ago_counts_no_more() {
    let one = first();
    let two = next(&one, KEPT + HOUR);
    let three = next(&two, HOUR);
    connect(agent(&two.certificate, &two), &three).unwrap();
    assert!(connect(agent(&one.certificate, &three), &three).is_err(), "who knows only the first");
    assert!(connect(agent(&three.certificate, &one), &three).is_err(), "who was certified by the first");
}
