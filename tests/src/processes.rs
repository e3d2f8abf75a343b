//! Drover as it runs in production: a process per service, with a Postgres server. Each process can be killed, stopped (SIGSTOP),
//! started again, and given failpoints while it runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use drover::hub::Client;
use drover_api::ledger::Claims;
use drover_api::scheduling::Claim;
use drover_store::failpoint::marker;
use drover_testkit::{KillablePostgres, eventually, free_port};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::Url;
use secrecy::ExposeSecret;

const TIMEOUT: Duration = Duration::from_secs(300);
/// The token by which the processes know each other if they have no certificates.
pub const TOKEN: &str = "a token that only this machine's loopback ever sees";

/// The services with state of their own, in the order in which they are started.
pub const SERVICES: [&str; 5] = ["cluster-manager", "placement", "resource-synchronizer", "migration", "orchestrator"];

/// A process of a service, which may or may not run.
struct Instance {
    service: &'static str,
    port: u16,
    environment: Vec<(String, String)>,
    child: Option<Child>,
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// All processes. They end with this value, and when the test process ends for any reason.
pub struct Processes {
    pub postgres: KillablePostgres,
    database_url: String,
    directory: tempfile::TempDir,
    scheme: &'static str,
    /// The folder of the certificates, if there are any.
    certificates: Option<PathBuf>,
    instances: BTreeMap<String, Instance>,
}

impl Processes {
    /// Starts Postgres, the five services and the gateway, and waits until they are ready. All of them get the variables of `environment`.
    pub async fn start(environment: &[(&str, &str)]) -> Self {
        let common = |_: &str| environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let all = Self::launch("http", None, common).await;
        all.until_ready("gateway").await;
        all
    }

    /// The same with the certificates in a folder, as `deploy/docker/certificates.sh` makes them: services know each other by them.
    pub async fn start_with_certificates(folder: &Path, environment: &[(&str, &str)]) -> Self {
        let all = Self::launch_with_certificates(folder, environment).await;
        all.until_ready("gateway").await;
        all
    }

    /// The same without waiting until they are ready.
    pub async fn launch_with_certificates(folder: &Path, environment: &[(&str, &str)]) -> Self {
        let path = |name: String| folder.join(name).display().to_string();
        let of = |service: &str| {
            let own = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let mut all: Vec<(String, String)> = own.collect();
            all.push(("DROVER_TLS_CERT_FILE".to_owned(), path(format!("{service}.pem"))));
            all.push(("DROVER_TLS_KEY_FILE".to_owned(), path(format!("{service}.key"))));
            all.push(("DROVER_TLS_CA_FILE".to_owned(), path("ca.pem".to_owned())));
            all
        };
        Self::launch("https", Some(folder.to_owned()), of).await
    }

    async fn launch(scheme: &'static str, certificates: Option<PathBuf>, of: impl Fn(&str) -> Vec<(String, String)>) -> Self {
        let postgres = KillablePostgres::start().await;
        let database_url = postgres.url().expose_secret().to_owned();
        let directory = tempfile::tempdir().expect("a temporary folder");
        let mut all = Self { postgres, database_url, directory, scheme, certificates, instances: BTreeMap::new() };
        let names = SERVICES.into_iter().chain(["gateway"]);
        let ports: Vec<u16> = names.clone().map(|_| free_port()).collect();
        let peers: Vec<(String, String)> =
            names.clone().zip(&ports).map(|(name, port)| (peer_variable(name), format!("{scheme}://127.0.0.1:{port}"))).collect();
        for (service, port) in names.zip(ports) {
            let environment = peers.iter().cloned().chain(of(service)).collect();
            all.instances.insert(service.to_owned(), Instance { service, port, environment, child: None });
            all.run(service);
        }
        all
    }

