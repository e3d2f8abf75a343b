//! A Postgres server that a test can kill and start again, behind a proxy whose connections can be cut.
//!
//! Unlike the server of [`crate::test_db`], this one waits for its commits: what was committed before a SIGKILL is there afterwards. Every
//! process of the server is killed, as when its container is lost. Its address is the proxy's and stays the same.

use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use drover_store::private_postgres::{Durability, PrivatePostgres};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::PgConnectOptions;

use crate::{ChaosProxy, SmallDisk, eventually, postgres};

const TIMEOUT: Duration = Duration::from_secs(60);

/// The server. Dropping it ends the server and removes its files.
#[derive(Debug)]
pub struct KillablePostgres {
    directory: PathBuf,
    server: Option<PrivatePostgres>,
    /// The proxy between all clients and the server.
    pub proxy: ChaosProxy,
}

impl KillablePostgres {
    /// Starts a server.
    ///
    /// # Panics
    /// Postgres cannot be started here.
    pub async fn start() -> Self {
        Self::start_in(postgres::prepared_copy_below(&postgres::place()).await).await
    }

    /// Starts a server with its tables on `disk` and its write-ahead log on the machine's own disk, a usual precaution against a full disk. The
    /// server must be dropped before the disk.
    ///
    /// # Panics
    /// Postgres cannot be started here.
    pub async fn start_on(disk: &SmallDisk) -> Self {
        let (directory, log) = (postgres::prepared_copy_below(disk.path()).await, disk.beside());
        let moved = Command::new("mv").arg(directory.join("data/pg_wal")).arg(&log).status();
        assert!(moved.is_ok_and(|moved| moved.success()), "the log can be moved");
        std::os::unix::fs::symlink(&log, directory.join("data/pg_wal")).expect("the directory is ours");
        Self::start_in(directory).await
    }

    async fn start_in(directory: PathBuf) -> Self {
        let server = PrivatePostgres::start(&directory, Durability::Killable).await.expect("a private Postgres starts");
        let proxy = ChaosProxy::start(([127, 0, 0, 1], server.port()).into()).await;
        Self { directory, server: Some(server), proxy }
    }

    /// The URL of a superuser, through the proxy.
    ///
    /// # Panics
    /// The server does not run.
    pub fn url(&self) -> SecretString {
        let direct = self.server.as_ref().expect("it runs").url("postgres");
        let options = PgConnectOptions::from_str(direct.expose_secret()).expect("a URL");
        let options = options.host("127.0.0.1").port(self.proxy.address().port());
        SecretString::from(sqlx::ConnectOptions::to_url_lossy(&options).to_string())
    }

    /// Kills every process of the server by SIGKILL and waits until they are gone.
    ///
    /// # Panics
    /// The server does not run.
    pub async fn kill(&mut self) {
        let file = std::fs::read_to_string(self.directory.join("data/postmaster.pid")).expect("it runs");
        let postmaster: i32 = file.lines().next().and_then(|pid| pid.trim().parse().ok()).expect("its first line is the pid");
        let children = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).unwrap_or_default();
        let pids: Vec<i32> = [postmaster].into_iter().chain(children.split_whitespace().filter_map(|pid| pid.parse().ok())).collect();
        for pid in &pids {
            // An error means that the process is gone already.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        eventually(TIMEOUT, async || pids.iter().all(|pid| is_gone(*pid)).then_some(())).await;
        drop(self.server.take());
    }

    /// Starts the server again on the same files; it recovers from its log.
    ///
    /// # Panics
    /// It does not start.
    pub async fn restart(&mut self) {
        let server = PrivatePostgres::start(&self.directory, Durability::Killable).await.expect("Postgres recovers");
        self.proxy.retarget(([127, 0, 0, 1], server.port()).into());
        self.server = Some(server);
    }

    /// Stops the server and removes its files.
    pub async fn end(mut self) {
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
    }
}

impl Drop for KillablePostgres {
    fn drop(&mut self) {
        drop(self.server.take());
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Whether there is no such process, or it has ended and only waits for its parent.
fn is_gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // `pid (name) state …`; the name may hold anything.
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}
