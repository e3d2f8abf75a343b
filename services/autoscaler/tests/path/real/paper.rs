//! The paper's procedure on real pods: the test measures their capacity, trains a Q-table for it, and lets the agent scale them under a
//! replayed load. It reports the cost beside the cost of the same load in the simulator.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use drover_autoscaler::path::demo::replay::{ReadyPods, Tally, due};
use drover_autoscaler::policy::Plan;
use drover_autoscaling::qlearning::{Capacity, QTable};
use drover_autoscaling::{DecisionRecord, Observation, Policy, Steps};
use drover_lab_autoscaling::sim::{Arrivals, Driver, Run, Shape, SimSpec, Trace, drive};
use drover_testkit::{eventually, needs};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::PATIENCE;
use super::machine::{IMAGE, Machine, missing, run, say};

/// Maximum number of pods.
const MOST: i32 = 4;
/// Seconds of one generated load ("day"), number of days for training, and seconds between decisions.
const DAY: usize = 300;
const DAYS: usize = 17;
const PERIOD: usize = 15;
/// Time after which a request expires.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Cost of an expired request in pod-seconds; a tenth in the paper, whose pods serve about ten times as many requests.
const PENALTY: f64 = 1.0;
/// CPU time of a request in milliseconds, and CPU limit of a pod in thousandths.
const BURN: u32 = 4;
const LIMIT: u32 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: ten minutes on a real kubelet"]
async fn trained_table_scales_real_pods_and_reports_simulated_cost() {
    let Some(drover) = needs("DROVER_BIN").filter(|_| !missing()) else { return };
    let machine = Machine::up(&["--metrics"]).await;
    machine.favour();
    let agents = machine.apply_agent().await;
    let token = machine.allow_tables().await;
    apply(&machine, "app.yaml", &app()).await;
    let pods = ReadyPods::of(&[machine.client()], "default", "web").unwrap();

    let (points, delay) = measured(&machine, &pods).await;
    let capacity = Capacity::fit(&points).unwrap();
    let peak = capacity.of(MOST) * 0.9;
    let day = |seed| Trace::generate(Shape::Daily, DAY, peak, seed);
    let table = trained(&machine, Path::new(&drover), &points, delay, (1..=DAYS as u64).flat_map(|seed| day(seed).rates().to_vec())).await;
    let rates = day(DAYS as u64 + 1).rates().to_vec();
    say(&format!("capacity {points:?} requests per second, fitted {capacity:?}; {delay} s from asking for a pod to its serving"));

    // Load before the day begins, so that the pod has metrics.
    let before = Arc::new(Tally::default());
    pods.replay(&[rates[0]; 30], TIMEOUT, &before).await;
    let policy = policy(capacity);
    let lived = lived(&machine, &pods, &rates, &policy, agents, token).await;

    let plan = Plan::of(&policy["spec"]).unwrap();
    let sim = SimSpec { capacity, timeout: TIMEOUT.as_secs_f64(), delay, max_pods: MOST, penalty: PENALTY, ..SimSpec::default() };
    let simulated = simulated(&plan, &sim, &table, &rates);
    say(&report(&lived, &simulated));

    assert_eq!(lived.arrived, due(&rates).len(), "all was sent");
    assert_eq!(lived.arrived, lived.served + lived.expired, "each request was answered in time or expired");
    assert!(lived.replicas.iter().all(|(_, replicas)| (1..=MOST).contains(replicas)), "within its bounds: {:?}", lived.replicas);
    let changes: Vec<i32> = lived.replicas.windows(2).map(|two| two[1].1 - two[0].1).collect();
    assert!(changes.contains(&1) && changes.contains(&-1), "up and down: {:?}", lived.replicas);
    assert!(changes.iter().all(|change| change.abs() <= 1), "one at a time: {:?}", lived.replicas);
    // The agent learned from what was pushed: the expired requests of its periods are those of the run, without those before the first
    // decision and after the last one.
    let told: f64 = lived.decisions.iter().filter_map(|record| seen(record)?.expired.fresh().copied()).sum();
    assert!(told <= f64::from(lived.pushed), "{told} of {}", lived.pushed);
    let learned = lived.decisions.iter().filter(|record| matches!(&record.steps, Steps::QLearning(steps) if steps.cost.is_some())).count();
    assert!(learned * 2 > DAY / PERIOD, "learned from {learned} periods only: {:#?}", lived.decisions);
}

/// An app whose pods serve about `LIMIT / BURN` requests per second.
fn app() -> Value {
    let size = json!({"cpu": format!("{LIMIT}m"), "memory": "128Mi"});
    let container = json!({
        "name": "app", "image": IMAGE, "resources": {"requests": size, "limits": size},
        "command": ["/bin/drover-autoscaler", "demo-app", "--work", "0", "--burn", BURN.to_string(), "--at-once", "1"],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 5, "containers": [container]}}},
    })
}

