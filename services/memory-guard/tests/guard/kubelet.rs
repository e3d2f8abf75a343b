//! The guard beside a real kubelet: Jobs that want more memory than the node has, with liveness probes, and one in CrashLoopBackOff. No
//! pause makes a probe fail so often that the kubelet kills the container. With NRI a refused pod waits until the kubelet asks again, and
//! no Job fails because of it.

use std::time::Instant;

use drover_lab_node::{Agent, IMAGE, Version};
use serde_json::{Value, json};

use crate::support::node::{Node, missing};
use crate::support::{ALONE, containerd_two, guard, say};

/// Memory of all pods together, in MiB. The six pods of the Job may want 960 and always hold 480.
const MEMORY: u64 = 640;

/// A container. With a probe it tolerates (3 - 1) * 6 - 2 = 10 s without an answer, and 6 s for one answer, because this machine may be
/// busy.
fn container(arguments: &[&str], memory: u64, probe: bool) -> Value {
    let mut container = json!({
        "name": "main", "image": IMAGE, "args": arguments,
        "resources": {"requests": {"memory": "32Mi", "cpu": "20m"}, "limits": {"memory": format!("{memory}Mi")}},
    });
    if probe {
        container["livenessProbe"] = json!({"httpGet": {"port": 8080}, "periodSeconds": 6, "timeoutSeconds": 6, "failureThreshold": 3});
    }
    container
}

fn job(name: &str, pods: u32, container: Value) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
           "spec": {"completions": pods, "parallelism": pods, "backoffLimit": 100, "template": {"spec": pod("OnFailure", container)}}})
}

fn pod(restart: &str, container: Value) -> Value {
    json!({"restartPolicy": restart, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "containers": [container]})
}

/// A Job of six pods. Each always holds 80 MiB and twice grows by up to 80 in steps of 20, each taking 0.2 s of CPU, holds that for about
/// 1.5 s, and frees it.
fn work() -> Value {
    let arguments = ["serve", "8080", "job", "160", "80", "20", "2", "200", "100", "1500", "1"];
    job("work", 6, container(&arguments, 170, true))
}

fn agent(node: &Node) -> Agent {
    let (state, socket, kubeconfig) = (node.path().join("agent"), node.socket(), node.kubeconfig());
    let settings = json!({"policy": {"policy": "gate-bank", "bank": {"margin": 0.04}}, "safety": {"cooldown": 2.0}});
    let mut start = guard(&state, &socket).settings(settings).args(["--mode", "apply", "--poll", "200ms"]);
    start.args.extend(["--cgroup".to_owned(), node.pods_group(), "--node".to_owned(), node.name()]);
    start.args.extend(["--kubeconfig".to_owned(), kubeconfig.display().to_string()]);
    start.start().unwrap()
}

fn restarts(pod: &Value) -> i64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or(0)
}

fn of<'a>(pods: &'a [Value], job: &'a str) -> impl Iterator<Item = &'a Value> {
    pods.iter().filter(move |pod| pod["metadata"]["labels"]["job-name"] == job)
}

/// Number of kills because of a failed liveness probe, of pods whose names begin with `of`.
fn liveness_kills(node: &Node, of: &str) -> usize {
    let killed = |event: &Value| {
        event["reason"] == "Killing"
            && event["message"].as_str().is_some_and(|message| message.contains("failed liveness probe"))
            && event["involvedObject"]["name"].as_str().is_some_and(|name| name.starts_with(of))
    };
    node.list("events").iter().filter(|event| killed(event)).count()
}

async fn until_done(node: &Node, name: &str) {
    node.eventually(&format!("the Job {name} is done"), || {
        let jobs = node.list("jobs");
        let job = jobs.iter().find(|job| job["metadata"]["name"] == name)?;
        assert!(job["status"]["conditions"].as_array().is_none_or(|all| all.iter().all(|one| one["type"] != "Failed")), "{job}");
        (job["status"]["succeeded"].as_i64() == job["spec"]["completions"].as_i64()).then_some(())
    })
    .await;
}

