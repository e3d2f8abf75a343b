//! In mode `recommend` the agent decides like the HPA of the real kube-controller-manager, on the same workload and metrics.

use drover_autoscaling::DecisionRecord;
use drover_autoscaling::Steps;
use drover_testkit::eventually;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::PostParams;
use serde_json::json;

use crate::support::{Agent, PATIENCE, TestNamespace};

/// A decision of either, and its inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Decided {
    /// Which of the loads was set.
    step: usize,
    current: i32,
    utilization: i64,
    want: i32,
}

impl Decided {
    /// Whether it was made on the same reading and replicas, while the same load was set.
    fn same_inputs(&self, other: &Self) -> bool {
        (self.step, self.current, self.utilization) == (other.step, other.current, other.utilization)
    }
}

/// Loads in thousandths of a CPU, and the replicas that both must arrive at (the target is 50 of 100 each, at most six): up in steps,
/// then down in steps.
const LOADS: [(i64, i32); 6] = [(40, 1), (130, 3), (220, 5), (290, 6), (150, 3), (60, 2)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: the HPA decides every 15 s, and some twenty decisions are wanted"]
async fn recommend_mode_decides_like_the_real_hpa() {
    let Some(place) = TestNamespace::new("hpa") else { return };
    let place = place.await;
    place.workload("web", 1).await;
    let cpu = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]);
    let behavior = json!({"scaleDown": {"stabilizationWindowSeconds": 0}});
    let hpa = json!({"metadata": {"name": "web"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1, "maxReplicas": 6, "metrics": cpu, "behavior": behavior,
    }});
    let hpa: HorizontalPodAutoscaler = serde_json::from_value(hpa).unwrap();
    place.api().create(&PostParams::default(), &hpa).await.unwrap();
    let more = json!({"maxReplicas": 6, "behavior": behavior, "threshold": {"metrics": cpu}, "periodSeconds": 1});
    place.policy("web", "threshold", "recommend", more).await;
    let agent = Agent::start(&place, "agent", &place.kubeconfig, &[]).await;
    let (load, driver) = place.load("web");

    let (mut theirs, mut ours): (Vec<Decided>, Vec<Decided>) = (Vec::new(), Vec::new());
    let http = reqwest::Client::new();
    let url = format!("http://{}/v1/decisions/{}/web", agent.address, place.namespace);
    for (step, (milli, settled)) in LOADS.into_iter().enumerate() {
        load.send_replace(milli);
        // Until both have decided to stay at this number, on the same reading of this load.
        eventually(PATIENCE * 2, async || {
            let their = hpa_decided(&place, step).await;
            let answer = http.get(&url).bearer_auth(&place.token).send().await.ok()?;
            let our = decided(&answer.json().await.ok()?, step);
            theirs.extend(their.filter(|seen| !theirs.contains(seen)));
            ours.extend(our.filter(|seen| !ours.contains(seen)));
            let reading = |seen: &Decided| (seen.utilization * i64::from(settled) - milli).abs() <= i64::from(settled);
            let stays = |seen: &&Decided| seen.step == step && (seen.current, seen.want) == (settled, settled) && reading(seen);
            let there = ours.iter().filter(stays).any(|our| theirs.iter().filter(stays).any(|their| our.same_inputs(their)));
            there.then_some(())
        })
        .await;
    }
    driver.abort();

    // On the same reading and replicas the decisions must be equal.
    let (mut agreed, mut alone, mut differ) = (Vec::new(), Vec::new(), Vec::new());
    for their in &theirs {
        let matched: Vec<&Decided> = ours.iter().filter(|our| our.same_inputs(their)).collect();
        if matched.is_empty() {
            alone.push(their);
        } else if matched.iter().any(|our| our.want == their.want) {
            agreed.push(their);
        } else {
            differ.push((their, matched));
        }
    }
    eprintln!("{} HPA decisions: {} agreed, {} differ", theirs.len(), agreed.len(), differ.len());
    eprintln!(
        "without a decision of ours on the same reading (the metrics turned between two looks, or the status is from half a step): {alone:#?}"
    );
    eprintln!("ours: {ours:?}");
    assert!(differ.is_empty(), "{differ:#?}");
    assert!(agreed.len() >= LOADS.len());
    place.done().await;
}

/// The last decision in the HPA's status.
async fn hpa_decided(place: &TestNamespace, step: usize) -> Option<Decided> {
    let hpa = place.api::<HorizontalPodAutoscaler>().get("web").await.ok()?;
    let status = hpa.status?;
    let metric = status.current_metrics?.into_iter().next()?;
    let utilization = i64::from(metric.resource?.current.average_utilization?);
    Some(Decided { step, current: status.current_replicas?, utilization, want: status.desired_replicas })
}

fn decided(record: &DecisionRecord, step: usize) -> Option<Decided> {
    let Steps::Threshold(steps) = &record.steps else { return None };
    Some(Decided { step, current: record.current, utilization: steps.metrics.first()?.utilization?, want: record.want? })
}
