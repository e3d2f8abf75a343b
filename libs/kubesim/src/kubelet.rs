//! Runs pods on their nodes, by the same annotations as the kwok stages of deploy/local-kube.
//!
//! Every step is a timer with the uid of the pod. The kubelet of a lost node does nothing until the node is back.

use std::time::Duration;

use serde_json::{Value, json};

use crate::duration::duration;
use crate::key::Key;
use crate::nodes;
use crate::object::{self, annotation, deleting, has_finalizers, label, list, text};
use crate::standin::StandIn;
use crate::state::ClusterState;
use crate::timers::{PodStep, Timer};

/// Sets the timers that follow from a change of a pod or a node.
pub fn observe(state: &mut ClusterState, key: &Key, old: Option<&Value>, new: Option<&Value>) {
    if &*key.resource == "pods"
        && !state.stand_ins.is_empty()
        && let Some(pod) = old
        && new.is_none_or(|new| object::uid(new) != object::uid(pod) || object::pod_finished(new))
    {
        state.stand_ins.remove(object::uid(pod));
    }
    match (&*key.resource, new) {
        ("pods", Some(pod)) => pod_changed(state, key, old, pod),
        ("nodes", Some(node)) => nodes::observe(state, key, old, node),
        _ => {}
    }
}

fn pod_changed(state: &mut ClusterState, key: &Key, old: Option<&Value>, pod: &Value) {
    if text(pod, "/spec/nodeName").is_empty() {
        return;
    }
    let became = |is: fn(&Value) -> bool| is(pod) && !old.is_some_and(is);
    if became(|pod| deleting(pod) && !has_finalizers(pod)) || became(deleting) {
        later(state, key, pod, PodStep::Stop);
    } else if became(|pod| !text(pod, "/spec/nodeName").is_empty() && !deleting(pod)) && text(pod, "/status/phase") == "Pending" {
        later(state, key, pod, PodStep::Start);
    } else if became(running) {
        if label(pod, "kit/chaos") == Some("crash") {
            later(state, key, pod, PodStep::Crash);
        } else if finite(pod) {
            later(state, key, pod, PodStep::Complete);
        } else if annotation(pod, "kit/flap").is_some() {
            later(state, key, pod, PodStep::Flap);
        }
    }
}

fn running(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Running"
}

fn finite(pod: &Value) -> bool {
    label(pod, "kit/finite") == Some("true") || list(pod, "/metadata/ownerReferences").iter().any(|owner| owner["kind"] == "Job")
}

fn later(state: &mut ClusterState, key: &Key, pod: &Value, step: PodStep) {
    let delay = match step {
        PodStep::Start => delay(pod, "kit/start-delay", 300, 600),
        PodStep::Ready => delay(pod, "kit/ready-delay", 0, 0),
        PodStep::Complete => delay(pod, "kit/run-for", 2_000, 2_000),
        PodStep::Crash => delay(pod, "kit/crash-after", 10_000, 20_000),
        PodStep::Flap => delay(pod, "kit/flap", 1_000, 1_000),
        PodStep::Stop => delay(pod, "kit/stop-delay", 200, 200),
    };
    state.after(delay, Timer::Pod { key: key.clone(), uid: object::uid(pod).into(), step });
}

/// A random delay from the annotation to `<annotation>-max`; without the latter the annotation alone; without both, between the defaults.
fn delay(pod: &Value, name: &str, min: u64, max: u64) -> Duration {
    let given = |name: &str| annotation(pod, name).and_then(duration);
    let low = given(name).unwrap_or(Duration::from_millis(min));
    let high = given(&format!("{name}-max"));
    let high = high.unwrap_or(if given(name).is_some() { low } else { Duration::from_millis(max) });
    rand::random_range(low..=high.max(low))
}

/// A timer of a pod is due.
pub fn step(state: &mut ClusterState, key: &Key, uid: &str, step: PodStep) {
    let Some(pod) = state.store.get(key).filter(|pod| object::uid(pod) == uid) else { return };
    if state.lost.contains(text(&pod, "/spec/nodeName")) {
        // The step is taken when the node is back, see `resume`.
        return;
    }
    if step == PodStep::Stop {
        if !has_finalizers(&pod) {
            state.remove(key);
        } else if !object::pod_finished(&pod) && deleting(&pod) {
            // Its containers end; the pod stays until somebody removes the finalizer.
            let mut ended = Value::clone(&pod);
            finish(&mut ended, "Failed", 143, "Error", &state.clock.stamp());
            state.put(key.clone(), ended);
        }
        return;
    }
    if deleting(&pod) || object::pod_finished(&pod) {
        return;
    }
    let now = state.clock.stamp();
    let mut new = Value::clone(&pod);
    match step {
        PodStep::Start if !running(&pod) => {
            nodes::pull(state, &pod);
            start(&mut new, &now);
            let waits = annotation(&pod, "kit/ready-delay").is_some();
            stand_in(state, &mut new, waits);
            if waits && !never_ready(&pod) {
                set_ready(&mut new, false, "ContainersNotReady", &now);
                later(state, key, &pod, PodStep::Ready);
            }
        }
        PodStep::Ready => {
            if let Some(process) = state.stand_ins.get_mut(uid).filter(|_| !state.silent) {
                process.listen(&pod);
            }
            set_ready(&mut new, true, "ContainersNotReady", &now);
        }
        PodStep::Complete => finish(&mut new, "Succeeded", 0, "Completed", &now),
        PodStep::Crash => {
            finish(&mut new, "Failed", 137, "Error", &now);
            new["status"]["reason"] = json!("KitChaos");
        }
        PodStep::Flap => {
            set_ready(&mut new, !object::pod_ready(&pod), "ContainersNotReady", &now);
            later(state, key, &pod, PodStep::Flap);
        }
        PodStep::Start | PodStep::Stop => return,
    }
    state.put(key.clone(), new);
}

