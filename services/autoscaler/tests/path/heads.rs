//! The listeners of the three programs, as processes: a connection whose head is not finished is closed, and others are served meanwhile.
//! Needs no cluster.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use drover_testkit::eventually;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::PATIENCE;

/// Longer than the limit of 30 s, also on a loaded machine: only a listener without a limit keeps a connection for so long.
const LONG: Duration = Duration::from_secs(180);

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program; its address is the word of its log that begins with `field`.
async fn start(dir: &Path, field: &str, arguments: &[&str]) -> (Process, SocketAddr) {
    let log = dir.join(format!("{}.log", arguments[0]));
    let child = Command::new(env!("CARGO_BIN_EXE_drover-autoscaler"))
        .args(arguments)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let process = Process(child);
    let address = eventually(PATIENCE, async || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.split_whitespace().find_map(|word| word.strip_prefix(field)?.parse().ok())
    });
    (process, address.await)
}

/// Sends half a head and waits until the other side closes.
async fn half_a_head(name: &str, to: SocketAddr) {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-").await.unwrap();
    let closed = tokio::time::timeout(LONG, stream.read_to_end(&mut Vec::new())).await;
    assert!(closed.is_ok(), "{name} keeps a connection without a request for {LONG:?}");
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 "), "{name}: {answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_with_unfinished_heads_are_closed_by_each_program() {
    let dir = TempDir::new().unwrap();
    // Nothing listens there: all three serve their admin ports while the API server is away.
    let kubeconfig = dir.path().join("kubeconfig");
    let away = "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], \
        contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}], current-context: c}";
    std::fs::write(&kubeconfig, away).unwrap();
    let (kubeconfig, any) = (kubeconfig.to_str().unwrap(), "127.0.0.1:0");
    let agent = ["agent", "--kubeconfig", kubeconfig, "--listen", any];
    let activator = ["activator", "--kubeconfig", kubeconfig, "--address", "127.0.0.1", "--bind", "127.0.0.1", "--admin", any];
    let sidecar = ["queue-proxy", "--app-port", "1", "--listen", any, "--admin", any];
    let (_agent, agent) = start(dir.path(), "address=", &agent).await;
    let (_activator, activator) = start(dir.path(), "admin=", &activator).await;
    let (_sidecar, sidecar) = start(dir.path(), "admin=", &sidecar).await;
    tokio::join!(half_a_head("the agent", agent), half_a_head("the activator", activator), half_a_head("the queue-proxy", sidecar));
}
