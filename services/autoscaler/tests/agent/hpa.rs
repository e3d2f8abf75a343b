//! In mode `recommend` the agent decides like the HPA of the real kube-controller-manager, on the same workload and metrics.

use std::time::Duration;

use drover_autoscaling::DecisionRecord;
use drover_autoscaling::Steps;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::PostParams;
use serde_json::json;

use crate::support::{Agent, TestNamespace};

/// A decision of either, and its inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Decided {
    at: f64,
    current: i32,
    utilization: i64,
    want: i32,
}

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
    let began = std::time::Instant::now();
    // Up in steps, down in steps; every step lasts longer than the metrics and the HPA together need.
    for milli in [40, 130, 220, 290, 150, 60] {
        load.send_replace(milli);
        let until = began.elapsed() + Duration::from_secs(60);
        while began.elapsed() < until {
            let at = began.elapsed().as_secs_f64();
            if let Some(seen) = hpa_decided(&place, at).await
                && theirs.last().is_none_or(|last| Decided { at, ..*last } != seen)
            {
                theirs.push(seen);
            }
            if let Ok(answer) = http.get(&url).bearer_auth(&place.token).send().await
                && let Ok(record) = answer.json::<DecisionRecord>().await
                && let Some(seen) = decided(&record, at)
                && ours.last().is_none_or(|last| Decided { at, ..*last } != seen)
            {
                ours.push(seen);
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
    driver.abort();

    // On the same reading and replicas at about the same time the decisions must be equal.
    let (mut agreed, mut alone, mut differ) = (Vec::new(), Vec::new(), Vec::new());
    for their in &theirs {
        let same =
            |our: &&Decided| (our.current, our.utilization) == (their.current, their.utilization) && (our.at - their.at).abs() < 16.0;
        let matched: Vec<&Decided> = ours.iter().filter(same).collect();
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
    eprintln!("different: {differ:#?}");
    eprintln!("ours: {ours:?}");
    assert!(agreed.len() >= 6, "too few decisions on the same reading to tell");
    assert!(differ.is_empty());
    place.done().await;
}

/// The last decision in the HPA's status.
async fn hpa_decided(place: &TestNamespace, at: f64) -> Option<Decided> {
    let hpa = place.api::<HorizontalPodAutoscaler>().get("web").await.ok()?;
    let status = hpa.status?;
    let metric = status.current_metrics?.into_iter().next()?;
    let utilization = i64::from(metric.resource?.current.average_utilization?);
    Some(Decided { at, current: status.current_replicas?, utilization, want: status.desired_replicas })
}

fn decided(record: &DecisionRecord, at: f64) -> Option<Decided> {
    let Steps::Threshold(steps) = &record.steps else { return None };
    Some(Decided { at, current: record.current, utilization: steps.metrics.first()?.utilization?, want: record.want? })
}
