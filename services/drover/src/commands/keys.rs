//! `drover keys`: replaces the key that seals kubeconfigs and contents of applications. Works on the key file; the services do the rest when
//! they start.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};

use super::up::default_data;

/// `drover keys …`.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Put a new key in front of the file; the old ones can still unseal. Restart Drover afterwards.
    #[command(after_help = "Example:\n  drover keys rotate && systemctl restart drover && drover keys retire")]
    Rotate(KeyFile),
    /// Move all keys but the newest to FILE.retired, after Drover has been restarted with the newest.
    Retire(KeyFile),
}

/// The file with the keys.
#[derive(Args, Debug)]
pub struct KeyFile {
    /// Key file [default: seal.key in the data directory of `drover up`].
    #[arg(long, env = "DROVER_SEAL_KEY_FILE", value_name = "FILE")]
    seal_key_file: Option<PathBuf>,
    /// Data directory of `drover up` [default: ~/.local/share/drover].
    #[arg(long, env = "DROVER_DATA", value_name = "DIR", conflicts_with = "seal_key_file")]
    data: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// The file cannot be read or written, or has no key.
pub fn run(command: KeysCommand) -> Result<()> {
    match command {
        KeysCommand::Rotate(file) => {
            let file = file.path()?;
            rotate(&file)?;
            println!("{} has a new key in front. Restart Drover: it seals everything with it before it serves.", file.display());
            println!("Then `drover keys retire` removes the old keys.");
        }
        KeysCommand::Retire(file) => {
            let file = file.path()?;
            match retire(&file)? {
                0 => println!("{} has one key; there is nothing to retire.", file.display()),
                count => println!("{count} old keys are in {}.retired; keep it as long as backups that they sealed.", file.display()),
            }
        }
    }
    Ok(())
}

impl KeyFile {
    fn path(self) -> Result<PathBuf> {
        match (self.seal_key_file, self.data) {
            (Some(file), _) => Ok(file),
            (None, Some(data)) => Ok(data.join("seal.key")),
            (None, None) => Ok(default_data()?.join("seal.key")),
        }
    }
}

fn rotate(file: &Path) -> Result<()> {
    let old = keys(file)?;
    let new = STANDARD.encode(rand::random::<[u8; 32]>());
    replace(file, std::iter::once(&new).chain(&old))
}

/// Returns the number of keys that were moved.
fn retire(file: &Path) -> Result<usize> {
    let all = keys(file)?;
    let (newest, old) = all.split_first().context("there is no key")?;
    if old.is_empty() {
        return Ok(0);
    }
    let retired = PathBuf::from(format!("{}.retired", file.display()));
    let earlier = if retired.exists() { keys(&retired)? } else { Vec::new() };
    // The copy comes first: a key that is lost cannot be had again.
    replace(&retired, old.iter().chain(&earlier))?;
    replace(file, std::iter::once(newest))?;
    Ok(old.len())
}

fn keys(file: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}; give --data or --seal-key-file", file.display()))?;
    let keys: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    ensure!(!keys.is_empty(), "{} holds no key", file.display());
    Ok(keys)
}

/// Replaces the file in one step; only its owner can read it.
fn replace<'a>(file: &Path, keys: impl Iterator<Item = &'a String>) -> Result<()> {
    let partial = PathBuf::from(format!("{}.{}.partial", file.display(), std::process::id()));
    let write = || {
        let mut open = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        for key in keys {
            writeln!(open, "{key}")?;
        }
        open.sync_all()?;
        fs::rename(&partial, file)
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use drover_store::{Place, SealKey};
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn old_key_unseals_after_rotation_and_no_more_after_retirement() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("seal.key");
        let place = Place { table: "t", column: "c", row: "r" };
        let sealed = SealKey::from_file_or_create(&file).unwrap().seal(place, b"kubeconfig");
        assert_eq!(retire(&file).unwrap(), 0, "the only key stays");

        rotate(&file).unwrap();
        let rotated = SealKey::from_file_or_create(&file).unwrap();
        assert!(rotated.is_stale(&sealed));
        assert_eq!(rotated.open_text(place, &sealed).unwrap().expose_secret(), "kubeconfig");
        let again = rotated.seal(place, b"kubeconfig");

        assert_eq!(retire(&file).unwrap(), 1);
        let newest = SealKey::from_file_or_create(&file).unwrap();
        assert!(newest.open_text(place, &sealed).is_err(), "the old key is refused");
        newest.open_text(place, &again).unwrap();
        let retired = SealKey::from_file_or_create(&folder.path().join("seal.key.retired")).unwrap();
        retired.open_text(place, &sealed).unwrap();
    }
}
