//! Where tokens are kept, so that people need not pass them around: `drover up` makes one in its data directory and leaves a copy under
//! its address in the user's configuration; the command line finds it there.
//!
//! A token is found only for the address that it belongs to, so it is never sent to another server. All files are readable by their owner
//! alone.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use drover_service::config;
use rand::distr::{Alphanumeric, SampleString};
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

/// The token of the Drover whose state is in `data`; made when there is none.
///
/// # Errors
/// The file cannot be read or written.
pub fn of_data(data: &Path) -> Result<SecretString> {
    let file = data.join("api-token");
    if !file.exists() {
        write(&file, &Alphanumeric.sample_string(&mut rand::rng(), 48))?;
    }
    config::token(None, Some(&file))?.with_context(|| format!("{} holds no token", file.display()))
}

/// The token that this user has for the server at `url`.
pub fn of_url(url: &Url) -> Option<String> {
    let text = fs::read_to_string(file_of(url)?).ok()?;
    Some(text.trim().to_owned()).filter(|token| !token.is_empty())
}

/// The user's copy of a token; removed when this value is dropped.
#[derive(Debug)]
pub struct SavedToken(PathBuf);

impl SavedToken {
    /// Lets this user's command line find the token of the server at `url`.
    ///
    /// # Errors
    /// There is no home directory, or the file cannot be written.
    pub fn save(url: &Url, token: &SecretString) -> Result<Self> {
        let file = file_of(url).context("neither XDG_CONFIG_HOME nor HOME is set")?;
        if let Some(folder) = file.parent() {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.with_context(|| format!("cannot make {}", folder.display()))?;
        }
        write(&file, token.expose_secret())?;
        Ok(Self(file))
    }
}

impl Drop for SavedToken {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// `$XDG_CONFIG_HOME/drover/tokens/<host>_<port>`; all addresses of this machine are one host.
fn file_of(url: &Url) -> Option<PathBuf> {
    let config = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let config = config.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")))?;
    let host = match url.host()? {
        Host::Domain("localhost") => "localhost".to_owned(),
        Host::Ipv4(address) if address.is_loopback() || address.is_unspecified() => "localhost".to_owned(),
        Host::Ipv6(address) if address.is_loopback() || address.is_unspecified() => "localhost".to_owned(),
        host => host.to_string(),
    };
    Some(config.join("drover/tokens").join(format!("{host}_{}", url.port_or_known_default()?)))
}

/// Replaces the file in one step; nobody else can read it at any time.
fn write(file: &Path, token: &str) -> Result<()> {
    let partial = file.with_extension(format!("{}.partial", std::process::id()));
    let write = || {
        let mut open = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        writeln!(open, "{token}")?;
        fs::rename(&partial, file)
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}
