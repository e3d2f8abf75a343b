//! Runs the program `drover` as people do: commands, `drover up`, and simulated clusters for it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::database;

pub(crate) const DROVER: &str = env!("CARGO_BIN_EXE_drover");

/// A process that ends with the test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The home directory of these tests' user.
pub(crate) const HOME: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/home");

pub(crate) fn command(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(DROVER);
    command.args(args).env_clear().env("HOME", HOME).env("PATH", std::env::var_os("PATH").unwrap()).env("DROVER_URL", url);
    command.stdin(Stdio::null());
    command
}

pub(crate) fn run(url: &str, args: &[&str]) -> Output {
    command(url, args).output().unwrap()
}

#[track_caller]
pub(crate) fn ok(url: &str, args: &[&str]) -> String {
    let output = run(url, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "drover {}: {said}", args.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
pub(crate) fn json(url: &str, args: &[&str]) -> Value {
    serde_json::from_str(&ok(url, args)).unwrap()
}

/// `drover up` with its data in this folder, and its address. Its database is prepared ([`database`]).
pub(crate) fn start(folder: &Path) -> (Process, String) {
    start_with(folder, &[])
}

/// The same with settings of services, as environment variables.
pub(crate) fn start_with(folder: &Path, settings: &[(&str, &str)]) -> (Process, String) {
    database::prepare(folder);
    let (up, url, _) = start_and_hear(folder, settings);
    (up, url)
}

/// The same where Drover has never been: it makes its database itself, which takes seconds.
pub(crate) fn start_anew(folder: &Path) -> (Process, String) {
    let (up, url, _) = start_and_hear(folder, &[]);
    (up, url)
}

/// Starts it, and returns also the lines that it has printed until it was up.
pub(crate) fn start_and_hear(folder: &Path, settings: &[(&str, &str)]) -> (Process, String, Vec<String>) {
    let at = |name: &str| folder.join(name).display().to_string();
    let mut up = Command::new(DROVER);
    std::fs::write(at("drover.toml"), "listen = \"127.0.0.1:0\"\nlog = \"warn\"\n").unwrap();
    up.args(["up", "--local-clusters", "--data", &at("data"), "--config", &at("drover.toml")]);
    up.env("HOME", HOME).env_remove("XDG_CONFIG_HOME").stderr(Stdio::piped()).env_remove("DATABASE_URL");
    up.envs(settings.iter().copied());
    let mut up = Process(up.spawn().unwrap());
    let mut lines = BufReader::new(up.0.stderr.take().unwrap()).lines();
    let mut heard = Vec::new();
    while !heard.iter().any(|line: &String| line.contains("/login?key=")) {
        heard.push(lines.next().expect("drover up prints a link to the page").unwrap());
    }
    let url = heard.iter().flat_map(|line| line.split_whitespace()).find(|word| word.starts_with("http://"));
    let url = url.expect("drover up prints its address").to_owned();
    std::thread::spawn(move || lines.for_each(drop));
    (up, url, heard)
}

/// Simulated clusters of one node, served as long as the runtime lives, and their kubeconfigs.
pub(crate) fn simulated(clusters: usize, folder: &Path) -> (tokio::runtime::Runtime, Vec<String>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (send, told) = std::sync::mpsc::channel();
    let folder = folder.to_owned();
    runtime.spawn(async move {
        let spec = drover_kubesim::ClusterSpec::with_nodes(1, "4", "16Gi");
        let ready = |_: &str, files: &[std::path::PathBuf]| {
            send.send(files.iter().map(|file| file.display().to_string()).collect()).unwrap();
        };
        drover_kubesim::dev::run(clusters, &spec, &folder, ready, std::future::pending()).await.unwrap();
    });
    let files = told.recv_timeout(Duration::from_secs(60)).unwrap();
    (runtime, files)
}

/// GET of a path with this `Accept`.
pub(crate) fn fetch(url: &str, path: &str, accept: &str) -> String {
    let address = format!("{}{path}", url.trim_end_matches('/'));
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap();
    let token = std::fs::read_to_string(format!("{HOME}/.config/drover/tokens/localhost_{port}")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let request = reqwest::Client::new().get(&address).bearer_auth(token.trim()).header("accept", accept);
        request.send().await.unwrap().error_for_status().unwrap().text().await.unwrap()
    })
}

pub(crate) fn wait(mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(180), "the expected state was not reached");
        std::thread::sleep(Duration::from_millis(100));
    }
}
