//! Asks endpoints whether they answer: those that are new, and those that did not take a connection.
//!
//! The path is that of the app's readiness probe where it has one for the port; otherwise a connection is enough. An endpoint that
//! answers stays so until a request finds that it takes no connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drover_service::TaskHandle;
use http::{Request, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::route::Endpoint;
use crate::state::DataPath;

/// An endpoint must answer within this time.
const ANSWER: Duration = Duration::from_secs(2);
/// Pause between two probes of an endpoint that starts.
const OFTEN: Duration = Duration::from_millis(100);
/// Pause between two probes of one that has not answered for [`STARTS_WITHIN`].
const RARELY: Duration = Duration::from_secs(2);
/// Time after which an endpoint is asked less often.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// Probes at the same time.
const AT_ONCE: usize = 64;

/// What is asked of an endpoint.
#[derive(Clone)]
struct Question {
    endpoint: Arc<Endpoint>,
    path: Option<String>,
    host: Option<String>,
}

/// Asks for ever.
pub async fn run(path: Arc<DataPath>, task: TaskHandle) {
    let mut asked: HashMap<usize, (Instant, Instant)> = HashMap::new();
    let mut running = JoinSet::new();
    let mut changes = path.changes();
    loop {
        task.active();
        let open = questions(&path);
        asked.retain(|key, _| open.contains_key(key));
        let now = Instant::now();
        for (key, question) in open {
            let (since, next) = asked.entry(key).or_insert((now, now));
            if *next <= now && running.len() < AT_ONCE {
                *next = now + ANSWER + if now - *since < STARTS_WITHIN { OFTEN } else { RARELY };
                running.spawn(async move { (key, ask(&question).await, question.endpoint) });
            }
        }
        let due = asked.values().map(|(_, next)| *next).min().unwrap_or_else(|| now + RARELY);
        tokio::select! {
            Some(Ok((key, answers, endpoint))) = running.join_next() => {
                if answers {
                    endpoint.answers.store(true, Ordering::Relaxed);
                    path.tell();
                } else if let Some((since, next)) = asked.get_mut(&key) {
                    *next = Instant::now() + if since.elapsed() < STARTS_WITHIN { OFTEN } else { RARELY };
                }
            }
            _ = changes.changed() => {}
            () = tokio::time::sleep_until(due.max(now + Duration::from_millis(10))) => {}
        }
    }
}

/// The endpoints that do not answer yet, by their place in memory.
fn questions(path: &DataPath) -> HashMap<usize, Question> {
    let compiled = path.compiled();
    let mut open = HashMap::new();
    for route in compiled.routes() {
        for backend in &route.backends {
            for endpoint in backend.endpoints.iter().filter(|endpoint| !endpoint.answers.load(Ordering::Relaxed)) {
                let path = route.probe.clone().filter(|_| !backend.h2c);
                let question = Question { endpoint: endpoint.clone(), path, host: route.host.clone() };
                open.insert(Arc::as_ptr(endpoint) as usize, question);
            }
        }
    }
    open
}

async fn ask(question: &Question) -> bool {
    let address = question.endpoint.address;
    let answers = async {
        match &question.path {
            None => TcpStream::connect(address).await.is_ok(),
            Some(path) => get(address, path, question.host.as_deref()).await.unwrap_or(false),
        }
    };
    timeout(ANSWER, answers).await.unwrap_or(false)
}

/// Whether a request is answered with 2xx or 3xx, as for the kubelet.
async fn get(address: SocketAddr, path: &str, host: Option<&str>) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let host = host.map_or_else(|| address.to_string(), str::to_owned);
    let request = Request::get(path).header(header::HOST, host).header(header::USER_AGENT, "drover-probe").body(String::new())?;
    tokio::pin!(connection);
    tokio::select! {
        response = sender.send_request(request) => {
            let status = response?.status();
            Ok(status.is_success() || status.is_redirection())
        }
        ended = connection.as_mut() => {
            ended?;
            Ok(false)
        }
    }
}