fn policy(capacity: Capacity) -> Value {
    json!({
        "apiVersion": "drover.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": "web"},
        "spec": {
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "policy": "qlearning", "mode": "apply",
            "minReplicas": 1, "maxReplicas": MOST, "periodSeconds": PERIOD, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            "qlearning": {"initialTable": "table", "gamma": 0.5, "penalty": PENALTY, "capacity": capacity},
        },
    })
}

async fn apply(machine: &Machine, name: &str, object: &Value) {
    machine.kubectl(&format!("apply -f {}", machine.write(name, &object.to_string()).display())).await;
}

/// Requests per second of one, two and four pods, and the seconds until a new pod serves; ends with one pod.
async fn measured(machine: &Machine, pods: &ReadyPods) -> (Vec<(i32, f64)>, f64) {
    let (mut points, mut delay) = (Vec::new(), 0.0_f64);
    for count in [1, 2, MOST, 1] {
        machine.kubectl(&format!("scale deployment web --replicas={count}")).await;
        let asked = Instant::now();
        let wanted = usize::try_from(count).unwrap();
        eventually(PATIENCE, async || (pods.ready() == wanted).then_some(())).await;
        if points.iter().all(|(known, _)| *known < count) {
            if count > 1 {
                delay = delay.max(asked.elapsed().as_secs_f64());
            }
            points.push((count, pods.capacity(4, Duration::from_secs(5), Duration::from_secs(15)).await));
        }
    }
    (points, delay.ceil())
}

