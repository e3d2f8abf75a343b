//! Encrypted ("sealed") columns: XChaCha20-Poly1305 with a key that is not in the database.
//!
//! The associated data binds a value to its table, column and row, so that a sealed kubeconfig that was copied into another row cannot be
//! decrypted there. The id of the key is part of the value: after a rotation, old values are decrypted with the retired key until they
//! are written again. No `Debug` output here contains a secret.
//!
//! Layout: format (1 byte) | key id (8) | nonce (24) | ciphertext and tag.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use secrecy::{ExposeSecret, SecretBox, SecretSlice, SecretString};
use sha2::{Digest, Sha256};

const FORMAT: u8 = 1;
const NONCE_START: usize = 1 + 8;
const BODY_START: usize = NONCE_START + 24;

/// Why a value could not be encrypted or decrypted.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The value was encrypted with a key that this process does not have.
    #[error("the value is sealed with key {0}, which is not in the key file")]
    UnknownKey(String),
    /// The value was copied from another place, is damaged, or was never a sealed value.
    #[error("the sealed value cannot be decrypted in this place")]
    Refused,
    /// The key file has another content than keys.
    #[error("the seal key must be 32 bytes in base64, one key per line")]
    BadKey,
    /// The key file cannot be read or created.
    #[error("cannot read or create the seal key file {path}")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

/// Where a sealed value is stored; it can be decrypted nowhere else.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub table: &'a str,
    pub column: &'a str,
    /// The row's id, as text.
    pub row: &'a str,
}

impl Place<'_> {
    fn associated_data(&self) -> Vec<u8> {
        // The lengths come first, so that two different places never give the same text.
        format!("{}:{}:{}|{}|{}", self.table.len(), self.column.len(), self.table, self.column, self.row).into_bytes()
    }
}

/// An encrypted value as it is stored in a `bytea` column.
#[derive(Clone, PartialEq, Eq, sqlx::Type)]
#[sqlx(transparent)]
pub struct Sealed(Vec<u8>);

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

impl Sealed {
    /// The id of the key that it was encrypted with.
    pub fn key_id(&self) -> String {
        self.0.get(1..NONCE_START).map(hex).unwrap_or_default()
    }
}

/// The current key, which encrypts, and the retired ones, which only decrypt.
pub struct SealKey {
    current: OneKey,
    retired: Vec<OneKey>,
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SealKey({})", hex(&self.current.id))
    }
}

struct OneKey {
    id: [u8; 8],
    bytes: SecretBox<[u8; 32]>,
}

impl OneKey {
    fn new(bytes: [u8; 32]) -> Self {
        let mut id = [0; 8];
        id.copy_from_slice(&Sha256::digest(bytes)[..8]);
        Self { id, bytes: SecretBox::new(Box::new(bytes)) }
    }

    fn parse(line: &str) -> Result<Self, SealError> {
        let bytes = BASE64.decode(line.trim()).map_err(|_| SealError::BadKey)?;
        Ok(Self::new(bytes.try_into().map_err(|_| SealError::BadKey)?))
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(Key::from_slice(self.bytes.expose_secret()))
    }
}

impl SealKey {
    /// A new random key.
    pub fn generate() -> Self {
        Self { current: OneKey::new(rand::random()), retired: Vec::new() }
    }

    /// Parses a key file: one base64 key per line. The first encrypts, all of them decrypt.
    ///
    /// # Errors
    /// There is no key, or a line is not 32 bytes in base64.
    pub fn parse(text: &SecretString) -> Result<Self, SealError> {
        let mut keys = text.expose_secret().lines().filter(|line| !line.trim().is_empty()).map(OneKey::parse);
        let current = keys.next().ok_or(SealError::BadKey)??;
        Ok(Self { current, retired: keys.collect::<Result<_, _>>()? })
    }

    /// Reads the key file, or creates one that only this user may read. When two processes do that at the same time they get the same
    /// key.
    ///
    /// # Errors
    /// The file cannot be read or created, or has another content than keys.
    pub fn from_file_or_create(path: &Path) -> Result<Self, SealError> {
        let fail = |source| SealError::File { path: path.display().to_string(), source };
        if !path.exists() {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            std::fs::create_dir_all(directory).map_err(fail)?;
            // Written to another file and linked into place, so that no reader sees half a key and the first writer wins.
            let aside = directory.join(format!(".seal-key-{}", uuid::Uuid::now_v7()));
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside).map_err(fail)?;
            let encoded = SecretString::from(BASE64.encode(Self::generate().current.bytes.expose_secret()));
            let linked = writeln!(file, "{}", encoded.expose_secret())
                .and_then(|()| file.sync_all())
                .and_then(|()| std::fs::hard_link(&aside, path));
            std::fs::remove_file(&aside).map_err(fail)?;
            match linked {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(fail(error));
                }
                _ => {}
            }
        }
        Self::parse(&SecretString::from(std::fs::read_to_string(path).map_err(fail)?))
    }

    /// Encrypts `plain` for `place` with the current key.
    pub fn seal(&self, place: Place<'_>, plain: &[u8]) -> Sealed {
        let nonce: [u8; 24] = rand::random();
        let body = self
            .current
            .cipher()
            .encrypt(XNonce::from_slice(&nonce), Payload { msg: plain, aad: &place.associated_data() })
            .expect("XChaCha20-Poly1305 fails only for messages of 256 GiB and more");
        let mut sealed = Vec::with_capacity(BODY_START + body.len());
        sealed.push(FORMAT);
        sealed.extend_from_slice(&self.current.id);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&body);
        Sealed(sealed)
    }

    /// Decrypts a value that was encrypted for the same place.
    ///
    /// # Errors
    /// The key is unknown, or the value was not encrypted for this place.
    pub fn open(&self, place: Place<'_>, sealed: &Sealed) -> Result<SecretSlice<u8>, SealError> {
        let bytes = sealed.0.as_slice();
        if bytes.len() < BODY_START || bytes[0] != FORMAT {
            return Err(SealError::Refused);
        }
        let key = std::iter::once(&self.current)
            .chain(&self.retired)
            .find(|key| key.id == bytes[1..NONCE_START])
            .ok_or_else(|| SealError::UnknownKey(sealed.key_id()))?;
        let plain = key
            .cipher()
            .decrypt(
                XNonce::from_slice(&bytes[NONCE_START..BODY_START]),
                Payload { msg: &bytes[BODY_START..], aad: &place.associated_data() },
            )
            .map_err(|_| SealError::Refused)?;
        Ok(SecretSlice::from(plain))
    }

    /// As [`SealKey::open`], for text.
    ///
    /// # Errors
    /// As [`SealKey::open`], or the value is not UTF-8.
    pub fn open_text(&self, place: Place<'_>, sealed: &Sealed) -> Result<SecretString, SealError> {
        let plain = self.open(place, sealed)?;
        let text = std::str::from_utf8(plain.expose_secret()).map_err(|_| SealError::Refused)?;
        Ok(SecretString::from(text))
    }

    /// Whether the value should be encrypted again because its key is retired.
    pub fn is_stale(&self, sealed: &Sealed) -> bool {
        sealed.0.get(1..NONCE_START) != Some(self.current.id.as_slice())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