    /// Starts second processes of services under other names. Their peers are each other instead of the first processes; `environment` makes
    /// the variables of each from its name.
    pub async fn also(&mut self, seconds: &[(&'static str, &'static str)], environment: impl Fn(&str) -> Vec<(String, String)>) {
        for ((name, service), port) in seconds.iter().map(|second| (second, free_port())) {
            let environment = self.instances[*service].environment.clone();
            self.instances.insert((*name).to_owned(), Instance { service, port, environment, child: None });
        }
        let meet: Vec<(String, String)> = seconds.iter().map(|(name, _)| self.peer_setting(name)).collect();
        for (name, _) in seconds {
            let instance = self.instances.get_mut(*name).expect("it was just put there");
            // Later values win.
            instance.environment.extend(meet.iter().cloned().chain(environment(name)));
            self.run(name);
        }
        for (name, _) in seconds {
            self.until_ready(name).await;
        }
    }

    /// Starts a process `traffic` of the data path, and orchestrator anew, so that it follows that process.
    pub async fn carry_routes(&mut self) {
        let port = free_port();
        let orchestrator = self.instances.get_mut("orchestrator").expect("it was started");
        let mut environment = orchestrator.environment.clone();
        orchestrator.environment.push(("DROVER_TRAFFIC_URLS".to_owned(), format!("{}://127.0.0.1:{port}", self.scheme)));
        environment.push(("DROVER_TRAFFIC_DIR".to_owned(), self.directory.path().join("traffic").display().to_string()));
        self.instances.insert("traffic".to_owned(), Instance { service: "traffic", port, environment, child: None });
        self.run("traffic");
        self.kill("orchestrator");
        self.run("orchestrator");
        self.until_ready("traffic").await;
        self.until_ready("gateway").await;
    }

    /// The environment variable by which peers find the process `name`, and its value.
    fn peer_setting(&self, name: &str) -> (String, String) {
        let instance = &self.instances[name];
        (peer_variable(instance.service), format!("{}://127.0.0.1:{}", self.scheme, instance.port))
    }

    /// Starts a process that does not run, without waiting until it is ready.
    pub fn run(&mut self, name: &str) {
        let points = self.points(name);
        std::fs::create_dir_all(&points).expect("the folder is ours");
        let log = self.directory.path().join(format!("{name}.log"));
        let log = File::options().create(true).append(true).open(log).expect("the folder is ours");
        let seal_key = self.directory.path().join("seal.key");
        let instance = self.instances.get_mut(name).expect("it was named before");
        assert!(instance.child.is_none(), "{name} runs already");
        // The kernel kills it when this process ends for any reason.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program(instance.service))
            .args(["--listen", &format!("127.0.0.1:{}", instance.port)])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("DATABASE_URL", &self.database_url)
            .env("DROVER_PEER_TOKEN", TOKEN)
            .env("DROVER_INSECURE_NO_AUTH", "true")
            .env("DROVER_LOCAL_CLUSTERS", "true")
            // The default is too short for a plan while many tests share two processors.
            .env("DROVER_PLAN_SECONDS", "5")
            .env("DROVER_SEAL_KEY_FILE", seal_key)
            .env("DROVER_FAILPOINTS_DIR", points)
            .envs(instance.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        instance.child = Some(child.expect("setpriv (util-linux) is installed"));
    }

    /// Kills a process by SIGKILL and waits for its end.
    pub fn kill(&mut self, name: &str) {
        let instance = self.instances.get_mut(name).expect("it was named before");
        let mut child = instance.child.take().unwrap_or_else(|| panic!("{name} does not run"));
        let status = child.kill().and_then(|()| child.wait()).expect("it is ours");
        assert!(status.signal() == Some(9), "{name} had already ended: {status}\n{}", self.log(name));
    }

    /// Sends SIGSTOP or SIGCONT to a process.
    pub fn signal(&self, name: &str, signal: Signal) {
        let child = self.instances[name].child.as_ref().unwrap_or_else(|| panic!("{name} does not run"));
        kill(Pid::from_raw(child.id().cast_signed()), signal).expect("it is ours");
    }

    /// Replaces the failpoints of a process by `settings` (`name=pause` and the like).
    pub fn arm<'a>(&self, name: &str, settings: impl IntoIterator<Item = &'a String>) {
        let text: String = settings.into_iter().flat_map(|setting| [setting.as_str(), "\n"]).collect();
        let folder = self.points(name);
        // Renamed into place, so that a process which reads the file sees either the old or the new settings.
        std::fs::write(folder.join("armed.new"), text)
            .and_then(|()| std::fs::rename(folder.join("armed.new"), folder.join("armed")))
            .expect("the folder is ours");
    }

