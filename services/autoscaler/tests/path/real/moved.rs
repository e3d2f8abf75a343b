//! An app that is scaled to several pods moves to another cluster under load: its first minute there is not worse than its last one here.
//!
//! Two real kubelets, the hub, and in each cluster the agent as documented. `web` is scaled by KPA, whose windows go along; `cart` by a
//! learner, whose table goes along.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_autoscaler::path::demo::replay::{ReadyPods, Tally};
use drover_testkit::{eventually, needs};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::time::{Instant, interval};
use tokio_util::task::AbortOnDropHandle;

use super::PATIENCE;
use super::machine::{IMAGE, Machine, missing, run, say};

/// Requests per second to `web`, those for which a pod of it is added, and the pods that this makes.
const RATE: f64 = 52.0;
const TARGET: u32 = 14;
const PODS: i64 = 4;
/// Requests per second to `cart`.
const FEW: f64 = 8.0;
/// Time after which a request expires.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Share of the requests by which the first minute there may have more expired ones.
const MORE: f64 = 0.01;
/// Longest duration of the load.
const SECONDS: usize = 900;

/// A second of `web`.
#[derive(Clone, Debug)]
struct Second {
    at: Instant,
    arrived: u32,
    expired: u32,
    /// Replicas in each cluster, 0 where it is not.
    replicas: [i64; 2],
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: six minutes on two real kubelets"]
async fn first_minute_after_a_move_is_not_worse_than_the_last_one_before() {
    let Some(drover) = needs("DROVER_BIN").filter(|_| !missing()) else { return };
    let machines = Machine::all_up(["here", "there"], &["--metrics"]).await;
    let mut agents = Vec::new();
    for machine in &machines {
        machine.favour();
        let addresses = machine.apply_agent().await;
        let token = machine.allow_tables().await;
        agents.push((addresses, token));
    }
    let [here, there] = &machines;
    let hub = Hub::start(Path::new(&drover), &here.path("hub")).await;
    for (machine, name, provider) in [(here, "here", "onprem"), (there, "there", "aws")] {
        hub.run(&format!("cluster add {name} --provider {provider} --kubeconfig {}", machine.kubeconfig().display())).await;
    }
    hub.run("provider set onprem --priority 1").await;
    hub.run("provider set aws --priority 5").await;
    let documents = [app("web"), app("cart"), by_requests(), by_learning()].map(|object| object.to_string()).join("\n---\n");
    let file = here.write("shop.yaml", &documents);
    hub.run(&format!("deploy shop -f {} --movable --wait", file.display())).await;

    let clients = [here.client(), there.client()];
    let tallies: [Arc<Tally>; 2] = Default::default();
    let mut running = Vec::new();
    let names = [("web", RATE), ("cart", FEW)];
    for ((name, rate), tally) in names.into_iter().zip(&tallies) {
        let (pods, tally) = (ReadyPods::of(&clients, "default", name).unwrap(), tally.clone());
        running.push(AbortOnDropHandle::new(tokio::spawn(tell(name, pods.clone(), tally.clone(), agents.clone()))));
        let load = async move { pods.replay(&[rate; SECONDS], TIMEOUT, &tally).await };
        running.push(AbortOnDropHandle::new(tokio::spawn(load)));
    }
    let seconds: Arc<Mutex<Vec<Second>>> = Arc::default();
    let watching = watch(machines.clone(), tallies[0].clone(), seconds.clone());
    running.push(AbortOnDropHandle::new(tokio::spawn(watching)));

    // A minute with as many pods as the load needs, and a table that was saved.
    let steady = async || {
        let seconds = seconds.lock().unwrap();
        let last = seconds.len().checked_sub(60).map(|from| &seconds[from..])?;
        last.iter().all(|second| second.replicas == [PODS, 0]).then_some(())
    };
    eventually(PATIENCE, steady).await;
    let version =
        eventually(PATIENCE, async || policy(here, "cart").await?["status"]["table"]["version"].as_u64().filter(|at| *at > 0)).await;

    let began = Instant::now();
    let plan: Value = serde_json::from_str(&hub.run("plan drain here -o json").await).unwrap();
    hub.run(&format!("plan apply {} --wait", plan["id"].as_str().unwrap())).await;
    let moved = eventually(PATIENCE, async || {
        let seconds = seconds.lock().unwrap();
        seconds.iter().find(|second| second.at > began && second.replicas[0] == 0).map(|second| second.at)
    })
    .await;
    eventually(PATIENCE, async || {
        let seconds = seconds.lock().unwrap();
        seconds.last().is_some_and(|last| last.at > moved + Duration::from_secs(61)).then_some(())
    })
    .await;

    let seconds = seconds.lock().unwrap().clone();
    let minute = Duration::from_secs(60);
    let [last, meanwhile, first] = [(began - minute, began), (began, moved), (moved, moved + minute)].map(|span| Span::of(&seconds, span));
    say(&format!(
        "{RATE} requests/s to web, {PODS} pods: last minute here {last}; move ({:.1} s) {meanwhile}; first minute there {first}",
        (moved - began).as_secs_f64()
    ));
    assert!(first.expired <= last.expired + MORE, "more requests expire there: {first}; here {last}");
    assert!(first.pods.0 >= last.pods.0, "fewer pods there: {first}; here {last}");

    // What made it so: the windows and the table went along.
    let web = policy(there, "web").await.unwrap();
    let carried: Value = serde_json::from_str(web["metadata"]["annotations"]["drover.io/carried"].as_str().unwrap()).unwrap();
    assert!(carried["windows"]["values"].as_array().unwrap().len() > 10, "{carried}");
    let cart = policy(there, "cart").await.unwrap();
    assert!(cart["status"]["table"]["version"].as_u64().unwrap() >= version, "{version} here; {}", cart["status"]);
    let learning = cart["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Learning").unwrap();
    assert_eq!(learning["status"], "True", "{learning}");
}

/// What happened in some time.
struct Span {
    /// Share of the requests.
    expired: f64,
    /// Fewest and most replicas, of both clusters together.
    pods: (i64, i64),
}

impl Span {
    fn of(seconds: &[Second], (from, to): (Instant, Instant)) -> Self {
        let within: Vec<&Second> = seconds.iter().filter(|second| (from..=to).contains(&second.at)).collect();
        let (first, last) = (within.first().unwrap(), within.last().unwrap());
        let expired = f64::from(last.expired - first.expired) / f64::from((last.arrived - first.arrived).max(1));
        let pods = within.iter().map(|second| second.replicas.iter().sum::<i64>());
        Self { expired, pods: (pods.clone().min().unwrap(), pods.max().unwrap()) }
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} % expired, {} to {} pods", 100.0 * self.expired, self.pods.0, self.pods.1)
    }
}