/// A Q-table trained with `drover autoscale train`, in a ConfigMap.
async fn trained(machine: &Machine, drover: &Path, points: &[(i32, f64)], delay: f64, load: impl Iterator<Item = f64>) -> QTable {
    let load: String = load.enumerate().map(|(second, rate)| format!("{second},{rate}\n")).collect();
    let capacity: String = points.iter().map(|(pods, rate)| format!("{pods},{rate}\n")).collect();
    let (load, capacity) = (machine.write("load.csv", &load), machine.write("capacity.csv", &capacity));
    let file = machine.write("table.json", "");
    let numbers = format!(
        "--timeout {} --delay {delay} --period {PERIOD} --penalty {PENALTY} --max-pods {MOST} --training {} --passes 20",
        TIMEOUT.as_secs(),
        DAY * DAYS
    );
    let mut train = Command::new(drover);
    train.args(["autoscale", "train", "--trace"]).arg(load).arg("--capacity").arg(capacity).arg("--table").arg(&file);
    run(train.args(numbers.split(' '))).await;
    machine.kubectl(&format!("create configmap table --from-file=table.json={}", file.display())).await;
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// The results of the day.
struct Lived {
    arrived: usize,
    served: usize,
    expired: usize,
    /// Expired requests that were pushed to the agent.
    pushed: u32,
    /// Changes of the replicas by second, and pod-seconds.
    replicas: Vec<(f64, i32)>,
    pod_seconds: f64,
    decisions: Vec<DecisionRecord>,
    /// Start, on the clock of the decisions.
    began: f64,
}

/// Replays the day while the agent scales.
async fn lived(machine: &Machine, pods: &ReadyPods, rates: &[f64], policy: &Value, agents: Vec<String>, token: String) -> Lived {
    let tally = Arc::new(Tally::default());
    apply(machine, "policy.yaml", policy).await;
    let began = super::unix();
    let telling = tokio::spawn(tell(agents.clone(), token.clone(), tally.clone()));
    let telling = AbortOnDropHandle::new(telling);
    let (mut replicas, mut pod_seconds, mut decisions): (Vec<(f64, i32)>, f64, BTreeMap<u64, DecisionRecord>) = Default::default();
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build().unwrap();
    let watching = async {
        let (start, mut last) = (Instant::now(), 0.0);
        loop {
            let now = start.elapsed().as_secs_f64().min(rates.len() as f64);
            if let Some(scale) = machine.find("apis/apps/v1/namespaces/default/deployments/web/scale").await {
                let count = i32::try_from(scale["spec"]["replicas"].as_i64().unwrap()).unwrap();
                pod_seconds += f64::from(count) * (now - last);
                last = now;
                if replicas.last().is_none_or(|(_, known)| *known != count) {
                    replicas.push((now, count));
                }
            }
            for agent in &agents {
                let answer = http.get(format!("http://{agent}:9465/v1/decisions/default/web")).bearer_auth(&token).send().await;
                if let Ok(answer) = answer.and_then(reqwest::Response::error_for_status)
                    && let Ok(record) = answer.json::<DecisionRecord>().await
                {
                    decisions.insert(record.at.to_bits(), record);
                }
            }
            if now >= rates.len() as f64 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    tokio::join!(pods.replay(rates, TIMEOUT, &tally), watching);
    drop(telling);
    let count = |of: &std::sync::atomic::AtomicU32| of.load(Relaxed) as usize;
    Lived {
        arrived: count(&tally.arrived),
        served: count(&tally.served),
        expired: count(&tally.expired),
        pushed: tally.expired.load(Relaxed),
        replicas,
        pod_seconds,
        decisions: decisions.into_values().collect(),
        began,
    }
}

/// Pushes the number of expired requests to the agent every second, as a mesh's metrics would.
async fn tell(agents: Vec<String>, token: String, tally: Arc<Tally>) {
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build().unwrap();
    let mut every = tokio::time::interval(Duration::from_secs(1));
    let mut told = 0;
    loop {
        every.tick().await;
        let expired = tally.expired.load(Relaxed);
        let push = json!({"namespace": "default", "policy": "web", "reporter": "load", "values": {"expired": expired - told}});
        for agent in &agents {
            let sent = http.post(format!("http://{agent}:9465/v1/statistics")).bearer_auth(&token).json(&push).send().await;
            if sent.is_ok_and(|answer| answer.status().is_success()) {
                told = expired;
                break;
            }
        }
    }
}

/// The same day in the simulator, with the agent's seed and with twenty others.
fn simulated(plan: &Plan, sim: &SimSpec, table: &QTable, rates: &[f64]) -> Vec<Run> {
    let arrivals = Arrivals::even(&Trace::new(rates.to_vec()), sim, 0, rates.len());
    let Policy::QLearning(learner) = &plan.policy else { panic!("another policy") };
    let seeds = std::iter::once(learner.seed).chain(101..=120);
    let policies = seeds.map(|seed| Policy::QLearning(drover_autoscaling::qlearning::QLearningSpec { seed, ..learner.clone() }));
    let drivers = policies.map(|policy| Driver::policy(policy, plan.limits.clone(), sim, PERIOD).with_table(table.clone()));
    drivers.map(|mut driver| drive(sim, &arrivals, &mut driver)).collect()
}

fn seen(record: &DecisionRecord) -> Option<&drover_autoscaling::qlearning::QLearningObservation> {
    if let Observation::QLearning(seen) = &record.inputs { Some(seen) } else { None }
}

fn report(lived: &Lived, simulated: &[Run]) -> String {
    let (same, others) = simulated.split_first().unwrap();
    let spread = |of: fn(&Run) -> f64| {
        let all: Vec<f64> = others.iter().map(of).collect();
        let (low, high) = all.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), one| (low.min(*one), high.max(*one)));
        format!("{:.0} ({low:.0} to {high:.0})", all.iter().sum::<f64>() / all.len() as f64)
    };
    let expired = lived.expired as f64;
    type Of = fn(&Run) -> f64;
    let rows: [(&str, f64, Of); 4] = [
        ("cost [pod-s]", lived.pod_seconds + PENALTY * expired, |run| run.totals.cost(PENALTY)),
        ("pods [pod-s]", lived.pod_seconds, |run| run.totals.pod_seconds),
        ("expired [requests]", expired, |run| run.totals.expired),
        ("served in time [%]", 100.0 * lived.served as f64 / lived.arrived as f64, |run| 100.0 * run.totals.served / run.totals.arrived),
    ];
    let mut text = format!(
        "{} requests in {DAY} s, {MOST} pods at most, a decision every {PERIOD} s, {PENALTY} pod-seconds an expired request\n{:20} {:>10} {:>10}  simulator, 20 seeds\n",
        lived.arrived, "", "real", "simulator"
    );
    for (name, real, of) in rows {
        let _ = writeln!(text, "{name:20} {real:>10.0} {:>10.0}  {}", of(same), spread(of));
    }
    let _ = writeln!(text, "replicas asked for: {:?}", lived.replicas.iter().map(|(at, n)| (at.round(), *n)).collect::<Vec<_>>());
    let _ = writeln!(text, "in the simulator:   {:?}", same.course.iter().map(|sample| sample.pods).collect::<Vec<_>>());
    for record in &lived.decisions {
        let (Some(seen), Steps::QLearning(steps)) = (seen(record), &record.steps) else { continue };
        let _ = writeln!(
            text,
            "{:>6.0} s: {} pods, cpu {:?}, expired {:?}, action {}{}",
            record.at - lived.began,
            seen.pods,
            seen.cpu.fresh(),
            seen.expired.fresh(),
            steps.action,
            steps.guard.as_deref().map(|guard| format!(" ({guard})")).unwrap_or_default()
        );
    }
    text
}