    /// Whether a process has paused at this failpoint since the last [`Processes::forget`] or [`Processes::rearm`].
    pub fn paused(&self, name: &str, failpoint: &str) -> bool {
        self.points(name).join(marker(failpoint)).exists()
    }

    /// Clears all failpoints of a process and the record of its pauses.
    pub fn forget(&self, name: &str) {
        self.rearm(name, []);
    }

    /// Clears the record of a process's pauses and replaces its failpoints by `settings`: paused work continues, to the next of these
    /// failpoints.
    pub fn rearm<'a>(&self, name: &str, settings: impl IntoIterator<Item = &'a String>) {
        // The markers are removed before the paused work continues: a marker made after that belongs to a new setting.
        for entry in std::fs::read_dir(self.points(name)).expect("the folder is ours").flatten() {
            if entry.file_name() != "armed" {
                std::fs::remove_file(entry.path()).expect("the folder is ours");
            }
        }
        self.arm(name, settings);
    }

    /// A REST client of the gateway, or of another process directly.
    pub fn client(&self, name: &str) -> Client {
        let authority = self.certificates.as_ref().map(|folder| folder.join("ca.pem"));
        Client::with_authority(self.url(name), (name != "gateway").then(|| TOKEN.to_owned()), authority.as_deref()).expect("a client")
    }

    /// The claims in placement's ledger, as peers read them.
    pub async fn claims(&self) -> anyhow::Result<Vec<Claim>> {
        claims(self.url("placement"), TOKEN).await
    }

    /// The URL of the database for a superuser.
    pub fn database_url(&self) -> &str {
        &self.database_url
    }

    /// How often the log of a process contains this text.
    pub fn logged(&self, name: &str, text_wanted: &str) -> usize {
        let text = std::fs::read_to_string(self.directory.path().join(format!("{name}.log"))).unwrap_or_default();
        text.matches(text_wanted).count()
    }

    /// The last lines of the log of a process.
    pub fn log(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.directory.path().join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }

    /// Waits until a process is ready, and with it everything that it needs.
    pub async fn until_ready(&self, name: &str) {
        let ready = self.url(name).join("readyz").expect("a path");
        // Only the state is asked for; who answers is shown by what the gateway says of the services.
        let http = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build().expect("a client");
        let ask = async || http.get(ready.clone()).send().await.is_ok_and(|answer| answer.status().is_success()).then_some(());
        eventually(TIMEOUT, ask).await;
    }

    /// Ends all processes and the database server.
    pub async fn end(self) {
        let Self { postgres, instances, .. } = self;
        drop(instances);
        postgres.end().await;
    }

    /// The address of a process.
    pub fn url(&self, name: &str) -> Url {
        Url::parse(&format!("{}://127.0.0.1:{}/", self.scheme, self.instances[name].port)).expect("an address")
    }

    fn points(&self, name: &str) -> PathBuf {
        self.directory.path().join("points").join(name)
    }
}

/// The claims in the ledger of the placement at this address.
pub(crate) async fn claims(placement: Url, token: &str) -> anyhow::Result<Vec<Claim>> {
    let request = reqwest::Client::new().get(placement.join("internal/claims")?).bearer_auth(token);
    Ok(request.send().await?.error_for_status()?.json::<Claims>().await?.items)
}

fn peer_variable(service: &str) -> String {
    format!("DROVER_PEERS_{}", service.to_uppercase().replace('-', "_"))
}

/// The binary of the service, in the same target directory as this test.
fn program(service: &str) -> PathBuf {
    let ours = std::env::current_exe().expect("the path of this program");
    let folder = ours.parent().and_then(Path::parent).expect("it is in <target>/<profile>/deps");
    let program = folder.join(format!("drover-{service}"));
    assert!(program.is_file(), "{} is missing: build it by `cargo build --workspace --bins`, as `make test` does", program.display());
    program
}
