//! Encrypted ("sealed") columns: XChaCha20-Poly1305 with a key that is not in the database.
//!
//! The associated data binds a value to its table, column and row, so that a sealed kubeconfig that was copied into another row cannot be
//! decrypted there. The id of the key is part of the value: after a rotation, old values are decrypted with the retired key until they
//! are written again. No `Debug` output here contains a secret.
//!
//! Layout: format (1 byte) | key id (8) | nonce (24) | ciphertext and tag. Inside of JSON it is text: [`TEXT`] and the same in base64.
//!
//! What is sealed cannot be searched. Where single words have to be found, their keyed hashes ([`SealKey::word`]) are stored beside the
//! sealed value: without the key nobody can tell a word from its hash, not even by trying words.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use secrecy::{ExposeSecret, SecretBox, SecretSlice, SecretString};
use sha2::{Digest, Sha256};

/// What a sealed text begins with.
const TEXT: &str = "drover-sealed:";
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
    /// The service was started without a key.
    #[error("this service has no seal key")]
    NoKey,
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

    fn word(&self, word: &str) -> i64 {
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(self.bytes.expose_secret()).expect("a key of any length is accepted");
        // Another purpose than encryption, for which the key is used as it is.
        mac.update(b"drover word\0");
        mac.update(word.as_bytes());
        let mut short = [0; 8];
        short.copy_from_slice(&mac.finalize().into_bytes()[..8]);
        i64::from_be_bytes(short)
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

    /// The key that was given, or that of the file, which is created if it does not exist.
    ///
    /// # Errors
    /// As [`SealKey::parse`] and [`SealKey::from_file_or_create`].
    pub fn load(given: Option<&SecretString>, file: &Path) -> Result<Self, SealError> {
        given.map_or_else(|| Self::from_file_or_create(file), Self::parse)
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

    /// As [`SealKey::seal`], as text.
    pub fn seal_text(&self, place: Place<'_>, plain: &str) -> String {
        format!("{TEXT}{}", BASE64.encode(self.seal(place, plain.as_bytes()).0))
    }

    /// A text that was sealed with [`SealKey::seal_text`]; `None` if this text was never sealed.
    ///
    /// # Errors
    /// As [`SealKey::open_text`].
    pub fn open_sealed_text(&self, place: Place<'_>, text: &str) -> Result<Option<SecretString>, SealError> {
        sealed_text(text).map(|sealed| self.open_text(place, &sealed?)).transpose()
    }

    /// Whether a text should be sealed, because it is not or with a key that is retired.
    pub fn is_stale_text(&self, text: &str) -> bool {
        !matches!(sealed_text(text), Some(Ok(sealed)) if !self.is_stale(&sealed))
    }

    /// The hash of a word under the current key, by which the word can be found beside a sealed value.
    pub fn word(&self, word: &str) -> i64 {
        self.current.word(word)
    }

    /// The hashes that a word may have been stored under: of the current key, and of the retired ones.
    pub fn words(&self, word: &str) -> impl Iterator<Item = i64> {
        std::iter::once(&self.current).chain(&self.retired).map(move |key| key.word(word))
    }

    /// The id of the current key, as it is in sealed values.
    pub(crate) fn current_id(&self) -> &[u8] {
        &self.current.id
    }

    /// Whether the value should be encrypted again because its key is retired.
    pub fn is_stale(&self, sealed: &Sealed) -> bool {
        sealed.0.get(1..NONCE_START) != Some(self.current.id.as_slice())
    }
}

/// The sealed value in a text, if the text is one.
fn sealed_text(text: &str) -> Option<Result<Sealed, SealError>> {
    let encoded = text.strip_prefix(TEXT)?;
    Some(BASE64.decode(encoded).map(Sealed).map_err(|_| SealError::Refused))
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
