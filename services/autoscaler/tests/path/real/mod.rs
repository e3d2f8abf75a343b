//! Real pods on a real kubelet, with the documented manifests: scaling from zero under an open-loop load fails no request.

mod machine;
mod moved;
mod paper;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use drover_autoscaler::path::demo::load::Outcome;
use drover_testkit::eventually;

use self::machine::{Machine, missing, say};

/// Enough for a cluster, images and pods to start beside other load.
const PATIENCE: Duration = Duration::from_secs(240);

fn unix() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// The time at which the first pod of the app is created.
async fn first_pod(machine: &Machine) -> f64 {
    eventually(PATIENCE, async || (!pods(machine).await.is_empty()).then(unix)).await
}

async fn pods(machine: &Machine) -> Vec<String> {
    let list = machine.get("pods?labelSelector=app%3Dcart").await;
    list["items"].as_array().unwrap().iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
}

/// Runs the load in a pod, through the public Service, and returns the result.
async fn load(machine: &Machine, name: &str, rate: f64, during: f64) -> Outcome {
    let address = machine.get("services/cart").await["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let arguments = format!("demo-load --rate {rate} --during {during} http://{address}/");
    machine.kubectl(&format!("run {name} --image=drover.local/autoscaler:1 --restart=Never -- {arguments}")).await;
    eventually(PATIENCE, async || {
        let pod = machine.get(&format!("pods/{name}")).await;
        if pod["status"]["phase"] == "Failed" {
            panic!("the load could not run: {}", machine.kubectl(&format!("logs {name}")).await);
        }
        (pod["status"]["phase"] == "Succeeded").then_some(())
    })
    .await;
    serde_json::from_str(machine.kubectl(&format!("logs {name}")).await.trim()).unwrap()
}

/// Waits until clients are sent to the activator, which has the app's port open, and the node routes to it.
async fn held_for(machine: &Machine) {
    eventually(PATIENCE, async || {
        let slice = machine.find("apis/discovery.k8s.io/v1/namespaces/default/endpointslices/cart-drover").await?;
        (slice["metadata"]["annotations"]["drover.io/through"] == "activator" && slice["endpoints"].as_array()?.len() == 1).then_some(())
    })
    .await;
    let address = machine.get("services/cart").await["spec"]["clusterIP"].as_str().unwrap().to_owned();
    // A connection without a request starts no pod.
    eventually(PATIENCE, async || machine.inside(&format!("exec 3<>/dev/tcp/{address}/80")).await.then_some(())).await;
}

/// A cluster with the app at zero replicas and the activator in its path.
async fn at_zero() -> Machine {
    let machine = Machine::up(&[]).await;
    machine.apply_documented().await;
    held_for(&machine).await;
    machine
}

/// Scales from zero under load, and checks that no request failed.
async fn from_zero(machine: &Machine, name: &str, rate: f64, during: f64) -> Outcome {
    assert_eq!(pods(machine).await.len(), 0, "at zero");
    let (outcome, made) = tokio::join!(load(machine, name, rate, during), first_pod(machine));
    assert_eq!((outcome.failed, outcome.sent as f64), (0, rate * during), "{:?}", outcome.failures);
    let all = outcome.first_answer - outcome.first_request;
    let listening = outcome.first_answer - outcome.first_up.unwrap();
    let own = listening - made;
    say(&format!(
        "{name}: from zero, first request to first answer {all:.2} s; of it until the pod was made {:.2} s, its own start (made to \
         listening) {own:.2} s, listening to answer {:.2} s; beyond its own start {:.2} s. {} requests, {rate} a second, none failed; p50 \
         {:.3} s, max {:.2} s",
        made - outcome.first_request,
        outcome.first_answer - listening,
        all - own,
        outcome.sent,
        outcome.latency["p50"],
        outcome.latency["max"],
    ));
    outcome
}

/// Waits until the last pod is gone and the activator is in the path.
async fn to_zero(machine: &Machine) {
    eventually(PATIENCE, async || pods(machine).await.is_empty().then_some(())).await;
    held_for(machine).await;
}

#[tokio::test]
async fn scale_from_zero_under_load_fails_no_request() {
    if missing() {
        return;
    }
    let machine = at_zero().await;
    from_zero(&machine, "quick", 20.0, 5.0).await;
    to_zero(&machine).await;
    machine.kubectl("set env deployment/cart -c app DEMO_APP_START=20000").await;
    let slow = from_zero(&machine, "slow", 4.0, 10.0).await;
    assert!(slow.latency["max"] >= 20.0, "the app starts for 20 s: {:?}", slow.latency);
}

#[tokio::test]
#[ignore = "long: two minutes on a real kubelet"]
async fn requests_during_scale_to_and_from_zero_are_answered() {
    if missing() {
        return;
    }
    let machine = at_zero().await;
    for round in ["first", "second"] {
        from_zero(&machine, round, 20.0, 12.0).await;
        to_zero(&machine).await;
    }
    // Requests are so rare that each finds the app scaling to zero, at zero, or scaling up.
    let sparse = load(&machine, "sparse", 0.15, 60.0).await;
    assert_eq!(sparse.failed, 0, "{:?}", sparse.failures);
    say(&format!(
        "one request in 7 s, with a stable window of 6 s: {} requests, none failed, max {:.2} s",
        sparse.sent, sparse.latency["max"]
    ));
}
