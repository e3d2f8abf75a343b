//! A copy of a private server's data, taken while it runs, and the data made of such a copy.
//!
//! The copy is that of `pg_basebackup`: physical and consistent as of its end, with roles and passwords. A server of the same major version
//! can be started from it, as after a crash of the machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::programs::Programs;
use super::{Home, PrivatePostgresError, Result, USER, io};

/// Names of the files of a copy in its directory.
const FILES: [&str; 3] = ["base.tar.gz", "pg_wal.tar.gz", "password"];

/// Copies the data of the running server of `directory` into the directory `to`, which must be empty.
///
/// # Errors
/// No server of this directory is running, or `pg_basebackup` fails.
pub fn copy_running(directory: &Path, to: &Path) -> Result<()> {
    let programs = Programs::find()?;
    let home = Home::open(directory, &programs)?;
    // Line 4 of this file of Postgres is the port.
    let pid_file = fs::read_to_string(home.data().join("postmaster.pid")).unwrap_or_default();
    let port = pid_file.lines().nth(3).ok_or_else(|| PrivatePostgresError::NotRunning(home.path.clone()))?;
    let password = io("read the database password", fs::read_to_string(home.path.join("password")))?;
    let mut command = Command::new(programs.postgres.with_file_name("pg_basebackup"));
    command.args(["-h", "127.0.0.1", "-p", port.trim(), "-U", USER, "--no-password", "--checkpoint=fast", "-Ft", "-z", "-D"]).arg(to);
    let output = io("run pg_basebackup", command.env("PGPASSWORD", password.trim()).env("LC_ALL", "C").output())?;
    if !output.status.success() {
        return Err(PrivatePostgresError::Copy(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    io("copy the database password", fs::copy(home.path.join("password"), to.join("password"))).map(drop)
}

/// Makes the data of `directory` from a copy; the server is not started.
///
/// # Errors
/// The directory has data, or a file of the copy is missing or damaged.
pub fn restore(directory: &Path, from: &Path) -> Result<()> {
    let programs = Programs::find()?;
    let home = Home::open(directory, &programs)?;
    let _lock = home.lock()?;
    if home.data().exists() {
        return Err(PrivatePostgresError::HasData(home.path.clone()));
    }
    for file in FILES {
        io(format!("find {file} in the backup"), fs::metadata(from.join(file)))?;
    }
    let aside = home.path.join("data.new");
    if aside.exists() {
        io("remove incomplete data", fs::remove_dir_all(&aside))?;
    }
    io("create the data directory", fs::create_dir(&aside))?;
    let wal = aside.join("pg_wal");
    for (file, to) in [("base.tar.gz", &aside), ("pg_wal.tar.gz", &wal)] {
        io("create the data directory", fs::create_dir_all(to))?;
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--gzip", "--no-same-owner", "--file"]).arg(from.join(file)).arg("--directory").arg(to);
        let output = io("run tar", tar.output())?;
        if !output.status.success() {
            return Err(PrivatePostgresError::Copy(format!("{file}: {}", String::from_utf8_lossy(&output.stderr).trim())));
        }
    }
    give_all(&programs, &aside)?;
    io("set permissions", fs::set_permissions(&aside, std::os::unix::fs::PermissionsExt::from_mode(0o700)))?;
    io("restore the database password", fs::copy(from.join("password"), home.path.join("password")))?;
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    io("set permissions", fs::set_permissions(home.path.join("password"), private))?;
    io("move the data into place", fs::rename(&aside, home.data()))
}

/// Makes the server's user the owner of a directory and everything in it.
fn give_all(programs: &Programs, path: &Path) -> Result<()> {
    programs.give(path)?;
    for entry in io("read the data directory", fs::read_dir(path))?.flatten() {
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => give_all(programs, &entry.path())?,
            false => programs.give(&entry.path())?,
        }
    }
    Ok(())
}