/// An app whose pods serve about 20 requests per second.
fn app(name: &str) -> Value {
    let size = json!({"cpu": "100m", "memory": "64Mi"});
    let container = json!({
        "name": "app", "image": IMAGE, "resources": {"requests": size, "limits": size},
        "command": ["/bin/drover-autoscaler", "demo-app", "--work", "0", "--burn", "4", "--at-once", "1"],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"terminationGracePeriodSeconds": 5, "containers": [container]}}},
    })
}

fn scaled(name: &str, most: u32, more: Value) -> Value {
    let mut spec = json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "mode": "apply", "minReplicas": 1,
        "maxReplicas": most, "periodSeconds": 2});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "drover.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": name}, "spec": spec})
}

fn by_requests() -> Value {
    scaled("web", 6, json!({"policy": "kpa", "kpa": {"metric": "rps", "target": TARGET, "targetUtilization": 1, "stableWindow": 60}}))
}

fn by_learning() -> Value {
    let learner = json!({"penalty": 1, "capacity": {"perPod": 20, "fixed": 0}});
    scaled("cart", 3, json!({"policy": "qlearning", "staleAfterSeconds": 120, "qlearning": learner}))
}

async fn policy(machine: &Machine, name: &str) -> Option<Value> {
    machine.find(&format!("apis/drover.io/v1alpha1/namespaces/default/scalingpolicies/{name}")).await
}

