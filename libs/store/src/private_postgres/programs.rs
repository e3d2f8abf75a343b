//! Finds `postgres` and `initdb`, and the user to run them as.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Uid, User};

use super::{PrivatePostgresError, Result, io};

/// The programs of an installed version of Postgres.
pub(super) struct Programs {
    pub postgres: PathBuf,
    pub initdb: PathBuf,
    pub major_version: String,
    /// The user that root runs the server as; none when this process is not root's.
    pub server_user: Option<User>,
    /// The home directory of this process's user.
    pub home: Option<PathBuf>,
}

impl Programs {
    /// Searches PATH, then Debian's directory of versions (which is not on PATH), the newest first.
    pub fn find() -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let mut packaged: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
            .collect();
        packaged.sort();
        directories.extend(packaged.into_iter().rev().map(|(_, directory)| directory));
        // Links are resolved, because initdb expects `postgres` in its own directory.
        let directory = directories
            .into_iter()
            .filter_map(|directory| directory.join("initdb").canonicalize().ok()?.parent().map(Path::to_owned))
            .find(|directory| directory.join("postgres").is_file())
            .ok_or(PrivatePostgresError::NotInstalled)?;

        let server_user = if Uid::effective().is_root() {
            let find = |name| User::from_name(name).ok().flatten();
            Some(find("postgres").or_else(|| find("nobody")).ok_or(PrivatePostgresError::NoUser)?)
        } else {
            None
        };
        let home = User::from_uid(Uid::effective()).ok().flatten().map(|user| user.dir);
        let mut programs = Self {
            postgres: directory.join("postgres"),
            initdb: directory.join("initdb"),
            major_version: String::new(),
            server_user,
            home,
        };
        let output = io("run postgres --version", programs.command(&programs.postgres).arg("--version").output())?;
        // "postgres (PostgreSQL) 15.18 (Debian …)"
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split_whitespace().nth(2).unwrap_or_default();
        programs.major_version = version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().to_owned();
        Ok(programs)
    }

    /// A command that runs the program as the server's user, in a clean environment and in a process group of its own, so that Ctrl-C on the
    /// terminal does not reach it: Drover still needs the database while it stops.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LC_ALL", "C")
            .current_dir("/")
            .stdin(Stdio::null())
            .process_group(0);
        if let Some(user) = &self.server_user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }

    /// Makes the server's user the owner of a file or directory.
    pub fn give(&self, path: &Path) -> Result<()> {
        match &self.server_user {
            Some(user) => {
                io("change the owner of a file", std::os::unix::fs::chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())))
            }
            None => Ok(()),
        }
    }
}
