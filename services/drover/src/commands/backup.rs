//! `drover backup` and `drover restore`: everything that `drover up` keeps below its data directory, in one file.
//!
//! The database is copied while it runs; keys and tokens are small files beside it. What is under way when the backup is taken goes on after
//! a restore from the last step that the backup has.

use std::fs::File;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use drover_store::private_postgres;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::up;

/// Directory of the private Postgres below the data directory.
const POSTGRES: &str = "postgres";
/// Directory of the copy of the database in a backup.
const DATABASE: &str = "database";

/// `drover backup`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover backup --out drover-2026-11-23.backup
  drover backup --data /var/lib/drover --out /backups/drover.backup

Run it on the machine of `drover up`, as the same user, while it runs. The file has the kubeconfigs of all clusters and the key that opens
them: keep it as secret as those. With DATABASE_URL, back that database up with its own tools, and keep the data directory.")]
pub struct BackupArgs {
    /// Data directory of `drover up` [default: ~/.local/share/drover].
    #[arg(long, env = "DROVER_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// File to write, readable only by you.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// `drover restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  drover restore drover-2026-11-23.backup --data /var/lib/drover && drover up --data /var/lib/drover

Needs the same major version of Postgres as the backup. Stop the Drover that the backup was taken of first, for good: two of them would
move applications against each other.")]
pub struct RestoreArgs {
    /// File that `drover backup` wrote.
    file: PathBuf,
    /// Data directory to make; it must be missing or empty [default: ~/.local/share/drover].
    #[arg(long, env = "DROVER_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Writes a backup.
///
/// # Errors
/// Drover does not run with this data directory, or a file cannot be read or written.
pub fn backup(args: BackupArgs) -> Result<()> {
    let data = args.data.map_or_else(up::default_data, Ok)?;
    ensure!(data.is_dir(), "there is no {}; give the data directory of `drover up` with --data", data.display());
    let copy = tempfile::tempdir()?;
    let database = copy.path().join(DATABASE);
    private_postgres::copy_running(&data.join(POSTGRES), &database).context("the database cannot be copied")?;
    // Written beside and renamed: an interrupted backup never replaces a complete one.
    let part = args.out.with_extension("part");
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&part);
    let file = file.with_context(|| format!("cannot write {}", part.display()))?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::fast()));
    archive.append_dir_all(DATABASE, &database)?;
    for entry in std::fs::read_dir(&data)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            archive.append_path_with_name(entry.path(), entry.file_name())?;
        }
    }
    archive.into_inner()?.finish()?.sync_all()?;
    std::fs::rename(&part, &args.out)?;
    eprintln!("{} is backed up to {}", data.display(), args.out.display());
    Ok(())
}

/// Makes a data directory from a backup.
///
/// # Errors
/// The directory is not empty, or the file is not a complete backup.
pub fn restore(args: RestoreArgs) -> Result<()> {
    let data = args.data.map_or_else(up::default_data, Ok)?;
    if std::fs::read_dir(&data).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty; nothing was restored. Choose another --data, or move it away first", data.display());
    }
    let file = File::open(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let unpacked = tempfile::tempdir()?;
    tar::Archive::new(GzDecoder::new(file)).unpack(unpacked.path()).context("this is not a backup of drover")?;
    let database = unpacked.path().join(DATABASE);
    ensure!(database.is_dir(), "{} has no copy of a database", args.file.display());
    std::fs::create_dir_all(&data)?;
    private_postgres::restore(&data.join(POSTGRES), &database).context("the database cannot be restored")?;
    for entry in std::fs::read_dir(unpacked.path())? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            place(&entry.path(), &data)?;
        }
    }
    eprintln!("{} is restored; start it with `drover up --data {}`", data.display(), data.display());
    Ok(())
}

/// Copies a key or token, readable only by its owner.
fn place(file: &Path, data: &Path) -> Result<()> {
    let to = data.join(file.file_name().unwrap_or_default());
    std::fs::copy(file, &to)?;
    Ok(std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600))?)
}