/// Reports every second what queue-proxies and a mesh would, to the agents of the cluster where the requests went.
async fn tell(name: &'static str, pods: ReadyPods, tally: Arc<Tally>, agents: Vec<(Vec<String>, String)>) {
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build().unwrap();
    let mut every = interval(Duration::from_secs(1));
    let (mut told, mut expired) = ([0_u32; 2], 0_u32);
    loop {
        every.tick().await;
        for (cluster, (addresses, token)) in agents.iter().enumerate() {
            let (sent, lost) = (pods.sent(cluster), tally.expired.load(Relaxed));
            let count = sent - told[cluster];
            if count == 0 {
                continue;
            }
            let requests = json!({"averageConcurrency": 1, "averageProxiedConcurrency": 0, "count": count, "proxiedCount": 0});
            let values = json!({"expired": lost - expired});
            let push = json!({"namespace": "default", "policy": name, "reporter": "load", "requests": requests, "values": values});
            for agent in addresses {
                let sent = http.post(format!("http://{agent}:9465/v1/statistics")).bearer_auth(token).json(&push).send().await;
                if sent.is_ok_and(|answer| answer.status().is_success()) {
                    expired = lost;
                    break;
                }
            }
            told[cluster] = sent;
        }
    }
}

/// Records every second of `web`.
async fn watch(machines: [Machine; 2], tally: Arc<Tally>, seconds: Arc<Mutex<Vec<Second>>>) {
    let mut every = interval(Duration::from_secs(1));
    loop {
        every.tick().await;
        let mut replicas = [0; 2];
        for (machine, replicas) in machines.iter().zip(&mut replicas) {
            let scale = machine.find("apis/apps/v1/namespaces/default/deployments/web/scale").await;
            *replicas = scale.and_then(|scale| scale["spec"]["replicas"].as_i64()).unwrap_or(0);
        }
        let (arrived, expired) = (tally.arrived.load(Relaxed), tally.expired.load(Relaxed));
        seconds.lock().unwrap().push(Second { at: Instant::now(), arrived, expired, replicas });
    }
}

/// `drover up`, and the command line; ended when dropped.
struct Hub {
    up: Child,
    drover: PathBuf,
    data: PathBuf,
    url: String,
}

impl Hub {
    async fn start(drover: &Path, data: &Path) -> Self {
        let mut command = std::process::Command::new(drover);
        command.args(["up", "--local-clusters", "--listen", "127.0.0.1:0", "--log", "warn", "--data"]).arg(data);
        let mut up = command.env_remove("DATABASE_URL").stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(up.stderr.take().unwrap()).lines();
        let (send, told) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let mut send = Some(send);
            for line in lines.map_while(Result::ok) {
                let url = line.split_whitespace().find(|word| word.starts_with("http://")).filter(|_| line.contains("Drover is up"));
                match url {
                    Some(url) => drop(send.take().map(|send| send.send(url.to_owned()))),
                    None => say(&line),
                }
            }
        });
        let url = tokio::time::timeout(PATIENCE, told).await.expect("drover up takes too long").unwrap();
        Self { up, drover: drover.into(), data: data.into(), url }
    }

    /// Runs `drover` with these arguments, and returns what it prints.
    async fn run(&self, arguments: &str) -> String {
        let mut command = tokio::process::Command::new(&self.drover);
        command.args(arguments.split_whitespace()).stdin(Stdio::null());
        run(command.env("DROVER_URL", &self.url).env("DROVER_TOKEN_FILE", self.data.join("api-token"))).await
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.up.id().cast_signed()), Signal::SIGTERM);
        let _ = self.up.wait();
    }
}
