//! Job: pods until enough of them succeeded, or too many failed.

use std::time::Duration;

use serde_json::{Value, json};

use super::common::{owned, pod_of, put_status, without_zeros};
use crate::api::random_suffix;
use crate::key::Key;
use crate::object::{self, list, number, text};
use crate::state::ClusterState;
use crate::timers::Timer;

pub fn reconcile(state: &mut ClusterState, key: &Key, job: &Value) {
    let over = object::condition_is_true(job, "Complete") || object::condition_is_true(job, "Failed");
    if over {
        return;
    }
    let pods = owned(state, job, "pods");
    let in_phase = |phase: &str| pods.iter().filter(|(_, pod)| text(pod, "/status/phase") == phase).count() as i64;
    let (succeeded, failed) = (in_phase("Succeeded"), in_phase("Failed"));
    let mut active: Vec<_> = pods.iter().filter(|(_, pod)| object::pod_active(pod)).collect();
    let completions = number(job, "/spec/completions").unwrap_or(1);
    let verdict = if succeeded >= completions {
        Some(("Complete", "CompletionsReached", "Reached expected number of succeeded pods"))
    } else if failed > number(job, "/spec/backoffLimit").unwrap_or(6) {
        Some(("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"))
    } else {
        None
    };
    let suspended = job["spec"]["suspend"] == true;
    let wanted =
        if verdict.is_some() || suspended { 0 } else { number(job, "/spec/parallelism").unwrap_or(1).min(completions - succeeded) };
    let mut count = active.len() as i64;
    while count > wanted
        && let Some((key, _)) = active.pop()
    {
        state.delete_object(key, None, "Background");
        count -= 1;
    }
    while count < wanted {
        let mut pod = pod_of(&job["spec"]["template"]);
        pod["metadata"]["generateName"] = json!(format!("{}-", key.name));
        let name = Key::new(&"pods".into(), &key.namespace, &format!("{}-{}", key.name, random_suffix()));
        if state.create_owned(name, pod, job).is_err() {
            state.after(Duration::from_secs(1), Timer::Revisit(key.clone()));
            break;
        }
        count += 1;
    }
    let pods = owned(state, job, "pods");
    let ready = pods.iter().filter(|(_, pod)| object::pod_active(pod) && object::pod_ready(pod)).count() as i64;
    let now = state.clock.stamp();
    let mut status = without_zeros(&[("active", count), ("succeeded", succeeded), ("failed", failed)]);
    status.insert("ready".into(), json!(ready));
    status.insert("terminating".into(), json!(pods.iter().filter(|(_, pod)| object::deleting(pod)).count()));
    status.insert("uncountedTerminatedPods".into(), json!({}));
    status.insert("startTime".into(), job.pointer("/status/startTime").cloned().unwrap_or(json!(now)));
    let mut conditions = list(job, "/status/conditions").to_vec();
    if let Some((kind, reason, message)) = verdict {
        let before = if kind == "Complete" { "SuccessCriteriaMet" } else { "FailureTarget" };
        for kind in [before, kind] {
            object::set_condition(
                &mut conditions,
                json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": now}),
                &now,
                false,
            );
        }
        if kind == "Complete" {
            status.insert("completionTime".into(), json!(now));
        }
    }
    if !conditions.is_empty() {
        status.insert("conditions".into(), conditions.into());
    }
    put_status(state, key, job, status.into());
}