/// Freezes a pod with the same probe by hand and does not release it: the kubelet kills it, which shows that the probe works.
async fn control_is_killed(node: &Node) {
    let group = node
        .eventually("the control runs", || {
            let pods = node.list("pods");
            let pod = pods.iter().find(|pod| pod["metadata"]["name"] == "control")?;
            pod["status"]["containerStatuses"][0]["state"].get("running").map(|_| node.group(pod))
        })
        .await;
    group.freezer().freeze().unwrap();
    node.eventually("its probe has killed the control", || (liveness_kills(node, "control") > 0).then_some(())).await;
    // A frozen process cannot die. The container may be gone already.
    let _ = group.freezer().thaw();
}

async fn crashing_backs_off(node: &Node) {
    // The status shows CrashLoopBackOff only briefly or never, so the events of the kubelet are read.
    let backs_off = |event: &Value| {
        event["reason"] == "BackOff" && event["involvedObject"]["name"].as_str().is_some_and(|name| name.starts_with("crashing"))
    };
    node.eventually("the crashing one backs off", || {
        let again = of(&node.list("pods"), "crashing").any(|pod| restarts(pod) >= 1);
        (again && node.list("events").iter().any(backs_off)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn pauses_never_make_the_kubelet_restart_a_container() {
    if missing("pauses_never_make_the_kubelet_restart_a_container") {
        return;
    }
    let _alone = ALONE.lock().await;
    let node = Node::up(MEMORY, &Version::Debian).await;
    let agent = agent(&node);
    agent.status_when("it may act", |status| status.hindered.is_none() && status.api_server && status.gate.by == "events").await.unwrap();
    let began = Instant::now();
    let control = pod("Always", container(&["serve", "8080", "pause"], 32, true));
    let control = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "control"}, "spec": control});
    node.make(&[control, job("crashing", 1, container(&["fail"], 32, false)), work()]);
    tokio::join!(until_done(&node, "work"), control_is_killed(&node), crashing_backs_off(&node));
    let totals = agent.status().await.unwrap().totals;
    let pods = node.list("pods");
    let restarted: i64 = of(&pods, "work").map(restarts).sum();
    say(&format!("a real kubelet, 6 pods of 160 MiB on {MEMORY} MiB: {:?}, {restarted} restarts, {totals:?}", began.elapsed()));
    assert!(totals.pauses + totals.gated > 0, "no container was held, so this run proves nothing");
    assert_eq!(liveness_kills(&node, "work"), 0, "{}\n{}", node.kubectl(&["get", "events"]), agent.log());
    agent.status_when("nothing is held any more", |status| status.pressure.held == 0).await.unwrap();
    assert_eq!(agent.held().unwrap(), 0);
    agent.stop().await.unwrap();
}

#[tokio::test]
#[ignore = "long: a cluster with a real node and containerd 2, three minutes"]
async fn kubelet_retries_containers_that_nri_refused_and_no_job_fails() {
    if missing("kubelet_retries_containers_that_nri_refused_and_no_job_fails") {
        return;
    }
    let _alone = ALONE.lock().await;
    let node = Node::up(MEMORY, &containerd_two()).await;
    let agent = agent(&node);
    agent.status_when("it is asked", |status| status.hindered.is_none() && status.gate.by == "nri").await.unwrap();
    let began = Instant::now();
    node.make(&[work()]);
    let words = node
        .eventually("a pod waits for the gate", || {
            let waiting = |pod: &Value| {
                let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
                (waiting["reason"] == "CreateContainerError").then(|| waiting["message"].as_str().unwrap_or_default().to_owned())
            };
            node.list("pods").iter().find_map(waiting)
        })
        .await;
    assert!(words.contains("memory guard: held at its start"), "{words}");
    until_done(&node, "work").await;
    let refusals: i64 = node
        .list("events")
        .iter()
        .filter(|event| event["reason"] == "Failed" && event["message"].as_str().is_some_and(|words| words.contains("memory guard")))
        .map(|event| event["count"].as_i64().unwrap_or(1))
        .sum();
    let pods = node.list("pods");
    let restarted: i64 = of(&pods, "work").map(restarts).sum();
    let totals = agent.status().await.unwrap().totals;
    say(&format!("NRI before a real kubelet: done after {:?}, {refusals} refusals, {restarted} restarts, {totals:?}", began.elapsed()));
    assert_eq!(of(&pods, "work").count(), 6, "no pod was given up");
    assert_eq!(liveness_kills(&node, "work"), 0);
    agent.stop().await.unwrap();
}
