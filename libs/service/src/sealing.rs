//! The settings of the key with which a service seals what is secret of what it stores.

use std::path::PathBuf;

use clap::Args;
use drover_store::{SealError, SealKey};
use secrecy::SecretString;

/// Settings of the seal key.
#[derive(Args, Clone, Debug)]
pub struct SealSettings {
    /// Key that seals what is secret in the database; without it the key file is used
    #[arg(long, env = "DROVER_SEAL_KEY", hide_env_values = true)]
    pub seal_key: Option<SecretString>,
    /// File with the key; created with a new key if it does not exist
    #[arg(long, env = "DROVER_SEAL_KEY_FILE", default_value = "drover-seal.key")]
    pub seal_key_file: PathBuf,
}

impl Default for SealSettings {
    fn default() -> Self {
        Self::in_file("drover-seal.key")
    }
}

impl SealSettings {
    /// The key of this file.
    pub fn in_file(file: impl Into<PathBuf>) -> Self {
        Self { seal_key: None, seal_key_file: file.into() }
    }

    /// The key that was given, or that of the file.
    ///
    /// # Errors
    /// See [`SealKey::load`].
    pub fn key(&self) -> Result<SealKey, SealError> {
        SealKey::load(self.seal_key.as_ref(), &self.seal_key_file)
    }
}
