//! A private Postgres server: `drover up` keeps its state in one, and each test process has a temporary one.
//!
//! It is not meant for production, where `DATABASE_URL` names a server. The programs installed on the machine are used. The server listens
//! on a random loopback port only, has no unix socket, and requires a random password.
//!
//! ```text
//! DIR/            0711 root or us      DIR/lock       held by the process that uses DIR
//! DIR/password    0600                 DIR/log        the server's log
//! DIR/data/       0700 the server's user (Postgres refuses to run as root, so root runs it as another user)
//! ```
//!
//! Invariant: the server ends when the process that started it ends, even by SIGKILL (see `supervisor`), and a directory is used
//! by one process at a time.

mod backup;
mod programs;
mod supervisor;

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use secrecy::{ExposeSecret, SecretString};
use sqlx::{Connection, PgConnection};

pub use backup::{copy_running, restore};
use programs::Programs;
use supervisor::Supervisor;

/// The superuser of a private server. Services use roles of their own.
const USER: &str = "drover";
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Why the private server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrivatePostgresError {
    /// The programs are neither on PATH nor under /usr/lib/postgresql.
    #[error("no Postgres found on this machine: install it (Debian: apt install postgresql) or set DATABASE_URL")]
    NotInstalled,
    /// Postgres does not run as root, and there is no other user to run it as.
    #[error("Postgres refuses to run as root, and this machine has neither a user `postgres` nor a user `nobody`")]
    NoUser,
    /// Another process has locked the directory.
    #[error("{0} is in use by another drover; stop it first or choose another --data directory")]
    InUse(PathBuf),
    /// The data directory was created by another major version.
    #[error("{path} was made by Postgres {found}, the one installed is {installed}: use that version, or another --data directory")]
    OtherVersion { path: PathBuf, found: String, installed: String },
    #[error("initdb failed: {0}")]
    Init(String),
    /// The server ended or did not answer in time.
    #[error("Postgres did not start; the end of {log}:\n{tail}")]
    Start {
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A copy was asked for of a server that does not run.
    #[error("no server is running in {0}; start it with `drover up`, or give its data directory")]
    NotRunning(PathBuf),
    /// A copy was to be restored over data.
    #[error("{0} has a database already; nothing was restored")]
    HasData(PathBuf),
    /// The data could not be copied or unpacked.
    #[error("{0}")]
    Copy(String),
    /// A file or process operation failed.
    #[error("{doing}")]
    Io {
        doing: String,
        #[source]
        source: std::io::Error,
    },
}

type Result<T> = std::result::Result<T, PrivatePostgresError>;

fn io<T>(doing: impl std::fmt::Display, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|source| PrivatePostgresError::Io { doing: format!("cannot {doing}"), source })
}

/// What committed data has to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// With fsync: data survives a crash of the process and of the machine.
    Durable,
    /// Without fsync: committed data survives a kill of the server, because the kernel has it, but no crash of the machine. For tests
    /// that kill the server.
    Killable,
    /// Without fsync and without waiting for commits; the whole directory is removed when the server stops. For tests.
    ThrowAway,
}

/// A running private server. Dropping it stops the server in the background; [`PrivatePostgres::stop`] waits for the end.
#[derive(Debug)]
pub struct PrivatePostgres {
    supervisor: Supervisor,
    port: u16,
    password: SecretString,
    _lock: File,
}

impl PrivatePostgres {
    /// Starts the server of `directory`, and creates its data first if there is none.
    ///
    /// # Errors
    /// Postgres is not installed, the directory is in use or belongs to another version, or the server does not start.
    pub async fn start(directory: &Path, durability: Durability) -> Result<Self> {
        let directory = directory.to_owned();
        let launch = move || Self::launch(&directory, durability);
        let running = io("start Postgres", tokio::task::spawn_blocking(launch).await.map_err(std::io::Error::other))??;
        running.wait_until_ready().await
    }

    /// `postgres://…` of `database` on this server (`postgres` always exists).
    pub fn url(&self, database: &str) -> SecretString {
        SecretString::from(format!("postgres://{USER}:{}@127.0.0.1:{}/{database}", self.password.expose_secret(), self.port))
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the server has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.supervisor.has_ended()
    }

    /// Shuts the server down (it ends all sessions and takes a checkpoint) and waits for its end.
    pub async fn stop(self) {
        let _ = tokio::task::spawn_blocking(move || self.supervisor.stop()).await;
    }

    /// Creates the data of `directory` without starting a server, so that servers can be started from copies of it.
    ///
    /// # Errors
    /// As [`PrivatePostgres::start`].
    pub async fn prepare(directory: &Path, durability: Durability) -> Result<()> {
        let directory = directory.to_owned();
        let prepare = move || {
            let programs = Programs::find()?;
            let home = Home::open(&directory, &programs)?;
            let _lock = home.lock()?;
            home.initialise(&programs, durability).map(drop)
        };
        io("run initdb", tokio::task::spawn_blocking(prepare).await.map_err(std::io::Error::other))?
    }

