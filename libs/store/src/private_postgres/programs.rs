//! Finding `postgres` and `initdb`, and the user they may run as.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Uid, User};

use super::{PrivatePostgresError, Result, io};

/// The programs of one installed version.
pub(super) struct Programs {
    pub postgres: PathBuf,
    pub initdb: PathBuf,
    pub major_version: String,
    /// Whom root lends the server to.
    pub lent_user: Option<User>,
    /// Our own home directory.
    pub home: Option<PathBuf>,
}

impl Programs {
    /// PATH first, then the newest version under Debian's directory, which is not on PATH.
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
        // Resolved, because initdb looks for its `postgres` beside itself.
        let directory = directories
            .into_iter()
            .filter_map(|directory| directory.join("initdb").canonicalize().ok()?.parent().map(Path::to_owned))
            .find(|directory| directory.join("postgres").is_file())
            .ok_or(PrivatePostgresError::NotInstalled)?;

        let lent_user = if Uid::effective().is_root() {
            let find = |name| User::from_name(name).ok().flatten();
            Some(find("postgres").or_else(|| find("nobody")).ok_or(PrivatePostgresError::NoUser)?)
        } else {
            None
        };
        let home = User::from_uid(Uid::effective()).ok().flatten().map(|user| user.dir);
        let mut programs =
            Self { postgres: directory.join("postgres"), initdb: directory.join("initdb"), major_version: String::new(), lent_user, home };
        let output = io("run postgres --version", programs.command(&programs.postgres).arg("--version").output())?;
        // "postgres (PostgreSQL) 15.18 (Debian …)"
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split_whitespace().nth(2).unwrap_or_default();
        programs.major_version = version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().to_owned();
        Ok(programs)
    }

    /// The program as the user it may run as, in a clean environment and a process group of its own: Ctrl-C on the terminal
    /// is for Drover, which still needs the database while it stops.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LC_ALL", "C")
            .current_dir("/")
            .stdin(Stdio::null())
            .process_group(0);
        if let Some(user) = &self.lent_user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }

    /// Hands a file or directory over to the lent user.
    pub fn give(&self, path: &Path) -> Result<()> {
        match &self.lent_user {
            Some(user) => io("hand over a file", std::os::unix::fs::chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))),
            None => Ok(()),
        }
    }
}