/// Continues the pods of a node that is back: steps that were due in the meantime are taken now.
pub fn resume(state: &mut ClusterState, node: &str) {
    let pods: Vec<(Key, Value)> = state
        .store
        .list(&"pods".into(), "")
        .filter(|(_, pod)| text(pod, "/spec/nodeName") == node)
        .map(|(key, pod)| (key.clone(), Value::clone(&pod)))
        .collect();
    for (key, pod) in pods {
        if deleting(&pod) {
            later(state, &key, &pod, PodStep::Stop);
        } else if running(&pod) {
            let mut new = pod.clone();
            set_ready(&mut new, !never_ready(&pod), "ContainersNotReady", &state.clock.stamp());
            if new != pod {
                state.put(key, new);
            }
        } else {
            later(state, &key, &pod, PodStep::Start);
        }
    }
}

fn never_ready(pod: &Value) -> bool {
    annotation(pod, "kit/never-ready") == Some("true")
}

/// Starts the process of a pod, in clusters that have them. One that `waits` answers when the pod gets ready.
fn stand_in(state: &mut ClusterState, pod: &mut Value, waits: bool) {
    if !state.settings.stand_ins {
        return;
    }
    if let Some(process) = if state.silent || waits { Some(StandIn::silent()) } else { StandIn::start(pod) } {
        let ip = process.address.to_string();
        pod["status"]["podIPs"] = json!([{"ip": ip}]);
        pod["status"]["podIP"] = json!(ip);
        state.stand_ins.insert(object::uid(pod).to_owned(), process);
    }
}

/// Sets the status of a pod that runs.
pub fn start(pod: &mut Value, now: &str) {
    let ready = !never_ready(pod);
    let byte = |at: usize| u8::from_str_radix(object::uid(pod).get(at..at + 2).unwrap_or("1"), 16).unwrap_or(1);
    let ip = format!("10.{}.{}.{}", 128 + byte(0) % 64, byte(2), byte(4).max(1));
    let statuses = |pointer: &str| -> Vec<Value> {
        list(pod, pointer)
            .iter()
            .map(|c| {
                let done = pointer.ends_with("initContainers") && c["restartPolicy"] != "Always";
                let state = if done {
                    json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}})
                } else {
                    json!({"running": {"startedAt": now}})
                };
                json!({"name": c["name"], "image": c["image"], "imageID": "", "ready": ready || done, "started": true,
                    "restartCount": 0, "state": state, "lastState": {}})
            })
            .collect()
    };
    let (containers, init) = (statuses("/spec/containers"), statuses("/spec/initContainers"));
    let status = object::map_mut(pod, &["status"]);
    status.insert("phase".into(), json!("Running"));
    status.insert("startTime".into(), json!(now));
    status.insert("podIP".into(), json!(ip));
    status.insert("podIPs".into(), json!([{"ip": ip}]));
    status.insert("containerStatuses".into(), containers.into());
    if !init.is_empty() {
        status.insert("initContainerStatuses".into(), init.into());
    }
    let gates: Vec<Value> = list(pod, "/spec/readinessGates").to_vec();
    let mut conditions = list(pod, "/status/conditions").to_vec();
    object::set_condition(&mut conditions, json!({"type": "Initialized", "status": "True", "lastProbeTime": null}), now, false);
    for gate in gates {
        object::set_condition(&mut conditions, json!({"type": gate["conditionType"], "status": "True", "lastProbeTime": null}), now, false);
    }
    pod["status"]["conditions"] = conditions.into();
    set_ready(pod, ready, "ContainersNotReady", now);
}

fn finish(pod: &mut Value, phase: &str, code: i64, reason: &str, now: &str) {
    let started = text(pod, "/status/startTime").to_string();
    pod["status"]["phase"] = json!(phase);
    if let Some(Value::Array(containers)) = pod.pointer_mut("/status/containerStatuses") {
        for container in containers {
            container["started"] = json!(false);
            container["state"] = json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}});
        }
    }
    set_ready(pod, false, if code == 0 { "PodCompleted" } else { "PodFailed" }, now);
}

/// Sets readiness of the pod and of its containers.
pub fn set_ready(pod: &mut Value, ready: bool, reason: &str, now: &str) {
    let mut conditions = list(pod, "/status/conditions").to_vec();
    for kind in ["Ready", "ContainersReady"] {
        let condition = if ready {
            json!({"type": kind, "status": "True", "lastProbeTime": null})
        } else {
            json!({"type": kind, "status": "False", "reason": reason, "lastProbeTime": null})
        };
        object::set_condition(&mut conditions, condition, now, false);
    }
    pod["status"]["conditions"] = conditions.into();
    if let Some(Value::Array(containers)) = pod.pointer_mut("/status/containerStatuses") {
        for container in containers {
            container["ready"] = json!(ready);
        }
    }
}