    fn launch(directory: &Path, durability: Durability) -> Result<Self> {
        let programs = Programs::find()?;
        let home = Home::open(directory, &programs)?;
        let lock = home.lock()?;
        supervisor::end_orphan(&home.data())?;
        let password = home.initialise(&programs, durability)?;
        // The port is released before the server binds it. If another process takes it in between, the server does not start.
        let port = io("find a free port", TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()))?.port();
        let supervisor = Supervisor::start(&programs, &home, port, durability)?;
        Ok(Self { supervisor, port, password, _lock: lock })
    }

    async fn wait_until_ready(mut self) -> Result<Self> {
        let give_up = Instant::now() + START_TIMEOUT;
        let url = self.url("postgres");
        loop {
            if let Ok(connection) = PgConnection::connect(url.expose_secret()).await {
                let _ = connection.close().await;
                return Ok(self);
            }
            if self.has_ended() || Instant::now() > give_up {
                return Err(self.supervisor.start_failure());
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }
}

/// The directory of a private server and its files.
struct Home {
    path: PathBuf,
}

impl Home {
    fn open(directory: &Path, programs: &Programs) -> Result<Self> {
        io(format!("create {}", directory.display()), fs::create_dir_all(directory))?;
        let path = io(format!("open {}", directory.display()), directory.canonicalize())?;
        if programs.server_user.is_none() {
            return Ok(Self { path });
        }
        // The server's user must be able to reach its data. The directory and the one above it belong to Drover, so others may be allowed
        // to pass through them; the permissions of a home directory are not changed.
        for ours in [Some(path.as_path()), path.parent()].into_iter().flatten() {
            let metadata = io("read permissions", fs::metadata(ours))?;
            if metadata.permissions().mode() & 0o001 == 0 && metadata.uid() == 0 && Some(ours) != programs.home.as_deref() {
                let mode = metadata.permissions().mode() | 0o011;
                io("set permissions", fs::set_permissions(ours, fs::Permissions::from_mode(mode)))?;
            }
        }
        let reachable = path.ancestors().all(|above| fs::metadata(above).is_ok_and(|it| it.permissions().mode() & 0o001 != 0));
        if reachable {
            return Ok(Self { path });
        }
        // Only root can enter /root. The files are then under /var/lib, in a directory named after a hash of this one.
        let key = format!("{:016x}", fingerprint(&path));
        let elsewhere = Path::new("/var/lib/drover").join(key);
        io(format!("create {}", elsewhere.display()), fs::create_dir_all(&elsewhere))?;
        let pointer = path.join("MOVED");
        // The pointer is what says whose the files are. Without it, the data directory was deleted, with the key that opens what the old
        // database holds: the old database is set aside, since with it the next start would fail on every kubeconfig.
        if !pointer.exists() && elsewhere.join("data").exists() {
            set_aside(&elsewhere)?;
        }
        io("note where the data is", fs::write(pointer, format!("{}\n", elsewhere.display())))?;
        tracing::info!(path = %elsewhere.display(), "Postgres does not run as root, and its user cannot reach {}; its files are kept in another directory", path.display());
        Ok(Self { path: elsewhere })
    }

    fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Locks the directory until the process ends.
    fn lock(&self) -> Result<File> {
        let file = io("open the lock", File::options().create(true).append(true).open(self.path.join("lock")))?;
        file.try_lock().map_err(|_| PrivatePostgresError::InUse(self.path.clone()))?;
        Ok(file)
    }

    /// Creates the data if there is none. It is created in another directory and renamed, so that a kill leaves no incomplete data.
    fn initialise(&self, programs: &Programs, durability: Durability) -> Result<SecretString> {
        let password_file = self.path.join("password");
        if let Ok(found) = fs::read_to_string(self.data().join("PG_VERSION")) {
            let found = found.trim().to_owned();
            if found != programs.major_version {
                return Err(PrivatePostgresError::OtherVersion { path: self.data(), found, installed: programs.major_version.clone() });
            }
            return Ok(SecretString::from(io("read the database password", fs::read_to_string(&password_file))?.trim()));
        }
        let password = SecretString::from(random_password());
        let mut file =
            io("create the password file", File::options().write(true).create(true).truncate(true).mode(0o600).open(&password_file))?;
        io("write the password file", file.write_all(password.expose_secret().as_bytes()).and_then(|()| file.sync_all()))?;

        let aside = self.path.join("data.new");
        if aside.exists() {
            io("remove incomplete data of an earlier start", fs::remove_dir_all(&aside))?;
        }
        io("create the data directory", fs::create_dir(&aside))?;
        io("set permissions", fs::set_permissions(&aside, fs::Permissions::from_mode(0o700)))?;
        // initdb reads the password as the server's user, who may not read our file.
        let for_initdb = self.path.join("password.initdb");
        io("copy the password", fs::copy(&password_file, &for_initdb))?;
        programs.give(&aside)?;
        programs.give(&for_initdb)?;

        let mut initdb = programs.command(&programs.initdb);
        initdb.args(["--encoding=UTF8", "--locale=C", "--username", USER, "--pwfile"]).arg(&for_initdb).arg("-D").arg(&aside);
        match durability {
            Durability::Durable => initdb.arg("--auth=scram-sha-256"),
            // A SCRAM login costs tens of milliseconds in unoptimised code, and tests log in thousands of times.
            Durability::Killable | Durability::ThrowAway => initdb.args(["--auth=md5", "--no-sync", "--wal-segsize=1"]),
        };
        let output = io("run initdb", initdb.output());
        io("remove the copy of the password", fs::remove_file(&for_initdb))?;
        let output = output?;
        if !output.status.success() {
            return Err(PrivatePostgresError::Init(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        io("move the cluster into place", fs::rename(&aside, self.data()))?;
        Ok(password)
    }
}

/// Renames the directory of a database whose data directory was deleted, and makes an empty one in its place.
fn set_aside(database: &Path) -> Result<()> {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let aside = database.with_extension(format!("unclaimed-{seconds}"));
    io(format!("set {} aside", database.display()), fs::rename(database, &aside))?;
    tracing::warn!("the data directory of {} was deleted; its database is now {} and may be deleted", database.display(), aside.display());
    io(format!("create {}", database.display()), fs::create_dir_all(database))
}

fn random_password() -> String {
    let bytes: [u8; 24] = rand::random();
    crate::hex(&bytes)
}

fn fingerprint(path: &Path) -> u64 {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(path.as_os_str().as_encoded_bytes());
    digest[..8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
