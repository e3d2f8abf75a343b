//! What the agent keeps on disk. Each file is replaced as a whole, so that a kill at any moment leaves the old one or the new one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use drover_link::keys::{self, Shown};
use drover_link::wire::Invitation;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Where the hub is.
const HUB: &str = "hub.json";
/// The key for which a certificate is being asked.
const NEXT: &str = "next.key";
/// Key and certificate.
const IDENTITY: &str = "identity.pem";

/// The directory in which the agent keeps its key, its certificate and where the hub is.
pub struct State(PathBuf);

/// Where the hub is, and by which invitation that is known.
#[derive(Clone, Serialize, Deserialize)]
pub struct Known {
    pub cluster: String,
    pub hub: String,
    pub authority: String,
    /// Digest of its token.
    invitation: Vec<u8>,
}

/// Reads an invitation.
///
/// # Errors
/// The file cannot be read, or is none.
pub fn invitation(path: &Path) -> Result<Invitation> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no invitation", path.display()))
}

/// Key and certificate of this agent.
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    pub shown: Shown,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key(), shown: self.shown.clone() }
    }
}

impl Identity {
    fn read(pem: &str) -> Result<Self> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>()?;
        let shown = keys::read_certificate(chain.first().context("there is no certificate")?)?;
        Ok(Self { chain, key: PrivateKeyDer::from_pem_slice(pem.as_bytes())?, shown })
    }
}

impl State {
    /// Opens the directory, or makes it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(dir: &Path) -> Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Self(dir.to_owned()))
    }

    /// What is known of the hub. An invitation that was not seen before begins anew: what was there belongs to the one before it.
    ///
    /// # Errors
    /// A file cannot be read or written, or there is neither an invitation nor what an earlier one left.
    pub fn known(&self, invitation: Option<&Path>) -> Result<Known> {
        let known: Option<Known> = match self.read(HUB)? {
            Some(text) => Some(serde_json::from_str(&text).with_context(|| format!("{HUB} cannot be read"))?),
            None => None,
        };
        let Some(path) = invitation else {
            return known.context("there is no invitation: give --invitation FILE, which `drover cluster invite` writes");
        };
        // Once it was used, it may be deleted.
        if let Some(known) = &known
            && !path.try_exists().unwrap_or(true)
        {
            return Ok(known.clone());
        }
        let Invitation { cluster, hub, authority, token } = self::invitation(path)?;
        let invitation = Sha256::digest(token.as_bytes()).to_vec();
        match known {
            Some(known) if known.invitation == invitation => Ok(known),
            _ => {
                self.remove(IDENTITY)?;
                self.remove(NEXT)?;
                let known = Known { cluster, hub, authority, invitation };
                self.write(HUB, &serde_json::to_string(&known)?)?;
                Ok(known)
            }
        }
    }

    /// The agent's key and certificate, if it has one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn identity(&self) -> Result<Option<Identity>> {
        let Some(text) = self.read(IDENTITY)? else { return Ok(None) };
        Identity::read(&text).with_context(|| format!("{} cannot be used", self.0.join(IDENTITY).display())).map(Some)
    }

    /// Believes this authority from now on.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn believe(&self, authority: &str) -> Result<()> {
        let mut known = self.known(None)?;
        if known.authority != authority {
            authority.clone_into(&mut known.authority);
            self.write(HUB, &serde_json::to_string(&known)?)?;
        }
        Ok(())
    }

    /// The key for which a certificate is to be asked, in PEM; it stays the same until [`State::settle`].
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn next_key(&self) -> Result<String> {
        if let Some(key) = self.read(NEXT)? {
            return Ok(key);
        }
        let key = keys::to_pem(&keys::new_key())?.to_string();
        self.write(NEXT, &key)?;
        Ok(key)
    }

    /// Stores a certificate with its key as the agent's identity.
    ///
    /// # Errors
    /// It does not fit the key, or the file cannot be written.
    pub fn keep(&self, key: &str, certificate: &str) -> Result<Identity> {
        let text = format!("{key}{certificate}");
        let identity = Identity::read(&text).context("the certificate that was issued cannot be read")?;
        anyhow::ensure!(identity.shown.fingerprint == keys::fingerprint(&keys::from_pem(key)?)?, "the certificate is for another key");
        self.write(IDENTITY, &text)?;
        Ok(identity)
    }

    /// Forgets the next key if it is that of the identity: the certificate for it has arrived.
    ///
    /// # Errors
    /// A file cannot be read or removed.
    pub fn settle(&self, identity: &Identity) -> Result<()> {
        let Some(key) = self.read(NEXT)? else { return Ok(()) };
        if keys::fingerprint(&keys::from_pem(&key)?)? == identity.shown.fingerprint {
            self.remove(NEXT)?;
        }
        Ok(())
    }

    fn read(&self, name: &str) -> Result<Option<String>> {
        match std::fs::read_to_string(self.0.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", self.0.join(name).display())),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let (path, new) = (self.0.join(name), self.0.join(format!("{name}.new")));
        let write = || {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
            File::open(&self.0)?.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    fn remove(&self, name: &str) -> Result<()> {
        match std::fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(|| format!("cannot remove {name}")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation(dir: &Path, token: &str) -> PathBuf {
        let path = dir.join(format!("{token}.json"));
        let text = serde_json::json!({"cluster": "p+a", "hub": "h:1", "authority": "CA", "token": token});
        std::fs::write(&path, text.to_string()).unwrap();
        path
    }

    #[test]
    fn authority_that_was_learned_is_kept_with_the_same_invitation() {
        let dir = tempfile::tempdir().unwrap();
        let (state, first) = (State::open(&dir.path().join("state")).unwrap(), invitation(dir.path(), "one"));
        assert_eq!(state.known(Some(&first)).unwrap().authority, "CA");
        state.believe("NEXT").unwrap();
        assert_eq!((state.known(Some(&first)).unwrap().authority, state.known(None).unwrap().hub), ("NEXT".into(), "h:1".into()));
        assert_eq!(state.known(Some(&invitation(dir.path(), "two"))).unwrap().authority, "CA");
    }

    #[test]
    fn new_invitation_begins_anew_and_the_same_one_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(&dir.path().join("state")).unwrap();
        assert!(state.known(None).is_err() && state.known(Some(&dir.path().join("none"))).is_err());
        let first = invitation(dir.path(), "one");
        assert_eq!(state.known(Some(&first)).unwrap().hub, "h:1");
        let key = state.next_key().unwrap();
        assert_eq!(state.next_key().unwrap(), key, "a request that is repeated is for the same key");
        state.known(Some(&first)).unwrap();
        state.known(None).unwrap();
        std::fs::remove_file(&first).unwrap();
        state.known(Some(&first)).unwrap();
        assert_eq!(state.next_key().unwrap(), key);
        state.known(Some(&invitation(dir.path(), "two"))).unwrap();
        assert_ne!(state.next_key().unwrap(), key);
    }
}
